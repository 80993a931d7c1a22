"""Answers said in a sentence: ``The answer is approximately 5.``, ``She has 5 apples left``, ``so $x = 5$``.

Used by the flexible rule, after boxes and tags (``r3l.envs.base.answers``). A sentence gives an answer only
where it offers one: ``24 or 25`` and ``2 dozen`` are left as they are written, and the grader finds them
wrong.
"""

from __future__ import annotations

import re

# --- Where an answer is announced.

# A heading (#### Result) announces nothing, unless it is the last line.
_MARKED = re.compile(r"(?<!#)####(?!#)\s*+(?!\d+[.)]\s+[A-Za-z])(?=[-+−~$*({\[.]*\d|\\|.+\Z)(.+)")
_ANNOUNCEMENT = re.compile(
    r"(?:final\s+)?answers?\**\s*(?:(?:is|are|would be|should be|must be|equals|comes to)\b|[:=])+\s*",
    re.IGNORECASE,
)
_LONGEST = 1_000  # characters of a clause; a longer one is no sentence, and would take quadratic time
_NEXT_SENTENCE = re.compile(r"(?<=\S)(?<!\bapprox)(?<!\bMr|\bDr|\bSt|\bRs|\bNo)(?<!\bMrs)[.!?]\s+(?=\S)")


def announced(text: str) -> str | None:
    """The last answer that ``####`` announces or, in a text without ``####``, ``answer is``; else None.

    An answer ends with its line. Answers without a number count only if none has one.
    """
    text = text.rstrip()
    tails = _MARKED.findall(text)
    if not tails:
        # Each announcement reaches to the end of its line, or to the next announcement. A formula at its
        # beginning belongs to it on however many lines.
        found = list(_ANNOUNCEMENT.finditer(text))
        for k, announcement in enumerate(found):
            start = announcement.end()
            end = found[k + 1].start() if k + 1 < len(found) else len(text)
            formula = _FORMULA.match(text, start)
            line_start = start if formula is None else formula.end()
            tail = text[start:line_start] + text[line_start:end].partition("\n")[0]
            if tail.strip(" *"):
                tails.append(tail)
    if not tails:
        return None
    with_number = [tail for tail in tails if any(c.isdigit() or c == "\\" for c in tail)]
    return said((with_number or tails)[-1])


# --- What a clause says.

