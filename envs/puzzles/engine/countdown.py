"""Countdown: an expression that uses each given number once and has the target as its value.

``data``: ``numbers``, ``target``, ``style``, and ``expression``, the generator's solution.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from pydantic import Field
from r3l.envs.puzzles.engine import released
from r3l.envs.puzzles.engine.base import (
    CORRECT,
    MAX_ANSWER,
    Data,
    Difficulty,
    Puzzle,
    PuzzleProblem,
    WorkedSolution,
    item,
    range_of,
    shuffled,
)

from r3l.core.errors import DataError

_LIMITS = ("min_numbers", "max_numbers", "min_value", "max_value", "min_target", "max_target", "operators")


class CountdownDifficulty(Difficulty):
    """How many numbers a problem has, the range of their values and of the target, and the operators.

    ``operators``: the ones with which the generator makes the target.
    """

    min_numbers: int = Field(ge=2)
    max_numbers: int = Field(ge=2, le=6)
    min_value: int = Field(ge=1)
    max_value: int
    min_target: int = Field(ge=1)
    max_target: int
    operators: tuple[str, ...]


class Countdown(Puzzle):
    """The puzzle: reach a target with given numbers, each of them used exactly once.

    An answer is one expression of whole numbers, ``+ - * /`` and brackets, without ``=``.
    """

    name = "countdown"
    difficulty = CountdownDifficulty

    def generate(self, index: int, difficulty: CountdownDifficulty) -> PuzzleProblem:
        generated = item(self.name, difficulty.seed, index, **range_of(difficulty, *_LIMITS))
        metadata = generated["metadata"]
        data = {key: metadata[key] for key in ("numbers", "target", "expression")}
        data["style"] = difficulty.style
        text = generated["question"]
        if difficulty.style == "compact":
            text = f"Numbers {' '.join(map(str, data['numbers']))} : make {data['target']}"
        return PuzzleProblem(text, generated["answer"], data, f"{len(data['numbers'])} numbers")

    def key(self, data: Data) -> str:
        """The sorted numbers and the target."""
        return f"{sorted(data['numbers'])} {data['target']}"

    def verify(self, data: Data, answer: str) -> bool:
        """Whether the expression uses each given number once, no other, and its value is the target."""
        return self.critique(data, answer) == CORRECT

    def verify_released(self, data: Data, answer: str) -> bool:
        """Whether R3L's verifier accepts ``answer``: it allows ``**``, ``//`` and a value near the target."""
        return released.solves(answer, data["numbers"], data["target"])

    def critique(self, data: Data, answer: str) -> str:
        """Say what is wrong with an answer in one sentence, or CORRECT.

        It is no expression, divides by zero, uses numbers too often or too rarely, or has the wrong value.
        """
        expression = parse(answer) if len(answer) <= MAX_ANSWER else None
        if expression is None:
            return "the answer is not one expression of whole numbers, operators and brackets"
        used = Counter(numbers(expression))
        given = Counter[int](data["numbers"])
        wrong = []
        for n in sorted(used | given):
            if used[n] != given[n]:
                wrong.append(f"{n} used {used[n]} times, given {given[n]} times")
        if wrong:
            return f"numbers used wrongly: {'; '.join(wrong)}"
        value = worth(expression)
        if value is None:
            return "the expression divides by zero"
        if value != data["target"]:
            return f"the expression is worth {value}, not {data['target']}"
        return CORRECT

    def constant_answers(self, data: Data) -> dict[str, str]:
        """Two expressions of all numbers in the given order: {"sum": "1 + 2 ...", "product": "1 * 2 ..."}."""
        given = [str(number) for number in data["numbers"]]
        return {"sum": " + ".join(given), "product": " * ".join(given)}

    def work(self, data: Data) -> WorkedSolution:
        """Worked solution: the sum of the numbers, by how much it is too large, and what to subtract instead.

        If plus and minus do not suffice, it computes the generator's expression, operation by operation.
        """
        given = data["numbers"]
        target = data["target"]
        lines: list[str] = []
        off = _to_take_off(given, target)
        if off is None:
            _evaluate(_parsed(data), lines)
            return WorkedSolution(lines, data["expression"])

        # Add all numbers. Subtracting a number instead lowers the total by twice the number, so those to
        # subtract make half of the excess.
        total = given[0]
        for number in given[1:]:
            lines.append(f"{total} + {number} = {total + number}")
            total += number
        lines.append(f"{total} - {target} = {total - target}, half {(total - target) // 2}")
        listed = " and ".join(map(str, off)) or "nothing"
        lines.append(f"take off {listed}")
        added = list(given)
        for number in off:  # keep the first ones of equal numbers
            del added[len(added) - 1 - added[::-1].index(number)]
        return WorkedSolution(lines, " - ".join([" + ".join(map(str, added)), *map(str, off)]))

    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """Problems with one number or the target misread, such that plus and minus still suffice.

        If they do not suffice for ``data``, one operator of the generator's expression is misread.
        """
        given = data["numbers"]
        misread: list[Data] = []
        if _to_take_off(given, data["target"]) is None:
            for variant in _swaps(_parsed(data)):
                if worth(variant) is not None:
                    misread.append({**data, "expression": _write(variant)})
        else:
            # Another target that plus and minus reach, or one number changed by at most two.
            targets = {sum(given) - 2 * sum(subset) for subset in _subsets(given)}
            misread += [{**data, "target": t} for t in sorted(targets) if 0 < t != data["target"]]
            for k, number in enumerate(given):
                for off in (-2, -1, 1, 2):
                    changed = [*given[:k], number + off, *given[k + 1 :]]
                    if number + off > 0 and _to_take_off(changed, data["target"]) is not None:
                        misread.append({**data, "numbers": changed})
        yield from shuffled(misread, rng)


