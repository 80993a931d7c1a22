"""Knights & Knaves: each person is a knight, who tells the truth, or a knave, who lies.

Find out who is which.

``data``: ``names``, ``roles`` (the word for a truth-teller, then for a liar), ``style``, and a statement per
person: ``["telling-truth", i]``, ``["lying", i]``, ``["not", s]``, ``["and" | "or", s, ...]``, ``["->" |
"<=>", s, s]``. In the solution, which is unique, a person is a truth-teller exactly if the person's
statement is true.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field
from r3l.envs.puzzles.engine.base import (
    CORRECT,
    MAX_ANSWER,
    Data,
    Difficulty,
    Puzzle,
    PuzzleProblem,
    WorkedSolution,
    item,
    reasoning_gym,
    shuffled,
)

Roles = tuple[bool, ...]  # by person: True for a truth-teller
MOST_PEOPLE = 5  # in constant answers: RLTF's problems have five people
_LETTERS = "PQRST"  # compact names; an A would be an article to the released verifier
_WORDS = {"and": " and ", "or": " or ", "<=>": " iff "}
# Our choice of a bad habit: it is right by luck in 0.20 of 800 generated problems of 2 people, in 0.06 of 4.
_CONFUSED = {"and": "or", "or": "and", "->": "and", "<=>": "or"}
# Layout that says nothing about roles: emphasis, LaTeX text, parentheses, marks of list items.
_LAYOUT = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf)\b|[*_`(){}$~]|(?<!\\)\\ |^[ \t]*(?:[-+•–]|\d+[.)])[ \t]+",
    re.MULTILINE,
)
# The mark of a list's item before a person's name, on a new line or not: (1), 2., [3], (b), (iv).
_MARK = r"(?<!\w)[*_]*(?:\(\s*(?:\d+|[a-z]|[ivx]+)\s*\)[.:]?|\[\d+\]|#?\d+[.):]*|[a-z][.)]|[①-⑳])[*_]*\s*"
# Introductory words, which reasoning-gym's parser skips too.
_LEAD = re.compile(r"\s*(?:(?:(?:the )?(?:final )?answer(?: is)?|therefore|thus|hence|so|finally)\b[\s,:]*)*")
_BETWEEN = re.compile(r"[.,;|\n]|\\\\|\\?&|\band\b")
_PART = re.compile(r"(\w+)(?: is | ?[:=–—-] ?| )(?:(?:an?|the) )?(\w+)")


class KnightsKnavesDifficulty(Difficulty):
    """Numbers of people, and size of their statements.

    Problems have ``min_people`` to ``max_people`` people in turn. A statement has at most ``depth`` nested
    connectives, with at most ``width`` parts each.
    """

    min_people: int = Field(ge=2)
    max_people: int = Field(ge=2, le=MOST_PEOPLE)
    depth: int = Field(ge=1)
    width: int = Field(ge=2)


class KnightsKnaves(Puzzle):
    """The puzzle: knights tell the truth and knaves lie; say who is which.

    An answer gives each person's role once: ``A is a knight, B is a knave``.
    """

    name = "knights_knaves"
    difficulty = KnightsKnavesDifficulty

    def generate(self, index: int, difficulty: KnightsKnavesDifficulty) -> PuzzleProblem:
        people = difficulty.min_people + index % (difficulty.max_people - difficulty.min_people + 1)
        limits = {"depth_constraint": difficulty.depth, "width_constraint": difficulty.width}
        generated = item(self.name, difficulty.seed, index, n_people=people, **limits)
        metadata = generated["metadata"]
        compact = difficulty.style == "compact"
        terms = metadata["knight_knave_terms"]
        data = {
            "names": list(_LETTERS[:people]) if compact else [str(name) for name in metadata["names"]],
            "roles": ["knight", "knave"] if compact else [str(terms["knight"]), str(terms["knave"])],
            "style": difficulty.style,
            "statements": _as_lists(metadata["statements"]),
        }
        if not compact:
            return PuzzleProblem(generated["question"], generated["answer"], data, f"{people} people")

        # The compact style has its own names and words.
        said = []
        for name, statement in zip(data["names"], data["statements"], strict=True):
            said.append(f"{name}: {_say(data, _plain(statement))}.")
        text = f"{' '.join(said)} Who is knight, who is knave?"
        return PuzzleProblem(text, render(data, metadata["solution"]), data, f"{people} people")

    def key(self, data: Data) -> str:
        """The statements as JSON; a problem with other names or words for the roles has the same key."""
        return json.dumps([_plain(statement) for statement in data["statements"]])

    def verify(self, data: Data, answer: str) -> bool:
        """Whether ``answer`` names each person once, with the right role, and says nothing else."""
        roles = read(data, answer)
        return roles is not None and not _contradicting(data, roles)

    def verify_released(self, data: Data, answer: str) -> bool:
        """Whether the (name, role) pairs that reasoning-gym's parser finds are the right ones, as in RLTF.

        The parser skips all other words, so "not a knight" counts as "knight".
        """
        read_pairs = reasoning_gym().logic.knights_knaves.KnightsKnavesDataset._normalize_answer
        return bool(read_pairs(answer) == read_pairs(render(data, solve(data))))

    def critique(self, data: Data, answer: str) -> str:
        """Name the people whose statements contradict the roles in the answer; CORRECT if there are none.

        For an answer that :func:`read` cannot parse, say which form an answer must have.
        """
        roles = read(data, answer)
        if roles is None:
            roles_named = " or ".join(data["roles"])
            return f"the answer must give each of {', '.join(data['names'])} one role: {roles_named}"
        wrong = _contradicting(data, roles)
        if not wrong:
            return CORRECT
        complaints = []
        for k in wrong:
            truth = "false" if roles[k] else "true"
            complaints.append(
                f"with these roles the statement of {data['names'][k]} is {truth}, "
                f"which no {_word(data, roles[k])} says"
            )
        return "; ".join(complaints)

    def constant_answers(self, data: Data) -> dict[str, str]:
        """Answers that ignore the statements: all 2**MOST_PEOPLE ways to give people roles, by name.

        A name such as ``TTFTF`` has T for a knight and F for a knave; fewer people have its first roles.
        """
        answers = {}
        for pattern in itertools.product([True, False], repeat=MOST_PEOPLE):
            name = "".join("T" if role else "F" for role in pattern)
            answers[name] = render(data, pattern[: len(data["names"])])
        return answers

    def work(self, data: Data) -> WorkedSolution:
        """Try one assignment of roles after another, and check statements up to the first contradiction.

        If none fits (a misread problem), the answer is the last one.
        """
        lines: list[str] = []
        tried: Roles = ()
        for number, tried in enumerate(_assignments(data)):
            # A problem that is misread only from some trial on is read rightly before (misreadings).
            read_as = data
            if number < data.get("careful_until", 0):
                read_as = {**data, "statements": data["original_statements"]}
            wrong = _contradicting(read_as, tried)
            checks = ["yes"] * wrong[0] + ["no"] if wrong else ["yes"] * len(tried)
            roles = [f"{name} {_word(data, role)}" for name, role in zip(data["names"], tried, strict=True)]
            lines.append(f"{' '.join(roles)}: {' '.join(checks)}")
            if not wrong:
                return WorkedSolution(lines, render(data, tried))
        # Only a misread problem has no solution; the last assignment is the guess.
        lines.append("none fits")
        return WorkedSolution(lines, render(data, tried))

    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """Copies of the problem with one word of a statement reversed, or with one statement negated.

        First come copies that a solver reads correctly up to some trial (``careful_until``: earlier trials
        use the ``original_statements``), then copies that are misread in all trials.
        """
        original = data["statements"]
        variants = []
        for speaker, statement in enumerate(original):
            variants += [(speaker, variant) for variant in [*_flips(statement), ["not", statement]]]
        trials = len(self.work(data).lines)
        for most in (trials, 1):
            for speaker, variant in shuffled(variants, rng):
                misread = [*original[:speaker], variant, *original[speaker + 1 :]]
                careful_until = int(rng.integers(most))
                yield {
                    **data,
                    "statements": misread,
                    "original_statements": original,
                    "careful_until": careful_until,
                }

    def by_habit(self, data: Data) -> Data:
        """A copy of the problem with the statements as a careless solver always misreads them.

        ``and`` and ``iff`` become ``or``; ``or`` and ``if`` become ``and``.
        """
        return {**data, "statements": [_confused(statement) for statement in data["statements"]]}


def solve(data: Data) -> Roles:
    """The solution, found by trying all assignments: for each person, in order, True for a knight.

    Raises ValueError if none fits, as in a misread problem.
    """
    for roles in _assignments(data):
        if not _contradicting(data, roles):
            return roles
    raise ValueError(f"no roles fit the statements {data['statements']}")


def holds(statement: Sequence[Any], roles: Sequence[bool]) -> bool:
    """Whether ``statement`` (see the module) is true if ``roles`` are the people's: True for a knight."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return bool(roles[parts[0]] == (kind == "telling-truth"))
    values = [holds(part, roles) for part in parts]
    if kind == "not":
        return not values[0]
    if kind == "->":
        return not values[0] or values[1]
    if kind == "<=>":
        return values[0] == values[1]
    return all(values) if kind == "and" else any(values)


