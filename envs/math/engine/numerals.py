"""Numbers in words, and numbers with a base such as 1010_2, ``1010 (base two)`` or ``0b1010``."""

from __future__ import annotations

import re

from r3l.envs.math.engine.latex import TEXT

# --- Words, and their ordinals.

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
_UNITS = {word: value for value, word in enumerate(SMALL)}
_TENS = {word: 10 * value for value, word in enumerate(TENS, 2)}
_THOUSANDS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def number_in_words(text: str) -> str:
    """A text that is one whole number in words, below 10^15, in digits; other texts unchanged.

    Ordinals too: ``24`` for twenty-four and for twenty-fourth. Not read are fractions and ordinals of a
    hundred and more alone (a hundredth may be 1/100), and words with commas, which may be a list.
    """
    *words, last = re.split("[ -]", text.casefold())
    last = _ORDINALS.get(last) or (re.sub("ieth$", "y", last) if last.endswith("ieth") else _without_th(last))
    value = _value_of_words([*words, last])
    return text if value is None else str(value)


def number_before(text: str) -> tuple[str, str]:
    """(digits, rest) of a text that begins with a cardinal number in words: ("5", "dollars"); else two "".

    The number is the longest one that can be read; rest is not empty.
    """
    words = text.split(" ")
    for end in range(len(words) - 1, 0, -1):
        value = _value_of_words(re.split("[ -]", " ".join(words[:end]).casefold()))
        if value is not None:
            return str(value), " ".join(words[end:])
    return "", ""


def _without_th(word: str) -> str:
    """The cardinal of an ordinal below a hundred; other words unchanged."""
    cardinal = word.removesuffix("th")
    return cardinal if cardinal in _UNITS else word


def _value_of_words(words: list[str]) -> int | None:
    """The number that cardinal words name, such as two hundred and five thousand; None if it is no number."""
    if words[0] == "a" and words[1:2] and words[1] in ("hundred", *_THOUSANDS):
        words = ["one", *words[1:]]
    total = 0  # of the groups that end with thousand, million ...
    smallest = 10**15  # scale of the last of them
    group = 0  # below 1,000, or up to 99 hundred
    room = 10**4  # the next word of this group has to be smaller
    for position, word in enumerate(words):
        after = words[position - 1] if position else ""
        if word == "and":
            if after not in ("hundred", *_THOUSANDS) or position + 1 == len(words):
                return None
        elif word in _TENS or word in _UNITS:
            value = _TENS.get(word) or _UNITS[word]
            # Zero stands alone; after tens only one to nine may follow.
            if value == 0 and len(words) > 1 or value >= room:
                return None
            group += value
            room = 10 if word in _TENS else 0
        elif word == "hundred":
            if not 0 < group < (10 if total else 100) or after == "and":
                return None
            group *= 100
            room = 100
        elif word in _THOUSANDS:
            if not 0 < group < 1000 or _THOUSANDS[word] >= smallest or after == "and":
                return None
            smallest = _THOUSANDS[word]
            total += group * smallest
            group = 0
            room = 10**4
        else:
            return None
    return total + group


# --- Bases: one spelling, and its parts.

_BASES = (*SMALL[2:13], "sixteen")  # as words
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
_PREFIXED = re.compile(r"0(?:b([01]+)|o([0-7]+)|x([0-9A-Fa-f]+))")


def with_base(text: str) -> str:
    """``text`` with its numbers that name a base, in any of the usual spellings, as ``1010_{2}``."""
    # The complete text may be one number: 0b1010, 1,010_2 or only hexadecimal letters.
    text = _SUBSCRIPT_TEXT.sub(lambda m: "_{" + (m[1] or m[2] or "").strip() + "}", text)
    bare = re.sub(r" +", " ", TEXT.sub(r" \1 ", text)).replace(" _", "_").strip()
    prefixed = _PREFIXED.fullmatch(bare)
    if prefixed:
        for digits, base in zip(prefixed.groups(), (2, 8, 16), strict=True):
            if digits:
                return f"{digits.upper()}_{{{base}}}"
    if re.match(r"\(?\d{1,3}(?:,\d{3})+\)?[_ ]", bare):
        bare = bare.replace(",", "")
    letters = _HEXADECIMAL_LETTERS.fullmatch(bare)
    if letters:
        return f"{letters[1].upper()}_{{16}}"
    whole = _IN_BASE.fullmatch(bare)
    if whole:
        return _in_base(whole)

    # Else replace the numbers with a base in the text.
    return _IN_BASE.sub(_in_base, text)


def _in_base(number: re.Match[str]) -> str:
    """A match of ``_IN_BASE`` as ``1010_{2}``."""
    digits, base = (part for part in number.groups() if part is not None)
    if base.isdigit():
        value = int(base)
    elif base == "sixteen":
        value = 16
    else:
        value = _BASES.index(base) + 2
    return f"{digits.upper()}_{{{value}}}"


def base_suffixes(text: str) -> list[str]:
    """The bases that numbers in a normalized ``text`` name, as texts, sorted: ["2"] for ``101_{2}``."""
    return sorted(re.findall(r"(?<![\w.])[0-9A-F]*\d[0-9A-F]*_\{(\d+)\}", text))


def digits_in_base(text: str) -> str | None:
    """The digits of ``text`` if it is a single normalized number with a base (``101_{2}``); else None."""
    whole = re.fullmatch(r"([0-9A-F]+)_\{\d+\}", text)
    return whole[1] if whole else None
