"""Arithmetic as text: a literal parser for whole numbers, + - * / and brackets, with bounded work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_TOKENS = 100  # ours: six numbers with brackets around every pair take 21; also bounds how deep brackets nest
_TOKENS = re.compile(r"\s*(?:([0-9]{1,6})|([-+*/()]))")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True)
class Number:
    """A whole number as written."""

    value: int


@dataclass(frozen=True)
class Operation:
    """``left operator right``; a sign before an operand is ``0 -`` it, with ``sign`` set."""

    operator: str
    left: Expression
    right: Expression
    sign: bool = False


Expression = Number | Operation


def parse(text: str) -> Expression | None:
    """The expression that a text is, all of it; None for any other text."""
    tokens = _tokens(text)
    if not tokens:
        return None
    try:
        expression, rest = _sum(tokens, 1)
    except (ValueError, IndexError):
        return None
    return expression if not rest else None


def numbers(expression: Expression) -> list[int]:
    """The numbers written in an expression, from left to right."""
    if isinstance(expression, Number):
        return [expression.value]
    left = [] if expression.sign else numbers(expression.left)
    return left + numbers(expression.right)


def worth(expression: Expression) -> Fraction | None:
    """The value of an expression; None where it divides by zero."""
    try:
        return _value(expression)
    except ZeroDivisionError:
        return None


def _value(expression: Expression) -> Fraction:
    if isinstance(expression, Number):
        return Fraction(expression.value)
    return apply(expression.operator, _value(expression.left), _value(expression.right))


def apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    """``left operator right``. Raises ZeroDivisionError."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right


def _tokens(text: str) -> list[str]:
    """The tokens of a text; none where something else stands in it or there are too many."""
    tokens: list[str] = []
    place, text = 0, text.strip()
    while place < len(text) and len(tokens) <= MAX_TOKENS:
        match = _TOKENS.match(text, place)
        if match is None:
            return []
        tokens.append(match[1] or match[2])
        place = match.end()
    return tokens if len(tokens) <= MAX_TOKENS else []


def _sum(tokens: list[str], rank: int) -> tuple[Expression, list[str]]:
    """Operands joined by operators of at least ``rank``, from the left. Raises ValueError, IndexError."""
    left, tokens = _operand(tokens)
    while tokens and _RANK.get(tokens[0], 0) >= rank:
        operator = tokens[0]
        right, tokens = _sum(tokens[1:], _RANK[operator] + 1)
        left = Operation(operator, left, right)
    return left, tokens


def _operand(tokens: list[str]) -> tuple[Expression, list[str]]:
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        inner, rest = _sum(rest, 1)
        if rest[0] != ")":
            raise ValueError("a bracket stays open")
        return inner, rest[1:]
    if first == "-":
        inner, rest = _sum(rest, 2)
        return Operation("-", Number(0), inner, sign=True), rest
    return Number(int(first)), rest
