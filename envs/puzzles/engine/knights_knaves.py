"""Knights & Knaves: everybody is a knight, who tells the truth, or a knave, who lies; who is what?

``data``: ``names`` and ``roles`` (the word of a truth-teller, then of a liar), ``style``, and one statement a person:
``["telling-truth", i]``, ``["lying", i]``, ``["not", s]``, ``["and" | "or", s, ...]``, ``["->" | "<=>", s, s]``.
A solution gives every person a truth value that equals the one of the person's own statement; it is unique.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field
from r3l.envs.puzzles.engine.base import CORRECT, MAX_ANSWER, Data, Difficulty, Problem, Puzzle, Work, item, shuffled

Roles = tuple[bool, ...]  # by person: True for one who tells the truth
MOST_PEOPLE = 5  # of the constant answers: RLTF's problems have five people
_LETTERS = "PQRST"  # compact names; an A would be an article to the released verifier
_WORDS = {"and": " and ", "or": " or ", "<=>": " iff "}
# Our choice: who reads so is right by luck in 0.20 of 800 generated problems of 2 people, 0.06 of 4.
_CONFUSED = {"and": "or", "or": "and", "->": "and", "<=>": "or"}
# How an answer may be laid out. None of it gives a role: emphasis, LaTeX text, parentheses, the mark of a list's item.
_LAYOUT = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf)\b|[*_`(){}$~]|(?<!\\)\\ |^[ \t]*(?:[-+•–]|\d+[.)])[ \t]+", re.MULTILINE
)
# The mark of a list's item before a person's name, on a new line or not: (1), 2., [3], (b), (iv).
_MARK = r"(?<!\w)[*_]*(?:\(\s*(?:\d+|[a-z]|[ivx]+)\s*\)[.:]?|\[\d+\]|#?\d+[.):]*|[a-z][.)]|[①-⑳])[*_]*\s*"
# Words that lead up to an answer and say nothing of it; reasoning-gym's reader skips them too.
_LEAD = re.compile(r"\s*(?:(?:(?:the )?(?:final )?answer(?: is)?|therefore|thus|hence|so|finally)\b[\s,:]*)*")
_BETWEEN = re.compile(r"[.,;|\n]|\\\\|\\?&|\band\b")
_PART = re.compile(r"(\w+)(?: is | ?[:=–—-] ?| )(?:(?:an?|the) )?(\w+)")


class KnightsKnavesDifficulty(Difficulty):
    """People (numbers of them take turns), and the depth and width of their statements."""

    min_people: int = Field(ge=2)
    max_people: int = Field(ge=2, le=MOST_PEOPLE)
    depth: int = Field(ge=1)
    width: int = Field(ge=2)


class KnightsKnaves(Puzzle):
    """Knights & Knaves. An answer names every person's role once: ``A is a knight, B is a knave``."""

    name = "knights_knaves"
    difficulty = KnightsKnavesDifficulty

    def generate(self, index: int, difficulty: KnightsKnavesDifficulty) -> Problem:
        people = difficulty.min_people + index % (difficulty.max_people - difficulty.min_people + 1)
        limits = {"depth_constraint": difficulty.depth, "width_constraint": difficulty.width}
        generated = item(self.name, difficulty.seed, index, n_people=people, **limits)
        metadata, compact = generated["metadata"], difficulty.style == "compact"
        terms = metadata["knight_knave_terms"]
        data = {
            "names": list(_LETTERS[:people]) if compact else [str(name) for name in metadata["names"]],
            "roles": ["knight", "knave"] if compact else [str(terms["knight"]), str(terms["knave"])],
            "style": difficulty.style,
            "statements": _as_lists(metadata["statements"]),
        }
        text, gold = generated["question"], generated["answer"]
        if compact:
            text, gold = _compact_text(data), render(data, metadata["solution"])
        return Problem(text, gold, data, f"{people} people")

    def key(self, data: Data) -> str:
        """The statements; names and words for roles make no other problem."""
        return json.dumps([_plain(statement) for statement in data["statements"]])

    def verify(self, data: Data, answer: str) -> bool:
        """Every person has the right role, and nobody is named twice."""
        roles = read(data, answer)
        return roles is not None and not _contradicting(data, roles)

    def verify_released(self, data: Data, answer: str) -> bool:
        """Equal sets of (name, role) as reasoning-gym, which RLTF took it from, reads them: extra words are skipped."""
        from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

        read_pairs = KnightsKnavesDataset._normalize_answer
        return bool(read_pairs(answer) == read_pairs(render(data, solve(data))))

    def critique(self, data: Data, answer: str) -> str:
        """Whose statements do not go with the roles that the answer gives."""
        roles = read(data, answer)
        if roles is None:
            return f"the answer must give each of {', '.join(data['names'])} one role: {' or '.join(data['roles'])}"
        wrong = _contradicting(data, roles)
        if not wrong:
            return CORRECT
        return "; ".join(
            f"with these roles the statement of {data['names'][k]} is {str(not roles[k]).lower()}, "
            f"which no {_word(data, roles[k])} says"
            for k in wrong
        )

    def constant_answers(self, data: Data) -> dict[str, str]:
        """Every fixed sequence of roles, as T and F, cut to the number of people."""
        patterns = itertools.product([True, False], repeat=MOST_PEOPLE)
        return {
            "".join("FT"[role] for role in pattern): render(data, pattern[: len(data["names"])]) for pattern in patterns
        }

    def work(self, data: Data) -> Work:
        """Try assignments one after another; each statement is checked until one does not go with its speaker."""
        lines: list[str] = []
        tried: Roles = ()
        for number, tried in enumerate(_assignments(data)):
            careful = number < data.get("careful_until", 0)
            wrong = _contradicting({**data, "statements": data["original_statements"]} if careful else data, tried)
            checks = ["yes"] * len(tried) if not wrong else ["yes"] * wrong[0] + ["no"]
            roles = " ".join(f"{name} {_word(data, role)}" for name, role in zip(data["names"], tried, strict=True))
            lines.append(f"{roles}: {' '.join(checks)}")
            if not wrong:
                break
        else:
            lines.append("none fits")  # only in a misread problem: the last one is the guess
        return Work(lines, render(data, tried))

    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """One word of one statement the other way round, or one statement negated: from some trial on, else always.

        ``careful_until``: trials before this one go by the ``original_statements``.
        """
        original = data["statements"]
        variants = [(speaker, variant) for speaker, s in enumerate(original) for variant in [*_flips(s), ["not", s]]]
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
        """Every connective is taken for another one: ``and`` and ``iff`` for ``or``, ``or`` and ``if`` for ``and``."""
        return {**data, "statements": [_confused(statement) for statement in data["statements"]]}