def render(data: Data, roles: Sequence[bool]) -> str:
    """The answer that gives each person a role, by person: True for a knight (or the problem's word for it).

    In the problem's style: ``P knight, Q knave`` if ``data["style"]`` is ``compact``, else ``Ann is a knight,
    and Ben is a knave.``. Raises ValueError unless there is a role for each person.
    """
    parts = []
    for name, role in zip(data["names"], roles, strict=True):
        word = _word(data, role)
        article = "an" if word[0] in "aeiou" else "a"
        parts.append(f"{name} {word}" if data["style"] == "compact" else f"{name} is {article} {word}")
    if data["style"] == "compact":
        return ", ".join(parts)
    return ", ".join(parts[:-1]) + f", and {parts[-1]}."


def read(data: Data, answer: str) -> Roles | None:
    """The roles in an answer: True for each truth-teller, in the order of ``data["names"]``.

    None unless the answer names each person once and says nothing else; case, layout, and the punctuation
    between two people do not matter. None too if it is longer than MAX_ANSWER characters.
    """
    if len(answer) > MAX_ANSWER:
        return None
    names = [name.casefold() for name in data["names"]]
    honest, liar = [role.casefold() for role in data["roles"]]
    # Marks of items go first: a dot in one would separate people. A letter is a mark only before a name.
    a_name = "|".join(map(re.escape, names))
    items = re.sub(rf"{_MARK}(?=[*_]*(?:{a_name})\b)", "\n", answer.casefold())

    # What is left between separators must be a name and a role, or the answer says something else too.
    roles: dict[str, bool] = {}
    for part in _BETWEEN.split(_LEAD.sub("", _LAYOUT.sub(" ", items), count=1)):
        if not part.strip():
            continue
        match = _PART.fullmatch(" ".join(part.split()))
        if match is None or match[1] in roles or match[1] not in names or match[2] not in (honest, liar):
            return None
        roles[match[1]] = match[2] == honest
    if len(roles) != len(names):
        return None
    return tuple(roles[name] for name in names)


