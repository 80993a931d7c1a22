"""Guards: what math-verify 0.9.0 accepts and a reader does not, one function and one reason each.

A guard gets the two texts that math-verify gets, and returns True to refuse the pair. Whatever math-verify
accepts and no guard refuses is right (``tests/envs/math/test_guards.py``), so that a guard must be certain:
where it cannot tell, it returns False.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from r3l.envs.math.engine.normalize import enclosing, members, normalize
from r3l.envs.math.engine.numerals import base_suffixes, digits_in_base
from r3l.envs.math.engine.plain_comparison import same_word
from r3l.envs.math.engine.units import equal_numbers, measures_differ

ROUNDING = 1e-5  # relative: 0.333333 is a third, as math-verify has it


@lru_cache(maxsize=20_000)
def parsed(text: str) -> tuple[Any, ...]:
    """The expressions that math-verify reads in ``text``, put into a box; empty if it reads none. Cached."""
    from math_verify import parse

    # Without a box LaTeX is lost: 51 of MATH-500's gold answers would be read as nothing.
    return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None))


def numbers_differ(gold: str, answer: str) -> bool:
    """True if both texts are plain numbers of different value.

    math-verify rounds to six decimals, so it takes 1.5 for 1.5000001.
    """
    return equal_numbers(gold, answer) is False


def bases_differ(gold: str, answer: str) -> bool:
    """True if the answer names another base than the gold answer, or if both name one and the digits differ.

    math-verify drops the base, so it takes 4210_6 for 4210_5. A gold answer without a base is decimal. An
    answer without a base is never refused here: it may be in the base that the problem asks for.
    """
    return bases_agree(gold, answer) is False


def bases_agree(gold: str, answer: str) -> bool | None:
    """Whether two numbers agree in digits and base, such as 101_2 and 101_{2}.

    A gold answer with a base also accepts its digits without the base. None if this cannot be decided here,
    as for two numbers without a base.
    """
    gold = normalize(gold)
    answer = normalize(answer)
    expected = base_suffixes(gold)
    given = base_suffixes(answer)
    if given and expected != given:
        decimal = not expected and all(base == "10" for base in given)  # only the answer names the base: ten
        return None if decimal else False
    digits = digits_in_base(gold)
    if digits and digits == answer.upper():
        return True
    given_digits = digits_in_base(answer)
    if digits is None or given_digits is None:
        return None
    return digits == given_digits


# A digit that is the argument of a command, an index or an exponent does not belong to the next number.
_SIDE_BY_SIDE = re.compile(
    r"(?P<argument>\\[a-z]*(?:frac|binom|sqrt) ?\d?|[_^] ?)?\d+(?:\s|~|\\[,:;> ]|\\q?quad(?![a-z]))+(?=[\d.])"
)


def numbers_side_by_side(gold: str, answer: str) -> bool:
    r"""True if only one of the two texts has two numbers with a blank between them, such as ``3 4``.

    math-verify reads ``3 4`` as 3 + 4 = 7. In \frac 3 4, \log_2 3 and 2^3 5 the first digit is an argument,
    so these do not count.
    """

    def side_by_side(text: str) -> bool:
        return any(not found["argument"] for found in _SIDE_BY_SIDE.finditer(text))

    return side_by_side(gold) != side_by_side(answer)


def brackets_differ(gold: str, answer: str) -> bool:
    r"""True if tuples, intervals or sets differ in their brackets. math-verify takes (1,2) for \{1,2\}.

    False if a list has no brackets (1,2 may be a tuple or a set), or if the numbers of members differ.
    Brackets around a list of tuples do not matter: \{(6,3),(9,3)\} is (6,3),(9,3).
    """
    expected = _bracketed(normalize(gold))
    given = _bracketed(normalize(answer))
    known = len(expected) == len(given) and None not in expected and None not in given
    return known and sorted(map(str, expected)) != sorted(map(str, given))


def _bracketed(text: str) -> list[tuple[str, str] | None]:
    """The brackets of each member of a list, or of all of ``text``; None for a member without brackets."""
    parts = members(text)
    around = enclosing(text)
    if len(parts) == 1 and around:
        inside = text[len(around[0]) : -len(around[1])]
        inner = [enclosing(part) for part in members(inside)]
        if None not in inner:
            return inner
    brackets = [enclosing(part) for part in parts]
    return [("\\{", "\\}") if pair == ("{", "}") else pair for pair in brackets]


_SCALES = re.compile(
    r"\b(?:half|halves|(?:quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s"
    r"|(?:eleventh|twelfth|[a-z]+teenth|[a-z]+tieth|millionth)s"
    r"|(?:dozen|hundred|thousand|million|billion|trillion)s?)\b"
)


def scales_differ(gold: str, answer: str) -> bool:
    r"""True if the texts differ in words that multiply a number, such as half, dozen and millions.

    math-verify ignores words, so it takes 2\text{ dozen} for 2.
    """
    return _SCALES.findall(gold.casefold()) != _SCALES.findall(answer.casefold())


_HALF_OF_DAY = re.compile(r"\d:\d\d\s*([ap])m\Z")


def halves_of_day_differ(gold: str, answer: str) -> bool:
    """True if one time is before noon and the other after. math-verify takes 3:30 am for 3:30 pm."""
    one = _HALF_OF_DAY.search(normalize(gold))
    other = _HALF_OF_DAY.search(normalize(answer))
    return bool(one and other and one[1] != other[1])


_WORDS = re.compile(r"\\(?:text|textrm|textbf|textit|mbox|hbox|mathrm|operatorname)\s*\{[^{}]*\}")
# The name of what is computed: x =, f(x) =, a_n =, P(x, y) =, f^{-1}(x) =.
_NAMED = re.compile(
    r"^\s*\$?\\?[A-Za-z]+(?:_(?:\{[^{}]*\}|\w))?(?:\^\{?-1\}?)?\s*(?:\([^()=]*\))?\s*(?:=|\\in\b)(?!=)"
)


def case_differs(gold: str, answer: str) -> bool:
    """True if a symbol is a capital letter in only one of the texts. math-verify takes 2X for 2x.

    Words may be in either case, and the name before an equals sign: N(n)=2n is 2n.
    """
    if same_word(gold, answer):
        return False

    def folded(symbols: set[str]) -> set[str]:
        return {symbol.casefold() for symbol in symbols}

    # A symbol that only one text has, while the other has it in the other case.
    one = _symbols(gold)
    other = _symbols(answer)
    return bool(folded(one - other) & folded(other) or folded(other - one) & folded(one))


def _symbols(text: str) -> set[str]:
    """Letters and commands that are symbols, not parts of words."""
    text = _NAMED.sub("", _WORDS.sub(" ", text))
    commands = set(re.findall(r"\\[A-Za-z]+", text))
    runs = re.findall(r"[A-Za-z]+", re.sub(r"\\[A-Za-z]+", " ", text))
    return commands | set("".join(run for run in runs if len(run) < 4))


def beyond_rounding(gold: str, answer: str) -> bool:
    """True if both texts are numbers that differ by more than the relative tolerance ROUNDING, else False.

    Intervals, sets and tuples are compared by their members. math-verify rounds to six decimals, so it takes
    0.00000001 for 0.00000002.
    """
    expected = parsed(gold)
    given = parsed(answer)
    return bool(expected and given) and _far_apart(expected[0], given[0])


def _far_apart(one: Any, other: Any) -> bool:
    """True if two numbers, or members of two collections of equal length, differ by more than ROUNDING."""
    from sympy import Expr, FiniteSet, Interval, N, Tuple

    one = _value(one)
    other = _value(other)
    if isinstance(one, Expr) and isinstance(other, Expr):
        if not (one.is_number and other.is_number and one.is_finite and other.is_finite):
            return False
        difference = abs(N(one - other, 30))
        larger = max(abs(N(one, 30)), abs(N(other, 30)))
        return bool(difference > ROUNDING * larger)
    if isinstance(one, Interval) and isinstance(other, Interval):
        return _far_apart(one.start, other.start) or _far_apart(one.end, other.end)
    if isinstance(one, Tuple) and isinstance(other, Tuple) and len(one) == len(other):
        return any(map(_far_apart, one, other))
    if isinstance(one, FiniteSet) and isinstance(other, FiniteSet) and len(one) == len(other):
        # Sets have no order: a member is far when it is far from every member of the other.
        return any(all(_far_apart(left, right) for right in other) for left in one)
    return False


def _value(parsed: Any) -> Any:
    """The side of an equation such as x = 5 that holds the value; None for other equations."""
    from sympy import Eq, Symbol, Tuple
    from sympy.core.function import AppliedUndef

    if not isinstance(parsed, Eq):
        return parsed
    for name, value in ((parsed.lhs, parsed.rhs), (parsed.rhs, parsed.lhs)):
        if isinstance(name, (Symbol, Tuple, AppliedUndef)):
            return value
    return None


GUARDS: dict[str, Callable[[str, str], bool]] = {
    "units": measures_differ,
    "numbers": numbers_differ,
    "bases": bases_differ,
    "side by side": numbers_side_by_side,
    "brackets": brackets_differ,
    "scales": scales_differ,
    "half of day": halves_of_day_differ,
    "case": case_differs,
    "rounding": beyond_rounding,
}


def refused_by(gold: str, answer: str) -> str | None:
    """The name of the first guard of this module that tells ``answer`` from ``gold``, or None."""
    for name, refuses in GUARDS.items():
        if refuses(gold, answer):
            return name
    return None