_REMARK = re.compile(
    r",?\s+(?=(?:because|since|but|so that|which|whereas|i\.?e\.?|e\.?g\.?|that is|namely)\b)"
    r"|,\s+(?=(?:so|as|where|if|but|not|when|given|assuming|rounded|making|meaning|after|it|she|he|they|we"
    r"|thus)\b)"
    r"|,\s+(?=(?:the|an?|in|with|for|giving|leaving)\b[^\d\\$]*\Z)"
    r"|(?<=[\d}$%)]),\s+(?!(?:or|and|nor|pi|infinity)\b)(?=[A-Za-z]{2}[^\d\\$]*\Z)"
    r"|;\s+(?=[A-Za-z])|\s+(?:—|–|--)\s+|—|\s+-\s+(?=[A-Za-z]+\s+[A-Za-z])"
)
_IN_PARENTHESES = re.compile(
    r"\s+\((?!\s*(?:mod|base|pi|sqrt|sin|cos|tan|log|ln|exp)\b)"
    r"(?=\s*(?:[A-Za-z]{2}|i\.e|e\.g|an? |[≈=]))[^()]*\)(?=\s|$)"
)
_FUNCTION_BEFORE = re.compile(r"(?:\b|\\)(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|[a-z])$")
_LEAD = re.compile(r"(?:(?:that|therefore|thus|hence)(?![A-Za-z])|[:=,—])[\s,:]*", re.IGNORECASE)
_LEAD_TO_NUMBER = re.compile(
    r"(?:approximately|approx\.?|about|around|roughly|nearly|almost|exactly|precisely|so|simply|just|only"
    r"|clearly|indeed|then|given by|equal to|equals|is|now|still|actually|obviously|definitely|certainly"
    r"|probably|likely|found to be|≈|~)(?![A-Za-z])[\s,:]*",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(r"(?:minus|negative)\s+(?=[\d$\\])", re.IGNORECASE)
_FORMULA = re.compile(
    r"(?<![\\$])\$\$((?:[^$]|\$(?!\$))+)\$\$"
    r"|(?<![\\$])\$(?=[^\s$])((?:\\.|[^$\\\n])*(?<!\s))\$(?!\d)"  # a blank inside or a digit after: dollars
    r"|\\\(((?:[^\\]|\\(?![()]))+)\\\)"
    r"|\\\[((?:[^\\]|\\(?![\[\]]))+)\\\]"
)
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}(?![A-Za-z]*\})")
# After one of these words a number is another one, or one of several.
_CHANGES_NUMBER = re.compile(
    r"""\b(?: or | nor | not | plus | minus | mod(?:ulo)? | remainder | squared | cubed | factorial | choose
    | base | root | sqrt | sin | cos | tan | log | infinity | pi | between | than | at\ (?:least|most) | half
    | halves | quarters? | dozens? | hundreds? | thousands? | millions? | billions? | trillions? | thirds?
    | fourths? | fifths? | sixths? | sevenths? | eighths? | ninths? | tenths? | hundredths?
    | thousandths? )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_LIMIT = re.compile(r"\b(?:up to|under|over|above|below|within|beyond)\Z", re.IGNORECASE)
_WORD = re.compile(r"[\"'(]*(?:[A-Za-z][A-Za-z'’-]+|[aI])[\"'),.;:!?]*")
_AFTER_A_NUMBER = re.compile(
    r"(?:is|are|was|were|of|in|for|to|at|on|by|as|with|from|that|who|and)\b", re.IGNORECASE
)


def said(clause: str) -> str:
    """The answer in the first sentence of ``clause``, without words that introduce or explain it.

    A clause of more than 1,000 characters is returned unchanged.
    """
    if len(clause) > _LONGEST:
        return clause

    # Remarks after the answer, or in parentheses within it.
    first, *_ = _NEXT_SENTENCE.split(clause.replace("**", "").strip())
    text = _REMARK.split(first, maxsplit=1)[0].strip().rstrip(".").strip("* ") or first
    remark = _IN_PARENTHESES.search(text)
    if remark and not _FUNCTION_BEFORE.search(text[: remark.start()]):
        text = f"{text[: remark.start()]}{text[remark.end() :]}".strip()

    # Words that lead to the answer, one after the other.
    numeric = any(c.isdigit() or c == "\\" for c in text)
    while True:
        lead = _LEAD.match(text)
        if lead is None and numeric:
            lead = _LEAD_TO_NUMBER.match(text)
        if lead is None or lead.end() == len(text):
            break
        text = text[lead.end() :]
    return _calculated(_without_words(_NEGATIVE.sub("-", text))).strip("* ")


def _without_words(text: str) -> str:
    """The formula or number of a sentence; all of ``text`` if it has none, or more than one."""
    formulas = _formulas(text)
    if formulas:
        around = _FORMULA.sub(" ", text)
        if len(formulas) > 1 or re.search(r"\d", around) or _CHANGES_NUMBER.search(around):
            return text
        return _inside(formulas[0]) + _percent(text[formulas[0].end() :])

    # It reaches from the first piece with a digit or a command to the last one, without words between.
    pieces = text.split()
    words = [_WORD.fullmatch(piece) is not None for piece in pieces]
    numbers = [k for k, piece in enumerate(pieces) if re.search(r"\d|\\[A-Za-z]", piece) and not words[k]]
    if not numbers or not any(words):
        return text
    start = numbers[0]
    end = numbers[-1] + 1
    while start and not words[start - 1]:
        start -= 1
    while end < len(pieces) and not words[end]:
        end += 1
    before = " ".join(pieces[:start])
    after = " ".join(pieces[end:])
    if any(words[start:end]) or _CHANGES_NUMBER.search(f"{before} | {after}") or _LIMIT.search(before):
        return text
    if not before and not _AFTER_A_NUMBER.match(after):
        return text  # a number with its unit
    return " ".join(pieces[start:end]).rstrip(",;:!?.\"'") + _percent(after)


def _formulas(text: str) -> list[re.Match[str]]:
    """The formulas between marks such as $...$, without text between two amounts in dollars."""
    return [found for found in _FORMULA.finditer(text) if not _PROSE.search(_inside(found))]


def _inside(formula: re.Match[str]) -> str:
    return next(part for part in formula.groups() if part is not None).strip()


def _percent(text: str) -> str:
    return "%" if re.match(r"\s*(?:\\?%|per ?cent\b)", text) else ""


def _calculated(text: str) -> str:
    """The result of a calculation such as ``3 * 6 = 18``; all of ``text`` if a side has a variable."""
    *before, result = text.split("=")
    if not before or not result.strip():
        return text
    steps = [re.sub(r"\\[A-Za-z]+", " ", step) for step in (before if len(before) == 1 else before[1:])]
    computed = all(re.search(r"\d", step) and not re.search(r"[A-Za-z]", step) for step in steps)
    return result.strip() if computed else text


# --- The last number.

_NUMBER = re.compile(
    r"[-−]?\$?(?:\d+\s+\d+\s*/\s*\d+|(?:\d+(?:,\d{3})*(?:\.\d+)?|(?<![\w)])\.\d+)(?:\s*/\s*\d+)?%?|[¼-¾⅐-⅞])"
)
_PIECE = re.compile(r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|\S)+")  # blanks in braces do not end it
_OPERATOR = re.compile(r"\\(?:times|cdot|div|pm)|[-+*/×·÷^−]")
_OPERAND = re.compile(r"(?:[\d})]|(?<![A-Za-z])[A-Za-z])\Z")
_OPERATION = re.compile(
    r"\\[A-Za-z]|[\^_√²³π*×·÷+¼-¾⅐-⅞]|sqrt|\d[abcknpqrtuvwxyz](?![A-Za-z])|\d[eE][-+]?\d|\s[-−]\s"
)
_TUPLE = re.compile(
    r"(?:[(\[]|\\\{)(?:[^()\[\]{}\n]|\{[^{}\n]*\})*,(?:[^()\[\]{}\n]|\{[^{}\n]*\})*?(?:[)\]]|\\\})"
)
_NEARBY = 200  # characters on each side of a number that its formula may take


def last_number(text: str) -> str | None:
    r"""The last number of ``text``, or None; within a formula or a tuple, all of it.

    So the last number of \frac{3}{4} is the fraction, not 4.
    """
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return None
    last = numbers[-1]

    # A formula between marks, or a tuple on the same line.
    for formula in _formulas(text):
        if formula.start() <= last.start() and last.end() <= formula.end():
            return _calculated(_inside(formula))

    left = max(text.rfind("\n", 0, last.start()) + 1, last.start() - _NEARBY)
    line_end = text.find("\n", last.end())
    right = min(line_end if line_end >= 0 else len(text), last.end() + _NEARBY)
    for group in _TUPLE.finditer(text, left, right):
        inside = re.sub(r"\\[A-Za-z]+", "", group[0])
        if group.start() < last.start() < group.end() and not re.search(r"[A-Za-z]{2}", inside):
            return group[0]

    # A formula without marks: the piece around the number, and neighbours over operators (1.5 \times 10^3).
    pieces = list(_PIECE.finditer(text, left, right))
    here = [k for k, piece in enumerate(pieces) if piece.start() < last.end() and last.start() < piece.end()]
    first = here[0]
    final = here[-1]
    while first > 1 and _OPERATOR.fullmatch(pieces[first - 1][0]) and _OPERAND.search(pieces[first - 2][0]):
        first -= 2
    if first and pieces[first][0].startswith("\\") and re.fullmatch(r"[-−]?\d+", pieces[first - 1][0]):
        first -= 1  # 2 \sqrt{3}
    if final + 1 < len(pieces) and re.match(r"\\(?!text|mathrm)[A-Za-z]", pieces[final + 1][0]):
        final += 1  # 5 \pi
    piece = text[pieces[first].start() : pieces[final].end()].replace("**", "").rstrip(",;:!?.\"'")
    piece = _calculated(piece)
    words = re.search(r"[A-Za-z]{2}", re.sub(r"\\[A-Za-z]+|sqrt", "", piece))
    closed = piece.count("{") == piece.count("}")
    return piece if _OPERATION.search(piece) and closed and not words else last[0]
