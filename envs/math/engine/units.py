"""Units, currencies and percentages: whether they count depends on the other answer.

``18 dollars`` and ``\\$18`` are right for 18, and 18 for ``18 dollars``, but no answer in another unit. Only
dollars and cents are converted: ``50 cents`` is right for ``\\$0.50``, not for 0.5. ``12.5%`` is right for
12.5 and for 0.125.
"""

from __future__ import annotations

import re

from r3l.envs.math.engine.latex import TEXT
from r3l.envs.math.engine.normalize import normalize
from r3l.envs.math.engine.numerals import SMALL, TENS, number_before
from r3l.envs.math.engine.plain_comparison import number, numbers_equal

_CURRENCIES = {"€": "euro", "£": "lb", "¥": "yen", "₹": "rupee", "¢": "cent"}  # lb is also "pound"
_CURRENCY = "".join(_CURRENCIES)
_BARE_DOLLAR = re.compile(r"(?<!\\)\$")
_NUMBER_PART = re.compile(r"(?:[-+*/().,\d\s{}^\[\]]|\\(?:frac|sqrt|pi|times|cdot|circ)(?![A-Za-z]))*")
_UNIT_FRACTION = re.compile(r"\\frac\{ ?([A-Za-z][A-Za-z \d^{}]*)\}\{ ?([A-Za-z][A-Za-z \d^]*)\}")
_EXPONENT = re.compile(r"\^ ?(?:\{ ?-?\d ?\}|-?\d)|(?<=m)[23](?![\w])")
_RAISED_WORD = re.compile(r"(?<=[A-Za-z]{2}) (squared|cubed)\b")
_RAISED_BEFORE = re.compile(r"\b(square|sq|cubic|cu) ([A-Za-z]+)")
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_SYMBOLS = re.compile(
    r"""[cmknd]m | [km]?g | m[lL] | dL | ft | in | yds? | mi | lbs? | oz | hrs? | mins? | secs? | ms | mph
    | kph | rpm | sq | cu | [kMG]?Hz | [kM]?Pa | atm | mol | [kMG]?eV | [kM]J | [kM]Wh? | [mk]A | [kmM]V | dB
    | rad | deg | AU | [kM]?pc | ly | yrs? | [ap]m | USD | EUR | GBP | k?cal | erg | dyn | gal | units? | per
    | square | cubic""",
    re.VERBOSE,
)
_LETTERS = re.compile("[msghNJWVAKCFLT]")
# Words that change the number before them, or offer another one, are no unit.
_NO_UNIT = re.compile(
    rf"""\b(?: {" | ".join((*SMALL, *TENS))}
    | and | n?or | not | plus | minus | mod(?:ulo)? | remainder | squared | cubed | factorial | choose | base
    | root | sqrt | sin | cos | tan | cot | sec | csc | log | exp | max | gcd | lcm | infinity
    | percent(?:age)?
    | pi | tau | alpha | beta | gamma | delta | theta | lambda | sigma | omega | phi | rho | epsilon
    | (?: dozen | hundred | thousand | million | billion | trillion )s? | half | halves
    | (?: less | more )[ ]than
    | (?: third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | eleventh | twelfth )s?
    | (?: [a-z]+teenth | [a-z]+tieth | hundredth | thousandth | millionth )s?
    | (?<!/)[b-z] )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ABBREVIATIONS = {
    "millimeter": "mm",
    "millimetre": "mm",
    "centimeter": "cm",
    "centimetre": "cm",
    "meter": "m",
    "metre": "m",
    "kilometer": "km",
    "kilometre": "km",
    "inch": "in",
    "inche": "in",
    "foot": "ft",
    "feet": "ft",
    "yard": "yd",
    "mile": "mi",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "liter": "l",
    "litre": "l",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "hour": "h",
    "hr": "h",
    "degree": "deg",
    "usd": "dollar",
    "radian": "rad",
    "milliliter": "ml",
    "ounce": "oz",
    "yr": "year",
    "kph": "km / h",
    "mph": "mi / h",
}
# Units that a reader tells apart for certain. A product or quotient of units is not judged.
MEASURES = {
    *("mm", "cm", "m", "km", "in", "ft", "yd", "mi", "mg", "g", "kg", "lb", "oz", "ml", "l"),
    *("ms", "s", "min", "h", "day", "week", "month", "year", "deg", "rad"),
    *("dollar", "cent", "euro", "yen", "rupee"),
}
_ENDS_WITH_TEXT = re.compile(TEXT.pattern + r"[\s^{}\d]*\Z")
_QUARTERS = re.compile(r"quarters?\b")  # one quarter is 1/4, while 3 quarters may be coins
_PERCENT = re.compile(r" ?(?:\\?%|(?:per ?cent|pct)\b\.?)\Z", re.IGNORECASE)


def readings(gold: str, answer: str) -> list[tuple[str, str]]:
    """Pairs (gold, answer) of normalized texts without units and percent signs; one equal pair is enough.

    Units are dropped if only one side has one, or both have the same; cents become dollars if the other side
    has dollars. A percentage compared with a plain number has two readings, the number before the sign and
    its hundredth: data sets print 12.5 % as 12.5 or as 0.125. Empty if the units certainly differ.
    """
    units = _measures(gold, answer)
    if set(units) == {"dollar", "cent"}:
        bare_gold, _, bare_answer, _ = _split_units(_in_digits(gold), _in_digits(answer))
        if units[0] == "cent":
            return [(_hundredth(bare_gold), bare_answer)]
        return [(bare_gold, _hundredth(bare_answer))]
    if measures_differ(gold, answer):
        return []

    gold = _in_digits(gold)
    answer = _in_digits(answer)
    bare_gold, gold_percent = _without_percent(gold)
    bare_answer, answer_percent = _without_percent(answer)
    if gold_percent and answer_percent:
        return [(bare_gold, bare_answer)]
    if gold_percent:
        return [(bare_gold, answer), (_hundredth(bare_gold), answer)]
    if answer_percent:
        return [(gold, bare_answer), (gold, _hundredth(bare_answer))]
    return [without_units(gold, answer)]


def _in_digits(answer: str) -> str:
    """``answer`` normalized, number words before a unit in digits: ``5 dollars`` for five dollars."""
    text = normalize(answer)
    bare = re.sub(r" +", " ", TEXT.sub(r" \1 ", text)).strip(" .")
    digits, rest = number_before(bare)
    if not digits or _QUARTERS.match(rest):
        return text
    counted = _PERCENT.fullmatch(rest) or _is_unit(rest, separated=True, letters_are_units=True)
    return f"{digits} {rest}" if counted else text


def _without_percent(text: str) -> tuple[str, bool]:
    """``text`` without a percent sign or word at its end, and whether there was one."""
    bare = re.sub(r" +", " ", TEXT.sub(r" \1", text)).strip().rstrip(".")
    number = _PERCENT.sub("", bare)
    return (number.strip(), True) if number != bare and number.strip() else (text, False)


def _hundredth(text: str) -> str:
    """A hundredth of a normalized number or expression."""
    value = number(text)
    if value is None:
        return f"({text})/100"
    hundredth = value[0] / 100
    return f"\\frac{{{hundredth.numerator}}}{{{hundredth.denominator}}}"


def without_units(gold: str, answer: str) -> tuple[str, str]:
    """Both normalized texts without their units; unchanged if both have a unit and these differ."""
    bare_gold, of_gold, bare_answer, of_answer = _split_units(gold, answer)
    if of_gold and of_answer and of_gold != of_answer:
        return gold, answer
    return bare_gold, bare_answer


def measures_differ(gold: str, answer: str) -> bool:
    r"""True if both texts are numbers with a unit of MEASURES, squared or cubed or not, and these differ.

    A currency sign is a unit, and a percent sign differs from every unit. A guard: math-verify ignores them
    all, so it takes 5 m for 5 cm, and 5 cents for \$5.
    """
    of_gold, of_answer = _measures(gold, answer)
    return "" not in (of_gold, of_answer) and of_gold != of_answer


def _measures(gold: str, answer: str) -> tuple[str, str]:
    """The unit of MEASURES or the percent sign in each of two answers as written; "" if it has none."""
    _, of_gold, _, of_answer = _split_units(_in_digits(gold), _in_digits(answer))
    return _measure(gold, of_gold), _measure(answer, of_answer)


def _measure(text: str, unit: str) -> str:
    """``unit``, the word after the number in ``text``, if it is one of MEASURES; else a sign's, or ""."""
    plain = _in_digits(text)
    if _without_percent(plain)[1]:
        return "%"
    if unit or not re.search(r"\d", plain):
        return unit if re.sub(r" \^-?\d\Z", "", unit) in MEASURES else ""
    if plain.endswith("^{\\circ}"):
        return "deg"
    # A dollar sign has a backslash, or has no second one that would close a formula.
    signs = [name for sign, name in _CURRENCIES.items() if sign in text]
    if "\\$" in text or len(_BARE_DOLLAR.findall(text)) % 2:
        signs.append("dollar")
    return signs[0] if len(signs) == 1 else ""


def _split_units(gold: str, answer: str) -> tuple[str, str, str, str]:
    """(number, unit) of both normalized texts, one after the other; a unit is "" if there is none."""
    in_text = _ENDS_WITH_TEXT.search(gold) is not None  # single letters in \text are no variables
    bare_gold, of_gold = _split_unit(gold, letters_are_units=in_text)
    numeric_gold = not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", bare_gold))
    return bare_gold, of_gold, *_split_unit(answer, letters_are_units=numeric_gold)


def _split_unit(text: str, letters_are_units: bool) -> tuple[str, str]:
    """Split ``text`` into a number and its unit; without a unit ``text`` and "".

    ``letters_are_units``: whether single letters such as m and s are units. In a gold answer without \\text,
    and in answers to one with letters, they are variables.
    """
    # One spelling of units: plain words, with ^2 and /.
    stripped = text.strip(_CURRENCY + " ")
    words = re.sub(r"\{ +|(?<=\S) +(?=\})", lambda blank: blank[0].strip(), TEXT.sub(r" \1 ", stripped))
    words = _RAISED_WORD.sub(lambda m: f"^{_POWERS[m[1]]}", _UNIT_FRACTION.sub(r" \1/\2", words))
    words = re.sub(r"(?<=[A-Za-z])\.(?= |\Z)", "", re.sub(r" +", " ", words)).strip("!* ")
    words = _RAISED_BEFORE.sub(lambda m: f"{m[2]}^{_POWERS[m[1]]}", words)

    # The number is all digits and operators at the beginning; operators at its end belong to the unit.
    end = _NUMBER_PART.match(words).end()  # type: ignore[union-attr]
    before = words[:end].rstrip()
    value = before.rstrip("(/*-{ ").removesuffix("\\cdot").rstrip()
    unit = words[len(value) :].strip().removesuffix("(").strip()

    # Degrees are a separate unit, and may be followed by the scale of a temperature.
    temperature = value.endswith("^{\\circ}")
    value = value.removesuffix("^{\\circ}").rstrip()
    if (
        not re.search(r"\d|\\pi", value)
        or value.count("{") != value.count("}")
        or value.count("(") != value.count(")")
    ):
        return text, ""
    if not unit:
        return (value, "") if temperature or stripped != text else (text, "")
    separated = words[len(value) : len(value) + 1] in " /*-^\\("
    if (temperature and unit.upper() in ("C", "F")) or _is_unit(unit, separated, letters_are_units):
        return value, _unit_name(unit)
    return text, ""


def _is_unit(unit: str, separated: bool, letters_are_units: bool) -> bool:
    """True if the words after a number are a unit, not a product of symbols such as abc or mgh."""
    # Anything but names, products, quotients and powers is no unit.
    plain = _EXPONENT.sub("", unit).replace("\\cdot", " ")
    names = re.findall(r"[A-Za-z]+", plain)
    if not names or re.search(r"[^A-Za-z /*()'.-]", plain.replace("\\mu", "").replace("\\Omega", "")):
        return False

    # Single letters may be variables; known symbols are units.
    if all(map(_LETTERS.fullmatch, names)):
        return letters_are_units and separated
    if all(_SYMBOLS.fullmatch(name) or (letters_are_units and _LETTERS.fullmatch(name)) for name in names):
        return True
    if _NO_UNIT.search(plain):
        return False

    # Any other word is a unit (apples) if it looks like a word, not like a product of variables (abc).
    word = names[0]
    run = all(ord(b) - ord(a) == 1 for a, b in zip(word, word[1:], strict=False))
    pronounceable = bool(re.search("[aeiouy]", word.lower())) and word[1:].islower()
    long_enough = len(word) >= (3 if separated else 4)
    return bool(_SYMBOLS.fullmatch(word)) or (long_enough and not run and pronounceable)


def _unit_name(unit: str) -> str:
    """The unit in lower case and in the singular, abbreviated if there is an abbreviation."""
    words = re.findall(r"[a-z]+|\^-?\d|/", re.sub(r"[{}]|(?<=\^) ", "", unit.casefold()))
    singular = (word.removesuffix("s") if len(word) > 3 else word for word in words)
    return " ".join(_ABBREVIATIONS.get(word, word) for word in singular)


def equal_numbers(gold: str, answer: str) -> bool | None:
    """Whether two answers are equal numbers in one of their :func:`readings`.

    None if math-verify has to decide: a text is no plain number, or a decimal may be a rounded fraction.
    """
    decided = [numbers_equal(*reading) for reading in readings(gold, answer)]
    if any(decided):
        return True
    return None if None in decided else False
