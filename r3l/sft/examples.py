"""SFT examples: dialogs in which R3L would play, reflect on and retry a demonstrated episode, as weighted tokens.

The prompts are rendered by the same code that renders them when sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from r3l.chat.renderer import ChatRenderer
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Stop
from r3l.core.errors import ConfigError
from r3l.core.policy import FinishReason
from r3l.core.seeds import generator
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind, Turn
from r3l.envs.base.experts import suggestion_of
from r3l.feedback.feedback import ParsedReflection, parse_reflection
from r3l.reflection import GuidanceForm, ReflectionSettings, reflection_request, reflection_text
from r3l.retry import Restart, guidance_text, hint, with_guidance

LATE_HINTS = 0.15  # share of the hints of a hinted episode that come a turn too late; our choice
LONGEST_HINT = 6  # actions in a hint of a hinted episode, as many as a critic names at most


class ExampleKind(StrEnum):
    """What a dialog shows."""

    EPISODE = "episode"
    RETRY = "retry"
    REFLECTION = "reflection"
    HINTED = "hinted"  # an episode with a hint at every turn


class Exchange(NamedTuple):
    """What is shown to the model, what it answers, and whether it is to learn the answer."""

    messages: list[Message]
    response: str
    trained: bool


Document = tuple[ExampleKind, list[Exchange]]


@dataclass(frozen=True)
class SFTExample:
    """A tokenised dialog. ``weight``: 1 on responses to imitate, 0 on others, less on prompts. Shape (T,).

    Prompts are learnt too: texts that name a thing again teach a small model to copy names early.
    """

    ids: np.ndarray
    weight: np.ndarray


def documents_of(
    dialogue: Dialogue, d: Demonstration, guidance: GuidanceForm, hinted: bool = False, plan_thoughts: bool = False
) -> Iterator[Document]:
    """The dialogs in which R3L would play, reflect on and retry the demonstrated episode.

    A compact reflection continues the episode; a released one is a dialog of its own. ``hinted``: the episode once more
    with a hint at every turn, since a guided retry has but one. ``plan_thoughts``: the thought before a suggested
    action says that action. Raises ConfigError for these two where the environment's agents write no thoughts.
    """
    if (hinted or plan_thoughts) and not any(step.planned for step in d.steps):
        raise ConfigError(
            "hinted_share and plan_thoughts are of environments whose agents think before they act; the demonstrations "
            f"of {d.task.id} have no thoughts: leave both out"
        )
    if dialogue.style == "compact":
        yield ExampleKind.EPISODE, [*_episode(dialogue, d), _reflection(dialogue, d)]
    else:
        yield ExampleKind.EPISODE, _episode(dialogue, d)
        yield ExampleKind.REFLECTION, [_reflection(dialogue, d)]
    if d.retry:
        yield ExampleKind.RETRY, _retry(dialogue, d, guidance, plan_thoughts)
    if hinted and (exchanges := _hinted(dialogue, d, plan_thoughts)):
        yield ExampleKind.HINTED, exchanges


def _episode(dialogue: Dialogue, d: Demonstration) -> list[Exchange]:
    """The episode, all but its blunders to be imitated."""
    prompts = _prompts(dialogue, d, d.steps)
    return [Exchange(m, s.response, s.imitate) for m, s in zip(prompts, d.steps, strict=True)]


def _reflection(dialogue: Dialogue, d: Demonstration) -> Exchange:
    """The reflection on the episode, as a method would ask for it."""
    last = len(d.steps) - 1
    turns = [
        Turn(s.now.text, s.response, (), (), (), FinishReason.END, s.action, d.error if k == last else None)
        for k, s in enumerate(d.steps)
    ]
    feedback = dialogue.closing(d.reward, d.success, len(d.steps), d.error, d.steps[-1].response)
    finished = Trajectory(d.task, 0, TrajectoryKind.BASE, turns, d.reward, d.success, feedback=feedback)
    shown = list(_prompts(dialogue, d, d.steps))
    request = reflection_request(dialogue, finished, d.first, ReflectionSettings.model_validate({}), shown)
    return Exchange(request, reflection_text(d.critique), True)


def _retry(dialogue: Dialogue, d: Demonstration, guidance: GuidanceForm, plan_thoughts: bool) -> list[Exchange]:
    """The prefix (context only), the hint at the pivot, and what followed under it."""
    pivot = d.critique.turn
    assert pivot is not None, d.task.id
    steps = (*d.steps[:pivot], *d.retry)
    reflection = parse_reflection(reflection_text(d.critique), len(d.steps))
    assert isinstance(reflection, ParsedReflection)
    settings = ReflectionSettings.model_validate({"guidance": guidance})
    guide = with_guidance(Restart(pivot, guidance_text(reflection, settings, dialogue.release)), "user_turn")
    answers = [s.planned or s.response if plan_thoughts and s.suggested else s.response for s in steps]
    return [
        Exchange(guide(messages).messages if k == pivot else messages, answer, k >= pivot)
        for k, (messages, answer) in enumerate(zip(_prompts(dialogue, d, steps), answers, strict=True))
    ]


def _hinted(dialogue: Dialogue, d: Demonstration, plan_thoughts: bool) -> list[Exchange]:
    """The episode, each action of it suggested before, most often with some that follow it: as many at any turn.

    Some hints begin with the action just taken, where it is impossible by now: a reflection names a turn too late.
    """
    steps = [step for step in d.steps if step.planned and step.imitate]
    actions = [step.action for step in steps]
    rng = generator("hint lengths", d.task.id)
    lengths, late = rng.integers(1, LONGEST_HINT + 1, len(steps)), rng.random(len(steps)) < LATE_HINTS
    exchanges: list[Exchange] = []
    for k, (messages, step) in enumerate(zip(_prompts(dialogue, d, steps), steps, strict=True)):
        over = late[k] and k > 0 and bool(step.now.admissible) and actions[k - 1] not in step.now.admissible
        suggestion = suggestion_of(actions[k - over : k + lengths[k]])
        guide = with_guidance(Restart(k, hint(suggestion)), "user_turn")
        answer = step.planned if plan_thoughts else step.response
        exchanges.append(Exchange(guide(messages).messages, answer, True))
    return exchanges


def _prompts(dialogue: Dialogue, d: Demonstration, steps: Sequence[Step]) -> Iterator[list[Message]]:
    actions: list[str] = []
    for step in steps:
        if actions:
            message = dialogue.following(d.first, actions, step.now)
            yield [] if message is None else [message]
        else:
            yield dialogue.opening(d.task, d.first)
        actions.append(step.action)


def render(
    renderer: ChatRenderer, exchanges: Sequence[Exchange], prompt_weight: float, stop: Stop = "end"
) -> SFTExample:
    """Token ids and weights of a dialog, exchange by exchange as when sampling."""
    ids: list[int] = []
    weight: list[float] = []
    for messages, response, trained in exchanges:
        ended = bool(ids) and ids[-1] == renderer.end_id
        prompt = renderer.following(messages, ended) if ids else renderer.opening(messages)
        answer = renderer.response(response, stop)
        ids += prompt + answer
        weight += [prompt_weight] * len(prompt) + [float(trained)] * len(answer)
    return SFTExample(np.asarray(ids, dtype=np.int32), np.asarray(weight, dtype=np.float32))