def solve(data: Data) -> Roles:
    return next(roles for roles in _assignments(data) if not _contradicting(data, roles))


def holds(statement: Sequence[Any], roles: Sequence[bool]) -> bool:
    """The truth of a statement where people have ``roles``."""
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
    """The answer that gives people ``roles``."""
    words = [_word(data, role) for role in roles]
    if data["style"] == "compact":
        return ", ".join(f"{name} {word}" for name, word in zip(data["names"], words, strict=True))
    parts = [f"{name} is {_article(word)} {word}" for name, word in zip(data["names"], words, strict=True)]
    return ", ".join(parts[:-1]) + f", and {parts[-1]}."


def read(data: Data, answer: str) -> Roles | None:
    """The roles that an answer gives, by person; None unless it names each person once and nothing else.

    Upper and lower case, layout and what stands between two people are the writer's.
    """
    if len(answer) > MAX_ANSWER:
        return None
    names, (honest, liar) = [[word.casefold() for word in data[key]] for key in ("names", "roles")]
    a_name = "|".join(map(re.escape, names))
    items = re.sub(rf"{_MARK}(?=[*_]*(?:{a_name})\b)", "\n", answer.casefold())
    roles: dict[str, bool] = {}
    for part in _BETWEEN.split(_LEAD.sub("", _LAYOUT.sub(" ", items), count=1)):
        if not part.strip():
            continue
        match = _PART.fullmatch(" ".join(part.split()))
        if match is None or match[1] in roles or match[1] not in names or match[2] not in (honest, liar):
            return None
        roles[match[1]] = match[2] == honest
    return tuple(roles[name] for name in names) if len(roles) == len(names) else None


def _assignments(data: Data) -> Iterator[Roles]:
    return itertools.product([True, False], repeat=len(data["names"]))


def _contradicting(data: Data, roles: Sequence[bool]) -> list[int]:
    """Who says something true and is no truth-teller, or something false and is one."""
    return [k for k, statement in enumerate(data["statements"]) if holds(statement, roles) != roles[k]]


def _word(data: Data, role: bool) -> str:
    return str(data["roles"][not role])


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _as_lists(statement: Any) -> Any:
    return [_as_lists(part) for part in statement] if isinstance(statement, tuple) else statement


def _plain(statement: Any) -> Any:
    """``statement`` with "not a knight" as "a knave", which is how both are worded."""
    if statement[0] in ("telling-truth", "lying"):
        return statement
    if statement[0] == "not" and statement[1][0] in ("telling-truth", "lying"):
        return _opposite(statement[1])
    return [statement[0], *map(_plain, statement[1:])]


def _opposite(statement: Any) -> Any:
    return ["lying" if statement[0] == "telling-truth" else "telling-truth", statement[1]]


def _flips(statement: Any) -> list[Any]:
    """``statement`` with one of its words the other way round, in every way."""
    if statement[0] in ("telling-truth", "lying"):
        return [_opposite(statement)]
    return [
        [*statement[:k], flipped, *statement[k + 1 :]]
        for k in range(1, len(statement))
        for flipped in _flips(statement[k])
    ]


def _confused(statement: Any) -> Any:
    """``statement`` with every connective taken for another one."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return statement
    return [_CONFUSED.get(kind, kind), *map(_confused, parts)]


def _compact_text(data: Data) -> str:
    pairs = zip(data["names"], data["statements"], strict=True)
    return (
        " ".join(f"{name}: {_say(data, _plain(statement))}." for name, statement in pairs)
        + " Who is knight, who is knave?"
    )


def _say(data: Data, statement: Any) -> str:
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return f"{data['names'][parts[0]]} {_word(data, kind == 'telling-truth')}"
    phrases = [_say(data, part) if part[0] in ("telling-truth", "lying") else f"({_say(data, part)})" for part in parts]
    if kind == "not":
        return f"not {phrases[0]}"
    return f"if {phrases[0]} then {phrases[1]}" if kind == "->" else _WORDS[kind].join(phrases)
