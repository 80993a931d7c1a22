"""Comparison of answers as texts and as numbers, without math-verify."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from r3l.envs.math.engine.latex import TEXT
from r3l.envs.math.engine.normalize import normalize

APART = re.compile(r"(?<=\d) +(?=[\d.])")
_IN_BRACES = re.compile(r"(?:(?<=\\\\)|(?<=[&=,(]))\{([-+]?[\w.]+)\}")  # braces that hold nothing together


@lru_cache(maxsize=20_000)
def canonical(text: str) -> str:
    """The form of ``text`` in which texts are compared: normalized, without most blanks and braces; cached.

    :func:`normalize` makes spellings of LaTeX and of numbers equal and removes a final full stop. Then blanks
    are removed except between digits, and braces around a single term.
    """
    text = APART.sub("\0", normalize(text)).replace(" ", "").replace("\0", " ")
    return _IN_BRACES.sub(r"\1", text)


_DECIMAL = re.compile(r"[-+]? ?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)")
_POWER_OF_TEN = re.compile(r"(.*?)\\times 10\^\{(-?\d{1,3})\}")
_RATIO = re.compile(r"([-+]?) ?(?:\\frac\{([-+]?\d+)\}\{(\d+)\}|(\d+) ?/ ?(\d+))")


def number(text: str) -> tuple[Fraction, bool] | None:
    """(exact value, whether it is written as a fraction) of a normalized number; None for any other text.

    A fraction times a power of ten, and one with denominator 0, are other texts.
    """
    ten = Fraction(1)
    power = _POWER_OF_TEN.fullmatch(text)
    if power:
        text = power[1].strip()
        ten = Fraction(10) ** int(power[2])
    if _DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", "").replace(" ", "")) * ten, False
    ratio = _RATIO.fullmatch(text)
    if ratio:
        over, under = (int(part) for part in ratio.groups()[1:] if part is not None)
        if under and ten == 1:
            sign = -1 if ratio[1] == "-" else 1
            return sign * Fraction(over, under), True
    return None


def numbers_equal(gold: str, answer: str) -> bool | None:
    """True if two normalized numbers are equal, False if not, None if this cannot be decided here.

    That is the case if one of the texts is no number, or for a decimal that differs from a fraction: it may
    be rounded, so math-verify has to decide.
    """
    one = number(gold)
    other = number(answer)
    if one is None or other is None:
        return None
    if one[0] == other[0]:
        return True
    whole = one[0].denominator == other[0].denominator == 1
    if one[1] == other[1] or whole:
        return False
    return None


def same_word(gold: str, answer: str) -> bool:
    """True if both texts are the same word of two or more letters, in small letters or capitalised.

    ``no`` and ``No`` are the same word; single letters and ``NO`` do not count as words.
    """
    words = [TEXT.sub(r"\1", text).strip(" $.()*") for text in (gold, answer)]
    small = all(word.isalpha() and len(word) > 1 and (word.islower() or word.istitle()) for word in words)
    return small and words[0].casefold() == words[1].casefold()