def _assignments(data: Data) -> Iterator[Roles]:
    return itertools.product([True, False], repeat=len(data["names"]))


def _contradicting(data: Data, roles: Sequence[bool]) -> list[int]:
    """Indices of people whose statement is true though they lie, or false though they tell the truth."""
    return [k for k, statement in enumerate(data["statements"]) if holds(statement, roles) != roles[k]]


def _word(data: Data, role: bool) -> str:
    return str(data["roles"][not role])


def _as_lists(statement: Any) -> Any:
    return [_as_lists(part) for part in statement] if isinstance(statement, tuple) else statement


def _plain(statement: Any) -> Any:
    """``statement`` with "not a knight" written as "a knave"."""
    if statement[0] in ("telling-truth", "lying"):
        return statement
    if statement[0] == "not" and statement[1][0] in ("telling-truth", "lying"):
        return _opposite(statement[1])
    return [statement[0], *map(_plain, statement[1:])]


def _opposite(statement: Any) -> Any:
    return ["lying" if statement[0] == "telling-truth" else "telling-truth", statement[1]]


def _flips(statement: Any) -> list[Any]:
    """All variants of ``statement`` with one "knight" and "knave" swapped."""
    if statement[0] in ("telling-truth", "lying"):
        return [_opposite(statement)]
    variants = []
    for k in range(1, len(statement)):
        for flipped in _flips(statement[k]):
            variants.append([*statement[:k], flipped, *statement[k + 1 :]])
    return variants


def _confused(statement: Any) -> Any:
    """``statement`` with all connectives misread by ``_CONFUSED``."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return statement
    return [_CONFUSED.get(kind, kind), *map(_confused, parts)]


def _say(data: Data, statement: Any) -> str:
    """A statement in the words of the compact style: ``P knight and (not (Q knave or R knight))``."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return f"{data['names'][parts[0]]} {_word(data, kind == 'telling-truth')}"
    phrases = []
    for part in parts:
        phrase = _say(data, part)
        phrases.append(phrase if part[0] in ("telling-truth", "lying") else f"({phrase})")
    if kind == "not":
        return f"not {phrases[0]}"
    if kind == "->":
        return f"if {phrases[0]} then {phrases[1]}"
    return _WORDS[kind].join(phrases)
