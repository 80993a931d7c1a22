"""What a template of a game may compute: ``o``, ``o.name``, ``'text'``, ``a + b`` and ``a or b``; nothing else.

The grammar of TextWorld allows any Python expression. A game file is data, so these four forms, all that the
published grammar uses, are read as a tree and every other one is refused by name.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from r3l.core.errors import DataError, EngineError

MAX_LENGTH = 200  # ours: the longest published expression has 28 characters; also bounds how deep one nests
ATTRIBUTES = ("name", "id", "type", "definite", "indefinite")


@dataclass(frozen=True)
class Entity:
    """A thing of the game, as templates see it."""

    id: str
    type: str
    name: str
    definite: str = "the"
    indefinite: str = "a"


@dataclass(frozen=True)
class Literal:
    """Text between quotes."""

    value: str


@dataclass(frozen=True)
class Attribute:
    """``variable.attribute``; a variable alone is its name."""

    variable: str
    attribute: str


@dataclass(frozen=True)
class Join:
    """``left + right``."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class FirstOf:
    """``left or right``: the first that is not empty."""

    left: Expression
    right: Expression


Expression = Literal | Attribute | Join | FirstOf


def parse_expression(text: str) -> Expression:
    """The expression of a template. Raises DataError for every other form."""
    if len(text) > MAX_LENGTH:
        raise DataError(f"an expression of {len(text)} characters; the most that is read is {MAX_LENGTH}")
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{text!r} is refused: {error}") from error


def evaluate(expression: Expression, entities: Mapping[str, Entity]) -> str:
    """Its text where ``entities`` are the bound variables. Raises EngineError for one that is not bound."""
    match expression:
        case Literal(value):
            return value
        case Attribute(variable, attribute):
            if variable not in entities:
                raise EngineError(f"The game's grammar uses {variable!r}, which nothing binds; its file is damaged.")
            return str(getattr(entities[variable], attribute))
        case Join(left, right):
            return evaluate(left, entities) + evaluate(right, entities)
        case FirstOf(left, right):
            return evaluate(left, entities) or evaluate(right, entities)


def _read(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value=str(value)):
            return Literal(value)
        case ast.Name(id=variable):
            return Attribute(variable, "name")
        case ast.Attribute(value=ast.Name(id=variable), attr=attribute) if attribute in ATTRIBUTES:
            return Attribute(variable, attribute)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return Join(_read(left), _read(right))
        case ast.BoolOp(op=ast.Or(), values=[first, *others]):
            expression = _read(first)
            for other in others:
                expression = FirstOf(expression, _read(other))
            return expression
    raise ValueError(f"a template may use a variable, its {', '.join(ATTRIBUTES)}, quoted text, + and or")