def _parsed(data: Data) -> Expression:
    """The generator's expression.

    Raises DataError if it cannot be parsed, which would be a defect of the data.
    """
    expression = parse(data["expression"])
    if expression is None:
        raise DataError(f"countdown: {data['expression']!r} is no expression")
    return expression


def _to_take_off(given: Sequence[int], target: int) -> tuple[int, ...] | None:
    """The fewest numbers to subtract instead of adding so that the sum is ``target``; None if impossible."""
    return next((subset for subset in _subsets(given) if sum(given) - 2 * sum(subset) == target), None)


def _subsets(given: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All choices of numbers except the complete one, small ones first."""
    return itertools.chain.from_iterable(itertools.combinations(given, size) for size in range(len(given)))


def _evaluate(expression: Expression, lines: list[str]) -> Fraction:
    """The value of an expression. Appends a line for each operation to ``lines``, inner ones first."""
    if isinstance(expression, Number):
        return Fraction(expression.value)
    left = _evaluate(expression.left, lines)
    right = _evaluate(expression.right, lines)
    value = apply(expression.operator, left, right)
    lines.append(f"{left} {expression.operator} {right} = {value}")
    return value


def _swaps(expression: Expression) -> list[Expression]:
    """All versions of ``expression`` with one operator replaced.

    Never by a division, which may be by zero.
    """
    if isinstance(expression, Number):
        return []
    swaps: list[Expression] = []
    if not expression.sign:
        swaps += [replace(expression, operator=o) for o in "+-*" if o != expression.operator]
    swaps += [replace(expression, left=changed) for changed in _swaps(expression.left)]
    swaps += [replace(expression, right=changed) for changed in _swaps(expression.right)]
    return swaps


def _write(expression: Expression) -> str:
    if isinstance(expression, Number):
        return str(expression.value)
    right = _bracketed(expression.right)
    if expression.sign:
        return f"-{right}"
    return f"{_bracketed(expression.left)} {expression.operator} {right}"


def _bracketed(expression: Expression) -> str:
    text = _write(expression)
    return f"({text})" if isinstance(expression, BinaryOperation) else text


MAX_TOKENS = 100  # our choice: six numbers with brackets around each pair have 21; also bounds the nesting
_TOKENS = re.compile(r"\s*(?:([0-9]{1,6})|([-+*/()]))")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True)
class Number:
    """A whole number as written."""

    value: int


@dataclass(frozen=True)
class BinaryOperation:
    """An operation on two operands, ``left operator right``.

    A minus sign before an operand is ``0 - operand``, with ``sign`` set.
    """

    operator: str
    left: Expression
    right: Expression
    sign: bool = False


Expression = Number | BinaryOperation


def parse(text: str) -> Expression | None:
    """Parse ``text``, which must be one expression and nothing else; None otherwise.

    An expression has whole numbers of at most 6 digits, ``+ - * /``, signs ``-`` and brackets, at most
    MAX_TOKENS in all.
    """
    # Split the text into tokens.
    tokens: list[str] = []
    text = text.strip()
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None or len(tokens) == MAX_TOKENS:
            return None
        tokens.append(match[1] or match[2])
        place = match.end()
    if not tokens:
        return None

    # Parse them: a sum, with nothing after it.
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
    """The exact value of an expression; None if it divides by zero."""
    try:
        return _value(expression)
    except ZeroDivisionError:
        return None


def _value(expression: Expression) -> Fraction:
    if isinstance(expression, Number):
        return Fraction(expression.value)
    return apply(expression.operator, _value(expression.left), _value(expression.right))


def apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    """The value of ``left operator right`` for ``+ - * /``. Raises ZeroDivisionError for a division by 0.

    ``operator`` is not checked: any other text divides.
    """
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right


def _sum(tokens: list[str], rank: int) -> tuple[Expression, list[str]]:
    """Parse operands joined by operators of at least ``rank``; the expression and the tokens after it.

    Operators of one rank associate to the left. Raises ValueError or IndexError for a syntax error.
    """
    left, tokens = _operand(tokens)
    while tokens and _RANK.get(tokens[0], 0) >= rank:
        operator = tokens[0]
        right, tokens = _sum(tokens[1:], _RANK[operator] + 1)
        left = BinaryOperation(operator, left, right)
    return left, tokens


def _operand(tokens: list[str]) -> tuple[Expression, list[str]]:
    """(expression, tokens after it) of a number, a bracket or a signed operand.

    Raises ValueError for an open bracket.
    """
    first, *rest = tokens
    if first == "(":
        inner, rest = _sum(rest, 1)
        if rest[0] != ")":
            raise ValueError("a bracket is not closed")
        return inner, rest[1:]
    if first == "-":
        inner, rest = _operand(rest)
        return BinaryOperation("-", Number(0), inner, sign=True), rest
    return Number(int(first)), rest
