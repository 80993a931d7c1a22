"""Rewrite spellings that math-verify does not read; find the brackets and the members of an answer.

math-verify 0.9.0 reads LaTeX. It does not read unicode mathematics (``√3``, ``½``, ``60°``), repeating
decimals, ``1.5e3``, ordinals, compound units, or a number base in words. ``normalize`` rewrites these and
changes no value.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from r3l.envs.math.engine.latex import as_latex, without_layout
from r3l.envs.math.engine.numerals import number_in_words, with_base

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
# 3:30 p.m., 3:30\text{ PM}
_TIME_OF_DAY = re.compile(
    r"(\d:\d\d) *(?:\\(?:text|textrm|mathrm|mbox) ?\{)? *([ap])\.? ?m\b\.? *\}?\Z", re.IGNORECASE
)
# 1.5 million, 1.5\text{ million}, 1.5\text{ million dollars}
_MILLIONS = re.compile(
    r"(?<![\w.,/^])(\d[\d,]*(?:\.\d+)?) ?(\\(?:text|textrm|mathrm|mbox) ?\{)? ?"
    r"(hundred|thousand|million|billion|trillion)s?\b"
)
_EMPTY_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox) ?\{ *\}")
_TIMES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
# 5th, 5-th, 5^{th}, 5^{\text{th}}
_ORDINAL = re.compile(
    r"(?<=\d)(?: ?[\^-])? ?\{? ?(?:\\(?:text|textrm|mathrm|mbox|textsuperscript) ?\{ ?)?"
    r"(?:st|nd|rd|th)(?![A-Za-z])[ }]*"
)
# \sqrt{-4}, where nothing after or before it takes a part of the product \sqrt{4} i
_IMAGINARY = re.compile(r"(?<!/)(?<!/ )\\sqrt\{ ?- ?(\d{1,30}) ?\}(?! ?[\^!])")
# 6i, which math-verify takes for another symbol than 6 i
_TIMES_I = re.compile(r"(?<=\d)i(?![A-Za-z])")
_FUNCTION = re.compile(r"\\(?!(?:sqrt|frac|cdot|times|pm|mp|pi)(?![A-Za-z]))[A-Za-z]")


@lru_cache(maxsize=20_000)
def normalize(text: str) -> str:
    """``text``, an answer without its box, in a spelling that math-verify reads; same value. Cached."""

    def improper(mixed: re.Match[str]) -> str:
        whole, over, under = (int(digits) for digits in mixed.groups() if digits is not None)
        return f"\\frac{{{whole * under + over}}}{{{under}}}"

    text = without_layout(as_latex(text))

    # Repeating decimals come first: their dots are no full stop.
    text = _CONTINUED.sub(_continued, _REPEATING.sub(_repeating, text))
    text = text.rstrip(".,;: ").strip()
    if _LEADING.match(text):
        text = _LEADING.sub("", text, count=1).strip()

    # Thousands come before mixed numbers: both have a blank between digits.
    text = _THOUSANDS.sub(lambda m: m[1] + m[2].replace(" ", ""), text)
    text = _TIME_OF_DAY.sub(lambda m: f"{m[1]} {m[2].lower()}m", text)
    text = _EMPTY_TEXT.sub("", _MILLIONS.sub(_in_digits, text))
    text = _POINT_AT_END.sub("", text)
    text = _MIXED.sub(improper, text)  # math-verify reads only some spellings of 1 3/4
    text = _SCIENTIFIC.sub(lambda m: f"{m[1]}\\times 10^{{{int(m[2])}}}", text)
    text = _TIMES_TEN.sub(lambda m: f"\\times 10^{{{int((m[1] or m[2]).replace(' ', ''))}}}", text)

    # Marks after a number, at last the base, whose digits may be letters.
    text = _DEGREES.sub(r"^{\\circ}", _ANGLE.sub(r"\1^{\\circ}", text))
    text = _ORDINAL.sub(" ", text).strip()
    text = with_base(number_in_words(text))
    text = _TIMES_I.sub(" i", text)
    if not _FUNCTION.search(text):
        text = _IMAGINARY.sub(_imaginary, text).strip()

    # math-verify does not take a set with one pair for equal to the pair.
    if enclosing(text) in SETS:
        inner = re.sub(r"^\\?\{|\\?\}$", "", text).strip()
        if (enclosing(inner) or ("", ""))[0] in ("(", "["):
            return inner
    return text


def _imaginary(root: re.Match[str]) -> str:
    r"""\sqrt{-4} as 2 i, \sqrt{-3} as \sqrt{3} i, with a sign of multiplication after another factor."""
    whole = isqrt(int(root[1]))
    if whole**2 != int(root[1]):
        return f"\\sqrt{{{root[1]}}} i"
    if whole == 1:
        return " i"
    follows = re.search(r"[\w)}] ?\Z", root.string[: root.start()])
    return f"\\cdot {whole} i" if follows else f"{whole} i"


def _in_digits(scaled: re.Match[str]) -> str:
    """1.5 million as 1500000."""
    value = Fraction(scaled[1].replace(",", "")) * _TIMES[scaled[3]]
    return f"{value}{scaled[2] or ''}" if value.denominator == 1 else scaled[0]


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


# --- Brackets.

SETS = (("\\{", "\\}"), ("{", "}"))
_BRACKET = re.compile(r"\\\{|\\\}|[()\[\]{}]")


def enclosing(text: str) -> tuple[str, str] | None:
    r"""The brackets around all of ``text``, such as ``("(", "]")``; None if it has none.

    Any closing bracket closes any opening one, as in intervals. Braces without a backslash count only around
    a list, as in ``{1,2}``.
    """
    # Find the first opening bracket and the last closing one; brackets side by side enclose nothing together.
    depth = 0
    first = None
    last = None
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

    # They enclose the text if they are at its ends.
    if first is None or last is None or depth or first.start() or last.end() != len(text):
        return None
    if first[0] == "{" and "," not in text:
        return None
    return first[0], last[0]


def members(text: str) -> list[str]:
    """The parts of ``text`` between commas or semicolons outside brackets, stripped of blanks.

    A text without such a separator is the only part. Unbalanced brackets raise nothing: after one, separators
    do not count.
    """
    parts = []
    depth = 0
    start = 0
    for token in re.finditer(r"\\\{|\\\}|[()\[\]{},;]", text):
        if token[0] in ",;":
            if depth == 0:
                parts.append(text[start : token.start()].strip())
                start = token.end()
        else:
            depth += 1 if token[0] in ("(", "[", "{", "\\{") else -1
    return [*parts, text[start:].strip()]
