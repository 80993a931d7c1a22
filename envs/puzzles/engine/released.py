"""The released readers and verifiers with their defects: RLTF's for its three puzzles, R3L's for countdown.

RLTF passes a matrix to Python's ``eval``, R3L an equation. Model output is never evaluated here: a matrix is
read as a literal, an equation by arithmetic on bounded numbers. What only ``eval`` can read is wrong
(docs/audit.md, RLTF defect 8).
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

LONGEST_LITERAL = 100_000  # characters; our choice: more than 8,096 tokens hold, RLTF's longest response
MOST_BITS = 1_000_000  # of a power; our choice: larger ones take the release minutes
TOLERANCE = 1e-5  # on an equation's value (R3L, countdown)
MOVES = {short: name for name in ("right", "down", "left", "up") for short in (name, name[0])}
NO_PATH = ("infeasible", "impossible", "no path")

_BRACE = re.compile(r"[{}]")
_BARE_BOX = re.compile(r"\\boxed\s+([a-zA-Z0-9]+)")
_BETWEEN_MOVES = re.compile(r"[\s,.;]+|and")  # also inside a word: "sandup" is "s" and "up"
_NUMBER = re.compile(r"\d+")
_EQUATION = re.compile(r"[\d+\-*/().\s]+")
_UNREADABLE = (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError)


def answer_in(response: str) -> str | None:
    r"""The answer in a response as RLTF reads it: the content of the ``\boxed{...}`` that closes last.

    It may be empty. If there is no such box, the answer is the word after ``\boxed``. None if there is no
    such word either, and for any response with an unmatched closing brace.
    """
    answer: slice | None = None
    opened: list[int] = []
    for brace in _BRACE.finditer(response):
        if brace[0] == "{":
            opened.append(brace.start())
        elif not opened:
            return None
        else:
            start = opened.pop()
            if response.endswith("\\boxed", 0, start):
                answer = slice(start + 1, brace.start())
    if answer is not None:
        return response[answer]
    bare = _BARE_BOX.search(response)
    return bare[1] if bare else None


def moves(answer: str) -> list[str]:
    """The moves in an answer; other words are skipped. [] for an answer that says there is no path."""
    text = answer.lower()
    if any(words in text for words in NO_PATH):
        return []
    words = (word.strip("()[]{}\"'") for word in _BETWEEN_MOVES.split(text))
    return [MOVES[word] for word in words if word in MOVES]


def cells(answer: str) -> list[str] | None:
    """The cells of an answer that is a list of rows in Python's notation, in reading order, each as a text.

    None for any other answer.
    """
    if len(answer) > LONGEST_LITERAL:
        return None
    try:
        rows = ast.literal_eval(_expression(answer))
        if not isinstance(rows, list):
            return None
        return " ".join(str(cell) for row in rows for cell in row).split()
    except _UNREADABLE:
        return None


def solves(equation: str, numbers: Sequence[int], target: int) -> bool:
    """Whether R3L's released verifier accepts an expression for ``target`` from ``numbers`` (countdown).

    It must use each number once and have a value within TOLERANCE of the target; Python's ``**``, ``//`` and
    decimals are allowed. Never raises.
    """
    if not _EQUATION.fullmatch(equation):
        return False
    try:
        if sorted(map(int, _NUMBER.findall(equation))) != sorted(numbers):
            return False
        return abs(_value(_expression(equation)) - target) < TOLERANCE
    except _UNREADABLE:
        return False


def _expression(text: str) -> ast.expr:
    """The syntax tree of ``text``, without Python's warnings about its style."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(text.lstrip(" \t"), mode="eval").body


def _value(node: ast.expr) -> complex:
    """The value of an arithmetic expression as Python computes it: roots of negative numbers are complex.

    Raises one of _UNREADABLE for anything that is no arithmetic.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        return _value(node.operand) if isinstance(node.op, ast.UAdd) else -_value(node.operand)
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not arithmetic")


def _power(base: complex, exponent: complex) -> complex:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * exponent if abs(base) > 1 else 1
        if bits > MOST_BITS:
            raise OverflowError(f"a power of more than {MOST_BITS} bits")
    return base**exponent


_OPERATIONS: Mapping[type[ast.operator], Callable[[complex, complex], complex]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: _power,
}
