"""What a reader knows of an answer and math-verify does not: layout, mixed numbers, number bases, plain units, case.

math-verify 0.9.0 deletes blanks between digits, the base below a number and the difference between x and X, compares
numbers after rounding to six decimals, and takes ``18 eggs`` for 18 e g^2 s.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SPACE = r"(?:\\[,;:! ]|~|\s|\\quad\b)"
_SIGNS = str.maketrans({"−": "-", "﹣": "-", "－": "-", "∪": "\\cup ", "×": "\\times ", "·": "\\cdot ", "π": "\\pi "})
_THOUSANDS = re.compile(rf"(?<![\w.,/])([1-9]\d{{0,2}})((?:{_SPACE}+\d{{3}})+)(?![\d/]|{_SPACE}*/|{_SPACE}+\d)")
_MIXED = re.compile(rf"(?<![\w.,/])(\d+){_SPACE}+(\d+){_SPACE}*/{_SPACE}*(\d+)(?!\w)")
_BASES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "sixteen")
_ONE_BASE = rf"(1?\d|20|{'|'.join(_BASES)})"
_DIGITS = r"[0-9A-Fa-f]*\d[0-9A-Fa-f]*"
_ANY_BASE = "|".join(
    form.replace("BASE", rf"\s*(?:in )?(?:base[ -]*)?{_ONE_BASE}\s*")
    for form in (
        r"_BASE\b",
        r"_\s*\{BASE\}",
        r"_\s*\{\s*\\(?:text|mathrm|mbox)\s*\{BASE\}\s*\}",
        r"_\s*\\text\s*\{BASE\}",
    )
)
_WORDED = "|".join(
    form.replace("BASE", rf"\s*(?:in )?base[ -]*{_ONE_BASE}\s*")
    for form in (r"BASE\b", r"\(BASE\)", r"\\text\s*\{BASE\}")
)
_BASED = re.compile(rf"(?<![\w.])(?:\(({_DIGITS})\)|({_DIGITS}))\s*(?:{_ANY_BASE}|{_WORDED})")
_DROPPED = re.compile(rf"\\left\b|\\right\b|\\displaystyle\b|(?<!\\){_SPACE}")
_APART = re.compile(rf"(?<=\d){_SPACE}+(?=[\d.])")
_IN_BRACES = re.compile(r"(?:(?<=\\\\)|(?<=[&=,(]))\{([-+]?[\w.]+)\}")  # where they hold nothing together
_TEXT = re.compile(r"\\(?:text|textrm|textbf|textit|mbox|hbox)\s*\{([^{}]*)\}")


def legible(text: str) -> str:
    """``text`` in the spelling that math-verify reads rightly; what it stands for stays the same."""
    text = text.translate(_SIGNS).replace("{,}", ",").replace("\\!", "").strip().rstrip(".,;").strip()
    text = _THOUSANDS.sub(lambda m: m[1] + re.sub(r"\D", "", m[2]), text)
    text = _MIXED.sub(_improper, text)
    return _BASED.sub(_with_base, text)


def _with_base(number: re.Match[str]) -> str:
    digits, base = filter(None, number.groups())
    return f"{digits.upper()}_{{{_base(base)}}}"


def _improper(mixed: re.Match[str]) -> str:
    whole, over, under = (int(digits) for digits in mixed.groups())
    return f"\\frac{{{whole * under + over}}}{{{under}}}"


def _base(written: str) -> int:
    return int(written) if written.isdigit() else 16 if written == "sixteen" else _BASES.index(written) + 2


def plain(text: str) -> str:
    """The text without layout: spaces, dollar signs, sizes of brackets and fractions. Numbers apart stay apart."""
    text = legible(text).strip("$").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")
    text = _DROPPED.sub("", _APART.sub("\0", text)).replace("\0", " ")
    return _IN_BRACES.sub(r"\1", text)


def apart(text: str) -> bool:
    """Whether two numbers stand side by side with nothing but a space between them."""
    return bool(_APART.search(legible(text)))


_NUMERIC = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|[-+]?\.\d+")
_FRACTION = re.compile(r"([-+]?)\\frac\{(\d+)\}\{(\d+)\}")


def number(text: str) -> Fraction | None:
    """The value of a plain decimal, integer or mixed number, thousands separated or not; None for anything else."""
    bare = legible(text).strip("$").strip()
    if _NUMERIC.fullmatch(bare):
        return Fraction(bare.replace(",", ""))
    if _MIXED.search(text) and (parts := _FRACTION.fullmatch(bare)) and int(parts[3]):
        return Fraction(int(parts[1] + parts[2]), int(parts[3]))
    return None


# A number and the words after it. No unit: what changes the number, or offers another one.
_QUANTITY = re.compile(
    r"(\\?\$?[-+]?\\?\$?(?:\\[dt]?frac\{\d+\}\{\d+\}|[\d,.]*\d(?:\s+\d+)?(?:\s*/\s*\d+)?))\$?(\s*[A-Za-z][^\d\\]*)"
)
_SHORT_UNIT = re.compile("cm|mm|km|kg|mg|m[lL]|ft|in|lbs?|oz|hrs?|mins?|secs?|mph|kph|rpm|yds?|[ap]m|sq|USD")
_NO_UNIT = re.compile(
    r"""\b(?: and | n?or | not | plus | minus | mod(?:ulo)? | remainder | squared | cubed | factorial | choose | base
    | root | sqrt | sin | cos | tan | cot | sec | csc | log | exp | max | gcd | lcm | infinity | percent(?:age)?
    | pi | tau | alpha | beta | gamma | delta | theta | lambda | sigma | omega | phi | rho | epsilon
    | zero | one | two | three | four(?:teen)? | five | six(?:teen)? | seven(?:teen)? | eight(?:een)? | nine(?:teen)?
    | ten | eleven | twelve | thirteen | fifteen | (?: twen | thir | for | fif | six | seven | eigh | nine )ty
    | (?: dozen | hundred | thousand | million | billion | trillion )s? | half | halves
    | (?: third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | hundredth | thousandth )s?
    | (?<!/)[b-z] )\b""",
    re.VERBOSE | re.IGNORECASE,
)


def without_units(gold: str, answer: str) -> tuple[str, str]:
    """Both without the words after their number, where only one of them has such words, or both the same."""
    (bare_gold, of_gold), (bare_answer, of_answer) = _split(gold), _split(answer)
    return (gold, answer) if of_gold and of_answer and of_gold != of_answer else (bare_gold, bare_answer)


def _split(text: str) -> tuple[str, str]:
    """A number and its unit in plain words; all of ``text`` and no unit where it is not of that form."""
    words = re.sub(_SPACE, " ", _TEXT.sub(r" \1", text.translate(_SIGNS)))
    match = _QUANTITY.fullmatch(words.strip().rstrip(".,;!* "))
    if match is None:
        return text, ""
    unit = match[2].strip()
    wordy = re.fullmatch(r"([A-Za-z]+)(?:[ /'()^²³-][A-Za-z]*)*", unit)
    if wordy is None or _NO_UNIT.search(unit) or not _names_things(wordy[1], match[2][0]):
        return text, ""
    return match[1].replace("\\$", "").replace("$", ""), unit.casefold()


def _names_things(word: str, before: str) -> bool:
    """Whether ``word`` after a number is a word, and no product of symbols such as abc or mgh."""
    if _SHORT_UNIT.fullmatch(word):
        return True
    long_enough = len(word) >= (3 if before.isspace() else 4)
    run = all(ord(b) - ord(a) == 1 for a, b in zip(word, word[1:], strict=False))
    return long_enough and not run and bool(re.search("[aeiouy]", word.lower())) and word[1:].islower()


def bases_agree(gold: str, answer: str) -> bool | None:
    """Whether two numbers with a base are the same digits in the same base; None where math-verify is to decide.

    An answer without a base is in the base that was asked for; a gold without one is decimal.
    """
    expected, given = _based(gold), _based(answer)
    if sorted(base for _, base in expected) != sorted(base for _, base in given) and given:
        return False if expected or any(base != "10" for _, base in given) else None
    whole = [re.fullmatch(r"([0-9A-F]+)_\{(\d+)\}", legible(text).strip("$ ")) for text in (gold, answer)]
    return whole[0][0] == whole[1][0] if whole[0] and whole[1] else None


def _based(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(?<![\w.])([0-9A-F]*\d[0-9A-F]*)_\{(\d+)\}", legible(text))


def case_agrees(gold: str, answer: str) -> bool:
    """Whether no symbol of one is a symbol of the other in the other case. Words may be written in any."""
    one, other = _symbols(gold), _symbols(answer)
    upper_or_lower = [{symbol.casefold() for symbol in symbols} for symbols in (one - other, other - one)]
    return same_word(gold, answer) or not (
        upper_or_lower[0] & {symbol.casefold() for symbol in other}
        or upper_or_lower[1] & {symbol.casefold() for symbol in one}
    )


def same_word(gold: str, answer: str) -> bool:
    """Whether both are one word, such as no, written small or with a capital."""
    words = [_TEXT.sub(r"\1", text).strip(" $.()") for text in (gold, answer)]
    small = all(word.isalpha() and len(word) > 1 and (word.islower() or word.istitle()) for word in words)
    return small and words[0].casefold() == words[1].casefold()


def _symbols(text: str) -> set[str]:
    """What stands for something: letters, Greek ones too, but not those of words or before an equals sign."""
    text = re.sub(r"^\s*\$?[A-Za-z]\s*=", "", _TEXT.sub(" ", text))
    commands = set(re.findall(r"\\[A-Za-z]+", text))
    runs = re.findall(r"[A-Za-z]+", re.sub(r"\\[A-Za-z]+", " ", text))
    return commands | set("".join(run for run in runs if len(run) < 4))
