"""Text generation: TextWorld's context-sensitive grammar (twl2), parsed once and rendered quickly.

The textworld package parses. Rendering is our own code, since the original parses every template again and
deep-copies its context for every symbol (98 % of a step). It follows the rules of
``textworld.envs.pddl.textgen``: the first production whose condition holds, query results in sorted order,
different placeholders bound to different entities.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from r3l.envs.alfworld.engine.expressions import Entity, Expression, evaluate, parse_expression
from r3l.envs.alfworld.engine.translate import Problem, Row, Signature

from r3l.core.errors import EngineError

Placeholder = tuple[str, str]  # name, type
Bindings = Mapping[Placeholder, str]
Query = tuple[tuple[str, tuple[Placeholder, ...]], ...]
Facts = Mapping[Signature, tuple[Row, ...]]  # rows sorted

# The grammars of two games differ only in this rule.
_TASK_RULE = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*"((?:[^"\\]|\\.)*)"\s*\}\s*\]')


@dataclass(frozen=True)
class LiteralText:
    """Text of a template that is shown unchanged."""

    value: str


@dataclass(frozen=True)
class Expand:
    """``#name#``: apply the production rule of that name."""

    name: str


@dataclass(frozen=True)
class Evaluate:
    """``o.name``: an expression over the bound entities."""

    expression: Expression


@dataclass(frozen=True)
class ForEach:
    """``{node | query}``: the node's text, repeated for each way in which current facts match the query.

    Without a query the text occurs once.
    """

    node: Expand | Evaluate
    query: Query | None


@dataclass(frozen=True)
class Listing:
    """``[{...}]``: the texts of a ``ForEach`` as an English list, with the separators of the grammar.

    Its rules ``list_separator``, ``list_last_separator`` and, without a text, ``list_empty`` are expanded.
    """

    items: ForEach


Node = LiteralText | Expand | Evaluate | ForEach | Listing
Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class Production:
    """One alternative of a grammar rule; it applies if it has no condition or its condition holds."""

    condition: Query | None
    nodes: Nodes


class World:
    """State of a game from which texts are rendered: its entities by id, and the facts that hold now.

    ``facts``: rows of entity ids by (predicate, types). The engine replaces them after each action.
    """

    def __init__(self, problem: Problem) -> None:
        self.entities = {id: Entity(id, kind, name) for id, (kind, name) in problem.entities.items()}
        self.facts: Facts = {
            (name, tuple(types)): tuple(tuple(row) for row in rows) for name, types, rows in problem.facts
        }
        self._types = tuple((name, tuple(parents)) for name, parents in problem.types)

    def answers(self, query: Query, bindings: Bindings) -> list[Bindings]:
        """All ways to extend ``bindings`` so that every fact of ``query`` holds now; [] if there is none.

        A binding maps variables of the query to entities. Texts list the results in this order.
        """
        answers: list[Bindings] = [bindings]
        for name, places in query:
            # The facts of this predicate that hold, for the wanted types and their subtypes.
            wanted = tuple(kind for _, kind in places)
            rows: list[Row] = []
            for types in _subtypes(self._types, wanted):
                rows += self.facts.get((name, types), ())

            # With nothing left to bind, keep the bindings that form a known fact; else bind to each fact.
            found: list[Bindings] = []
            bound_before = bool(answers) and all(place in answers[0] for place in places)
            for bound in answers:
                if bound_before:
                    if tuple(bound[place] for place in places) in rows:
                        found.append(bound)
                    continue
                for row in rows:
                    extended = _extend(bound, places, row)
                    if extended is not None:
                        found.append(extended)
            answers = found
        return answers


def _extend(bound: Bindings, places: tuple[Placeholder, ...], row: Row) -> Bindings | None:
    """Extend ``bound``: bind the placeholders ``places`` to the entities of the fact ``row``.

    None if a placeholder already has another entity, or an entity would have two placeholders.
    """
    added: dict[Placeholder, str] = {}
    for place, value in zip(places, row, strict=True):
        existing = bound.get(place) or added.get(place)
        if existing is None:
            if value in bound.values() or value in added.values():
                return None
            added[place] = value
        elif existing != value:
            return None
    return {**bound, **added} if added else bound


@lru_cache(maxsize=512)
def _subtypes(types: tuple[tuple[str, Row], ...], wanted: Row) -> list[Row]:
    """``wanted`` and all combinations of its subtypes, in TextWorld's order."""
    from textworld.logic import Type, TypeHierarchy

    hierarchy = TypeHierarchy()
    for name, parents in types:
        if name not in {known.name for known in hierarchy}:
            hierarchy.add(Type(name, parents))
    return [
        tuple(kind.name for kind in combination)
        for combination in hierarchy.multi_subtypes([hierarchy.get(name) for name in wanted])
    ]


