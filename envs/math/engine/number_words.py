"""Numbers in words, from zero to ninety-nine, and their ordinals."""

from __future__ import annotations

import re

SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# Ordinals that are not their cardinal with th.
_ORDINALS = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
}


def number_in_words(text: str) -> str:
    """``24`` for twenty-four and twenty-fourth; other texts unchanged."""
    *tens, last = re.split("[ -]", text.casefold())
    cardinal = _ORDINALS.get(last) or re.sub("ieth$", "y", last).removesuffix("th")
    if not tens and cardinal in TENS:
        return str(20 + 10 * TENS.index(cardinal))
    if cardinal not in SMALL or len(tens) > 1:
        return text
    value = SMALL.index(cardinal)
    if tens:
        if tens[0] not in TENS or not 0 < value < 10:
            return text
        value += 20 + 10 * TENS.index(tens[0])
    return str(value)
