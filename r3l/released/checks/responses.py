"""Responses: the action that each environment reads, if it finds one, over random sequences of tags and texts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from r3l.core.seeds import generator
from r3l.envs.base.tagged import TaggedDialogue
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Namespace, Value
from r3l.released.ours import dialogue_of

FOLDER = "trinity/common/workflows/envs/R3L"
CASES = 10_000  # of each environment; our choice
TAGS = ("<think>", "</think>", "<action>", "</action>")
ODD_TAGS = ("<THINK>", "</Action>", "< action>", "<action", "</think", "<answer>", "<think/>", "&lt;action&gt;")
TEXTS = ("look", "search[red tea]", "click[Buy Now]", "go to desk 1", "", "a < b", "größe 水", "Ａ", "\\1", "[", "None")
BLANKS = (" ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u200b", "\x1c", "\x00")
WHOLE = ("<think>", "", "</think>", "", "<action>", "", "</action>")  # "": any text


def responses(environment: str) -> Iterator[Case]:
    """A whole response with up to four pieces put in, taken out or doubled; a fifth are any pieces in any order."""
    for k in range(CASES):
        draw = generator("responses", environment, k)
        pieces = [piece or _one(draw, TEXTS) for piece in WHOLE]
        if draw.random() < 0.2:
            pieces = [_any(draw) for _ in range(int(draw.integers(0, 10)))]
        for _ in range(int(draw.integers(0, 5))):
            place = int(draw.integers(0, len(pieces) + 1))
            if draw.random() < 0.3:
                del pieces[place : place + 1]
            else:
                pieces.insert(place, _any(draw))
        yield {"response": "".join(pieces)}


def theirs(released: Namespace, case: Case) -> Value:
    """The release cuts blanks off both ends first; on ALFWorld its answer ends with an error."""
    thought, action, *_ = released["parse_response"](case["response"].strip())
    return None if thought is None else action


def ours(environment: str, case: Case) -> Value:
    """Under the profile."""
    dialogue = dialogue_of(environment)
    assert isinstance(dialogue, TaggedDialogue)
    return dialogue.read(case["response"])


def _any(draw: np.random.Generator) -> str:
    return _one(draw, (TAGS, TAGS, TAGS, ODD_TAGS, TEXTS, BLANKS)[int(draw.integers(0, 6))])


def _one(draw: np.random.Generator, values: tuple[str, ...]) -> str:
    return values[int(draw.integers(0, len(values)))]


CHECKS = tuple(
    Check(
        "responses",
        environment,
        R3L,
        (Code(f"{FOLDER}/{environment}/utils.py", ("parse_response",)),),
        partial(responses, environment),
        theirs,
        partial(ours, environment),
    )
    for environment in ("alfworld", "scienceworld", "webshop")
)