class Grammar:
    """Rules and action templates of a twl2 text."""

    def __init__(
        self,
        rules: Mapping[str, tuple[Production, ...]],
        actions: Mapping[str, tuple[Nodes, Nodes]],
    ):
        self._rules = rules
        self.actions = actions  # lower-case action name -> (command template, feedback)

    def swapped(self, rule: str, text: str) -> Grammar:
        """A copy of this grammar in which ``rule`` always gives ``text``.

        Raises DataError if that cannot be parsed.
        """
        return Grammar({**self._rules, rule: (Production(None, parse_nodes(text)),)}, self.actions)

    def render(self, nodes: Iterable[Node], bindings: Bindings, world: World) -> str:
        """The text of ``nodes`` in the current state of ``world``.

        ``world`` does not change. ``bindings`` gives the entity of each variable. A rule is rendered by its
        first production that applies. Raises EngineError if it has none.
        """
        parts: list[str] = []
        for node in nodes:
            if isinstance(node, LiteralText):
                parts.append(node.value)
            elif isinstance(node, Expand):
                parts.append(self._expand(node.name, bindings, world))
            elif isinstance(node, Evaluate):
                variables = {name: world.entities[value] for (name, _), value in bindings.items()}
                parts.append(evaluate(node.expression, variables))
            elif isinstance(node, ForEach):
                parts.extend(self._answers(node, bindings, world))
            else:
                parts.append(self._list(node, bindings, world))
        return "".join(parts)

    def _expand(self, name: str, bindings: Bindings, world: World) -> str:
        """Render the first applicable production of a rule."""
        for production in self._rules.get(name, ()):
            if production.condition is None or world.answers(production.condition, bindings):
                return self.render(production.nodes, bindings, world)
        raise EngineError(
            f"The game's grammar has no applicable rule for #{name}#; its game file is damaged.",
        )

    def _answers(self, node: ForEach, bindings: Bindings, world: World) -> list[str]:
        """Render a node once for each way in which its query holds."""
        answers = [bindings] if node.query is None else world.answers(node.query, bindings)
        return [self.render((node.node,), bound, world) for bound in answers]

    def _list(self, node: Listing, bindings: Bindings, world: World) -> str:
        """Render an English list; the grammar's own rules give its separators."""
        items = self._answers(node.items, bindings, world)
        if not items:
            return self._expand("list_empty", bindings, world)
        if len(items) == 1:
            return items[0]
        head = self._expand("list_separator", bindings, world).join(items[:-1])
        return head + self._expand("list_last_separator", bindings, world) + items[-1]


def load_grammar(text: str) -> Grammar:
    """Parse the grammar of a game, a twl2 text.

    Raises the errors of the textworld parsers for a malformed text, DataError for an unsupported expression.
    """
    # Parsing takes long, so games that differ only in their task sentence share one parsed grammar.
    rules = list(_TASK_RULE.finditer(text))
    if len(rules) != 1:
        return _parse_grammar(text)
    start, end = rules[0].span(1)
    shared = _parse_grammar(text[:start] + "UNKNOWN GOAL" + text[end:])
    return shared.swapped("task", json.loads(f'"{rules[0][1]}"'))


@lru_cache(maxsize=8)
def _parse_grammar(text: str) -> Grammar:
    """Parse a twl2 text by textworld's parser and convert its rules and actions. Cached."""
    from textworld.envs.pddl.logic import _parse_and_convert

    actions, parsed = _parse_and_convert(text, rule_name="pddlStart")
    rules: dict[str, tuple[Production, ...]] = {}
    for name, alternatives in parsed._rules.items():
        productions = []
        for alternative in alternatives:
            condition = _parse_query(alternative.condition) if alternative.condition else None
            productions.append(Production(condition, _nodes(alternative.rhs)))
        rules[name] = tuple(productions)
    templates: dict[str, tuple[Nodes, Nodes]] = {}
    for name, action in actions.items():
        templates[name] = (parse_nodes(action.template), parse_nodes(action.feedback_rule))
    return Grammar(rules, templates)


@lru_cache(maxsize=4096)
def parse_nodes(text: str) -> Nodes:
    """Parse a text template into nodes; cached.

    Raises the errors of the textworld parser, or DataError for an unsupported expression.
    """
    # textworld's own parser, since its peculiar treatment of blanks must be kept.
    from textworld.envs.pddl.textgen import _parse_and_convert

    return _nodes(_parse_and_convert(text, rule_name="symbols"))


def _nodes(symbols: Iterable[Any]) -> Nodes:
    """Convert symbols of textworld's parser into nodes."""
    nodes: list[Node] = []
    for symbol in symbols:
        kind = type(symbol).__name__
        if kind == "TerminalSymbol":
            nodes.append(LiteralText(str(symbol.symbol)))
        elif kind == "ListSymbol":
            nodes.append(Listing(_for_each(symbol.symbol)))
        elif kind == "ConditionalSymbol":
            nodes.append(_for_each(symbol))
        else:
            nodes.append(_simple(symbol))
    return tuple(nodes)


def _for_each(symbol: Any) -> ForEach:
    return ForEach(_simple(symbol.expression), _parse_query(symbol.given) if symbol.given else None)


def _simple(symbol: Any) -> Expand | Evaluate:
    if type(symbol).__name__ == "NonterminalSymbol":
        return Expand(str(symbol.symbol))
    return Evaluate(parse_expression(symbol.expression))


@lru_cache(maxsize=1024)
def _parse_query(text: str) -> Query:
    from textworld.logic import Rule

    predicates = Rule.parse_conjunctive_query(text).preconditions
    return tuple((p.name, tuple((place.name, place.type) for place in p.parameters)) for p in predicates)


def query_predicates(nodes: Iterable[Node]) -> set[str]:
    """Names of the predicates that the queries of ``nodes`` read.

    Grammar rules that the nodes expand are not searched.
    """
    predicates: set[str] = set()
    for node in nodes:
        inner = node.items if isinstance(node, Listing) else node
        if isinstance(inner, ForEach) and inner.query is not None:
            predicates.update(name for name, _ in inner.query)
    return predicates
