"""Expressions in a game's templates: ``o``, ``o.name``, ``'text'``, ``a + b`` and ``a or b``.

TextWorld evaluates any Python expression. Since a game file is data from elsewhere, only the forms that the
published grammar uses are parsed, into a tree; every other expression is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from r3l.core.errors import DataError, EngineError

MAX_LENGTH = 200  # our choice: the longest published one has 28 characters; bounds the depth of the tree too
ATTRIBUTES = ("name", "id", "type", "definite", "indefinite")


@dataclass(frozen=True)
class Entity:
    """An object, receptacle or location of a game, with the attributes that text templates use.

    ``definite`` and ``indefinite``: its articles.
    """

    id: str
    type: str
    name: str
    definite: str = "the"
    indefinite: str = "a"


@dataclass(frozen=True)
class Literal:
    """Quoted text."""

    value: str


@dataclass(frozen=True)
class Attribute:
    """An attribute of an entity, such as ``o.definite``; a variable alone (``o``) is its ``name``."""

    variable: str
    attribute: str


@dataclass(frozen=True)
class Join:
    """The concatenation of two texts, ``left + right``."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class FirstOf:
    """``left or right``: the first that is not empty."""

    left: Expression
    right: Expression


Expression = Literal | Attribute | Join | FirstOf


def parse_expression(text: str) -> Expression:
    """Parse an expression of a game's text templates, such as ``o.name + 's'`` (forms: see the module).

    Raises DataError for another form, or for more than MAX_LENGTH characters.
    """
    if len(text) > MAX_LENGTH:
        raise DataError(f"an expression has {len(text)} characters; the limit is {MAX_LENGTH}")
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{text!r} is not supported: {error}") from error


def evaluate(expression: Expression, entities: Mapping[str, Entity]) -> str:
    """The text of an expression. ``entities``: the entity of each variable.

    Raises EngineError for a variable without an entity.
    """
    match expression:
        case Literal(value):
            return value
        case Attribute(variable, attribute):
            if variable not in entities:
                raise EngineError(
                    f"The game's grammar uses {variable!r}, which is not bound; its file is damaged.",
                )
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
