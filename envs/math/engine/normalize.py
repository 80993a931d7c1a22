"""Rewrite spellings that math-verify does not read; compare answers as texts and as numbers.

math-verify 0.9.0 reads LaTeX. It does not read unicode mathematics (``√3``, ``½``, ``60°``), repeating
decimals, ``1.5e3``, ordinals, compound units, or a number base in words. ``normalize`` rewrites these and
changes no value.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

# --- Characters: unicode mathematics as LaTeX.

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣ", "0123456789+-=()nix", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₐₓₖᵢ", "0123456789+-=()naxki", strict=True))
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_GREEK = {letter: unicodedata.name(letter).split()[-1] for letter in "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"}
_COMMANDS = {
    letter: "lambda" if name == "LAMDA" else name.capitalize() if letter.isupper() else name.lower()
    for letter, name in _GREEK.items()
} | {
    "Λ": "Lambda",
    "∪": "cup",
    "∩": "cap",
    "×": "times",
    "✕": "times",
    "·": "cdot",
    "⋅": "cdot",
    "∙": "cdot",
    "÷": "div",
    "∞": "infty",
    "≤": "le",
    "≥": "ge",
    "≠": "ne",
    "±": "pm",
    "∓": "mp",
    "∈": "in",
    "∅": "emptyset",
    "⌊": "lfloor",
    "⌋": "rfloor",
    "⌈": "lceil",
    "⌉": "rceil",
    "⟨": "langle",
    "⟩": "rangle",
    "≈": "approx",
}
_CHARACTERS = str.maketrans(
    {character: f"\\{command} " for character, command in _COMMANDS.items()}
    | dict.fromkeys("−﹣－‐‑‒", "-")
    | dict.fromkeys("°º˚", "^{\\circ}")
    | {"⁄": "/", "∕": "/", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℚ": "\\mathbb{Q}", "ℕ": "\\mathbb{N}"}
    | {"“": '"', "”": '"', "’": "'", "–": "-", "\u200b": "", "\ufeff": ""}
)
# A radical sign without a bar covers the number, the letter or the bracket after it.
_ROOT_OF = r"(\d+(?:\.\d+)?|[A-Za-z]|\([^()]*\)|\{[^{}]*\})"
_RADICAL = re.compile(rf"(?:\^\{{(\d)\}}(?=\s*√))?\s*([√∛∜])\s*{_ROOT_OF}")
_RADICAL_INDEX = {"√": "", "∛": "3", "∜": "4"}


def _as_latex(text: str) -> str:
    """Unicode mathematics as LaTeX commands; full-width characters as plain ones."""
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(_SUPERSCRIPTS[c] for c in run[0]) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + "".join(_SUBSCRIPTS[c] for c in run[0]) + "}", text)
    characters = []
    for character in text:
        plain = unicodedata.normalize("NFKC", character)
        if "⁄" in plain:  # ½ is one character, 1⁄2 for NFKC
            over, under = plain.split("⁄")
            characters.append(f"\\frac{{{over}}}{{{under}}}" if under else plain)
        else:
            characters.append(character if character in "…º˚" else plain)
    text = _RADICAL.sub(_root, "".join(characters))
    return text.translate(_CHARACTERS)


def _root(radical: re.Match[str]) -> str:
    index = radical[1] or _RADICAL_INDEX[radical[2]]
    return f"\\sqrt{f'[{index}]' if index else ''}{{{radical[3].strip('(){}')}}}"


# --- Layout: commands that change how a formula looks, not its value.

_SPACE = re.compile(
    r"(?<!\\)\\[,:;> ]|~|\s|\\(?:q?quad|enspace|enskip|(?:thin|med|thick)space|hfill?|allowbreak)(?![A-Za-z])"
    r"|\\(?:hspace|hskip|vspace|phantom|hphantom|vphantom)\*?\s*\{[^{}]*\}"
)
_NOTHING = re.compile(
    r"(?<!\\)\\!|\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\.?|\\?\$|(?<!\\)\\[()\[\]]"
    r"|\\(?:display|text|script)style(?![A-Za-z])|\\(?:no)?limits(?![A-Za-z])|\\(?:math)?strut(?![A-Za-z])"
    r"|\\(?:negthinspace|nobreak|relax|noindent|centering)(?![A-Za-z])|\\color\s*\{\w*\}"
)
_COMMA_OF_THOUSANDS = re.compile(r"\{,\}|,\s*\\!\s*")
_STYLED = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|mathsf|mathit|underline|ensuremath|textcolor\s*\{\w*\})\s*\{([^{}]*)\}"
)
_WRAPPED = re.compile(
    r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mbox|hbox)\s*\{([^{}]*)\}|\{([^{},]*)\}"
)
_ROWS = re.compile(r"(?:\\\\)+\s*$")
_FRACTION_COMMAND = re.compile(r"\\(?:[dtc]frac|nicefrac|sfrac)(?![A-Za-z])")
_BINOMIAL_COMMAND = re.compile(r"\\[dt]binom(?![A-Za-z])")
TEXT = re.compile(r"\\(?:text|textrm|textbf|textit|textnormal|mathrm|mbox|hbox|operatorname)\s*\{([^{}]*)\}")
# TeX takes one character as an argument: \frac 3 4, \frac34, \frac{3} 4, \sqrt 2.
_TWO_ARGUMENTS = re.compile(r"\\(frac|binom)\s*(?:(\w)|\{([^{}]*)\})\s*(?:(\w)|\{([^{}]*)\})")
_ONE_ARGUMENT = re.compile(r"\\sqrt\s*(\w)")
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|log|ln|exp"  # sec may be seconds
_BARE_FUNCTION = re.compile(rf"(?<![A-Za-z\\])(?:(?:np|numpy|math)\.)?({_FUNCTIONS})(?=[\s_(\^{{\d])")
_LOG_BASE = re.compile(r"\\log(\d+)(?=\s*\()")
_BARE_ROOT = re.compile(r"(?<![A-Za-z\\])(?:(?:np|numpy|math)\.)?(sqrt|cbrt)\(([^()]*)\)")
_POWER = re.compile(r"\^\s*(-\s*\d+)")


def _without_layout(text: str) -> str:
    """``text`` with plain blanks, one spelling of each command, and without marks around all of it."""
    text = _COMMA_OF_THOUSANDS.sub(",", text)
    text = _NOTHING.sub("", _SPACE.sub(" ", text))
    text = _BINOMIAL_COMMAND.sub(r"\\binom", _FRACTION_COMMAND.sub(r"\\frac", text))
    text = _TWO_ARGUMENTS.sub(_braced, text)
    text = _ONE_ARGUMENT.sub(r"\\sqrt{\1}", text)
    text = _STYLED.sub(r"\1", text)
    text = _ROWS.sub("", re.sub(r" +", " ", text)).strip()
    while whole := _WRAPPED.fullmatch(text.strip("*` ")):  # \text{5}, {5}, **5**
        text = next(part for part in whole.groups() if part is not None).strip()
    text = text.strip("*` ").replace("**", "^")
    text = _BARE_ROOT.sub(lambda m: f"\\sqrt{'[3]' if m[1] == 'cbrt' else ''}{{{m[2]}}}", text)
    text = _LOG_BASE.sub(r"\\log_{\1}", _BARE_FUNCTION.sub(r"\\\1", text))
    return _POWER.sub(lambda power: "^{" + power[1].replace(" ", "") + "}", text)


def _braced(command: re.Match[str]) -> str:
    first = command[2] or command[3] or ""
    second = command[4] or command[5] or ""
    return f"\\{command[1]}{{{first.strip()}}}{{{second.strip()}}}"


# --- Numbers.

_THOUSANDS = re.compile(r"(?<![\w.,/])([1-9]\d{0,2})((?: +\d{3})+)(?![\d/]| */| +\d)")
# 1 3/4 and 1\frac{3}{4}
_MIXED = re.compile(
    r"(?<![\w.,/}^])(\d+)(?:(?: +| and )(\d+) */ *(\d+)(?!\w)| *\\frac\{(\d+)\}\{(\d+)\}(?!\^))"
)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?|\.\d+)[eE]([-+]?\d+)(?![\w.])")
_TIMES_TEN = re.compile(r"(?<=\d) ?(?:[xX*]|\\times|\\cdot) ?10 ?\^ ?(?:\{([-+]? ?\d+)\}|([-+]?\d+))")
_LEADING = re.compile(r"(?:=|\\approx|\\simeq|\\sim)(?![A-Za-z]) ?|the +(?=\d)")
_POINT_AT_END = re.compile(r"(?<=\d)\.(?=\s*(?:[/*)\]},]|\Z))")
# 0.1\overline{6}, 0.1\bar6, 0.1(6), 0.16 with a combining bar, 0.\dot{1}4285\dot{7}
_REPEATING = re.compile(
    r"(?<![\w.])(\d*)\.(\d*)"
    r"(?:\\(?:overline|bar|overbar)\s*(?:\{(\d+)\}|(\d))|\((\d+)\)|((?:\d[\u0304\u0305])+)"
    r"|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?)(?:\s*(?:\.{2,}|…|\\[lcd]?dots))?"
)
# 0.1666... and 0.1666\ldots
_CONTINUED = re.compile(r"(?<![\w.])(\d*)\.(\d{2,}?)(?:\.{2,}|\s*(?:…|\\[lcd]?dots(?![A-Za-z])))")
_DEGREE_SIGN = r"\\circ|\\degrees?|\\(?:text|mathrm|textrm) ?\{ ?(?:o|\\circ) ?\}|o(?![A-Za-z])"
_DEGREES = re.compile(
    rf"(?<=[\d)}}.]) ?\{{?\}}? ?(?:\^ ?\{{? ?(?:{_DEGREE_SIGN}) ?\}}?|\\degrees?(?![A-Za-z])|\\textdegree)"
)
_ANGLE = re.compile(r"\\ang\s*\{([^{}]*)\}")
# 5th, 5-th, 5^{th}, 5^{\text{th}}
_ORDINAL = re.compile(
    r"(?<=\d)(?: ?[\^-])? ?\{? ?(?:\\(?:text|textrm|mathrm|mbox|textsuperscript) ?\{ ?)?"
    r"(?:st|nd|rd|th)(?![A-Za-z])[ }]*"
)

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_BASES = (*_SMALL[2:13], "sixteen")  # of numbers, as words
_BASE = rf"(1?\d|20|{'|'.join(_BASES)})"
_DIGITS = r"[0-9A-Fa-f]*\d[0-9A-Fa-f]*"
_WORDS_BASE = rf"(?:in )?base[ -]*{_BASE}\b"
_BASE_FORMS = (
    rf"_ ?{_BASE}\b",
    rf"_ ?\{{ ?\(? ?(?:(?:in )?base[ -]*)?{_BASE} ?\)? ?\}}",
    rf"_ ?\( ?{_BASE} ?\)",
    _WORDS_BASE,
    rf"\( ?{_WORDS_BASE} ?\)",
)
_IN_BASE = re.compile(rf"(?<![\w.])(?:\( ?({_DIGITS}) ?\)|({_DIGITS})) ?(?:{'|'.join(_BASE_FORMS)})")
_HEXADECIMAL_LETTERS = re.compile(r"([A-Fa-f]{2,}) ?(?:_ ?\{16\}|_ ?16|\(? ?(?:in )?base[ -]*16 ?\)?)")
_IN_TEXT = r"\\(?:text|textrm|mathrm|mbox) ?\{([^{}]*)\}"
_SUBSCRIPT_TEXT = re.compile(rf"_ ?(?:\{{ ?{_IN_TEXT} ?\}}|{_IN_TEXT})")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
}
_PREFIXED = re.compile(r"0(?:b([01]+)|o([0-7]+)|x([0-9A-Fa-f]+))")


@lru_cache(maxsize=20_000)
def normalize(text: str) -> str:
    """``text`` in a spelling that math-verify reads, with the same value."""
    text = _without_layout(_as_latex(text))

    # Repeating decimals come first: their dots are no full stop.
    text = _CONTINUED.sub(_continued, _REPEATING.sub(_repeating, text))
    text = text.rstrip(".,;: ").strip()
    text = _LEADING.sub("", text, count=1).strip() if _LEADING.match(text) else text

    # Thousands come before mixed numbers: both have a blank between digits.
    text = _THOUSANDS.sub(lambda m: m[1] + m[2].replace(" ", ""), text)
    text = _POINT_AT_END.sub("", text)
    text = _MIXED.sub(_improper, text)
    text = _SCIENTIFIC.sub(lambda m: f"{m[1]}\\times 10^{{{int(m[2])}}}", text)
    text = _TIMES_TEN.sub(lambda m: f"\\times 10^{{{int((m[1] or m[2]).replace(' ', ''))}}}", text)

    # Marks after a number, at last the base, whose digits may be letters.
    text = _DEGREES.sub(r"^{\\circ}", _ANGLE.sub(r"\1^{\\circ}", text))
    text = _ORDINAL.sub(" ", text).strip()
    return _only_member(_with_base(_number_in_words(text)))


def _number_in_words(text: str) -> str:
    """``24`` for twenty-four and twenty-fourth; other texts unchanged."""
    *tens, last = re.split("[ -]", text.casefold())
    cardinal = _ORDINALS.get(last) or re.sub("ieth$", "y", last).removesuffix("th")
    if not tens and cardinal in _TENS:
        return str(20 + 10 * _TENS.index(cardinal))
    if cardinal not in _SMALL or len(tens) > 1:
        return text
    value = _SMALL.index(cardinal)
    if tens:
        if tens[0] not in _TENS or not 0 < value < 10:
            return text
        value += 20 + 10 * _TENS.index(tens[0])
    return str(value)


def _improper(mixed: re.Match[str]) -> str:
    """A mixed number as a fraction: math-verify reads only some spellings of 1 3/4."""
    whole, over, under = (int(digits) for digits in mixed.groups() if digits is not None)
    return f"\\frac{{{whole * under + over}}}{{{under}}}"


def _repeating(decimal: re.Match[str]) -> str:
    r"""0.1\overline{6}, 0.1(6), 0.1\dot6 or 0.16 with a bar over the 6 as a fraction."""
    whole, fixed, *periods, first, inner, last = decimal.groups()
    period = next((period for period in periods if period), None)
    if period is None:  # dots over the first and the last digit of the period
        period = f"{first}{inner or ''}{last or ''}"
    return _fraction(whole, fixed, re.sub(r"\D", "", period))


def _continued(decimal: re.Match[str]) -> str:
    """0.1666... as a fraction if its last digits repeat; else unchanged."""
    whole, digits = decimal.groups()
    for length in range(1, len(digits) // 2 + 1):
        period = digits[-length:]
        if digits.endswith(period * 2):
            while len(digits) >= length and digits.endswith(period):
                digits = digits.removesuffix(period)
            return _fraction(whole, digits, period)
    return decimal[0]


def _fraction(whole: str, fixed: str, period: str) -> str:
    """A repeating decimal as a fraction: ``fixed`` digits after the point, then ``period`` repeated."""
    under = 10 ** len(fixed) * (10 ** len(period) - 1)
    value = Fraction(int(f"{whole}{fixed}{period}") - int(f"{whole}{fixed}" or "0"), under)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _with_base(text: str) -> str:
    """Numbers with a base as ``1010_{2}``, in any of the usual spellings."""
    text = _SUBSCRIPT_TEXT.sub(lambda m: "_{" + (m[1] or m[2] or "").strip() + "}", text)
    bare = re.sub(r" +", " ", TEXT.sub(r" \1 ", text)).replace(" _", "_").strip()
    if prefixed := _PREFIXED.fullmatch(bare):
        bases = zip(prefixed.groups(), (2, 8, 16), strict=True)
        return next(f"{digits.upper()}_{{{base}}}" for digits, base in bases if digits)
    if re.match(r"\(?\d{1,3}(?:,\d{3})+\)?[_ ]", bare):
        bare = bare.replace(",", "")
    if letters := _HEXADECIMAL_LETTERS.fullmatch(bare):
        return f"{letters[1].upper()}_{{16}}"
    if whole := _IN_BASE.fullmatch(bare):
        return _in_base(whole)
    return _IN_BASE.sub(_in_base, text)


def _in_base(number: re.Match[str]) -> str:
    digits, base = (part for part in number.groups() if part is not None)
    value = int(base) if base.isdigit() else 16 if base == "sixteen" else _BASES.index(base) + 2
    return f"{digits.upper()}_{{{value}}}"


def _only_member(text: str) -> str:
    r"""Take the pair out of a set with one pair: math-verify does not take these for equal."""
    if enclosing(text) in SETS:
        inner = re.sub(r"^\\?\{|\\?\}$", "", text).strip()
        if (enclosing(inner) or ("", ""))[0] in ("(", "["):
            return inner
    return text


# --- Brackets.

SETS = (("\\{", "\\}"), ("{", "}"))
_BRACKET = re.compile(r"\\\{|\\\}|[()\[\]{}]")


def enclosing(text: str) -> tuple[str, str] | None:
    r"""The brackets around all of ``text``, such as ``("(", "]")``; None if it has none.

    Any closing bracket closes any opening one, as in intervals. Braces without a backslash count only around
    a list, as in ``{1,2}``.
    """
    depth = 0
    first = last = None
    for bracket in _BRACKET.finditer(text):
        opens = bracket[0] in ("(", "[", "{", "\\{")
        if opens and depth == 0:
            if first is not None:
                return None
            first = bracket
        depth += 1 if opens else -1
        if depth < 0:
            return None
        last = bracket
    if first is None or last is None or depth or first.start() or last.end() != len(text):
        return None
    return None if first[0] == "{" and "," not in text else (first[0], last[0])


def members(text: str) -> list[str]:
    """The parts of ``text`` between commas or semicolons outside brackets."""
    parts = []
    depth = start = 0
    for token in re.finditer(r"\\\{|\\\}|[()\[\]{},;]", text):
        if token[0] in ",;":
            if depth == 0:
                parts.append(text[start : token.start()].strip())
                start = token.end()
        else:
            depth += 1 if token[0] in ("(", "[", "{", "\\{") else -1
    return [*parts, text[start:].strip()]


# --- Comparisons of text and of numbers.

APART = re.compile(r"(?<=\d) +(?=[\d.])")
_IN_BRACES = re.compile(r"(?:(?<=\\\\)|(?<=[&=,(]))\{([-+]?[\w.]+)\}")  # braces that hold nothing together


@lru_cache(maxsize=20_000)
def canonical(text: str) -> str:
    """``text`` without blanks, for a comparison of texts. A blank between two digits stays."""
    text = APART.sub("\0", normalize(text)).replace(" ", "").replace("\0", " ")
    return _IN_BRACES.sub(r"\1", text)


_DECIMAL = re.compile(r"[-+]? ?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)")
_POWER_OF_TEN = re.compile(r"(.*?)\\times 10\^\{(-?\d{1,3})\}")
_RATIO = re.compile(r"([-+]?) ?(?:\\frac\{([-+]?\d+)\}\{(\d+)\}|(\d+) ?/ ?(\d+))")


def number(text: str) -> tuple[Fraction, bool] | None:
    """(value, whether it is written as a fraction) of a normalized number; None for any other text."""
    ten = Fraction(1)
    if power := _POWER_OF_TEN.fullmatch(text):
        text, exponent = power[1].strip(), int(power[2])
        ten = Fraction(10) ** exponent
    if _DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", "").replace(" ", "")) * ten, False
    if ratio := _RATIO.fullmatch(text):
        over, under = (int(part) for part in ratio.groups()[1:] if part is not None)
        return (Fraction(over, under) * (-1 if ratio[1] == "-" else 1), True) if under and ten == 1 else None
    return None


def numbers_equal(gold: str, answer: str) -> bool | None:
    """Whether two normalized numbers are equal; None if one of the texts is no number.

    Also None for a decimal that differs from a fraction: it may be rounded, so math-verify has to decide.
    """
    one, other = number(gold), number(answer)
    if one is None or other is None:
        return None
    if one[0] == other[0]:
        return True
    return None if one[1] != other[1] and {one[0].denominator, other[0].denominator} != {1} else False


def same_word(gold: str, answer: str) -> bool:
    """True if both texts are the same single word, such as ``no`` and ``No``."""
    words = [TEXT.sub(r"\1", text).strip(" $.()*") for text in (gold, answer)]
    small = all(word.isalpha() and len(word) > 1 and (word.islower() or word.istitle()) for word in words)
    return small and words[0].casefold() == words[1].casefold()


def base_suffixes(text: str) -> list[str]:
    """The number bases written in a normalized ``text``, sorted."""
    return sorted(re.findall(r"(?<![\w.])[0-9A-F]*\d[0-9A-F]*_\{(\d+)\}", text))


def digits_in_base(text: str) -> str | None:
    """The digits of ``text`` if it is a single normalized number with a base (``101_2``); else None."""
    whole = re.fullmatch(r"([0-9A-F]+)_\{\d+\}", text)
    return whole[1] if whole else None
