"""Numbers in words, and numbers with a base such as 1010_2, ``1010 (base two)`` or ``0b1010``."""

from __future__ import annotations

import re

from r3l.envs.math.engine.latex import TEXT

# --- Words, from zero to ninety-nine, and their ordinals.

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
    """A text that is one number in words, from zero to ninety-nine, in digits; other texts unchanged.

    Ordinals too: ``24`` for twenty-four and for twenty-fourth.
    """
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
