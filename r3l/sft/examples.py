"""Lessons: the dialogs in which R3L would play, review and retry a demonstrated episode, as tokens with weights.

The prompts are rendered by the same code that renders them when sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Message, Stop
from r3l.core.feedback import ParsedReflection
from r3l.core.policy import FinishReason
from r3l.core.render import ChatRenderer
from r3l.core.trajectory import Trajectory, TrajectoryKind, Turn
from r3l.reflection import (
    GuidanceForm,
    ReflectionSettings,
    parse_reflection,
    reflection_request,
    reflection_text,
)
from r3l.retry import Restart, guidance_text, with_guidance

Part = tuple[list[Message], str, bool]  # messages, response, trained?


@dataclass(frozen=True)
class SFTExample:
    """A tokenised dialog. ``weight``: 1 on responses to imitate, 0 on others, less on prompts. Shape (T,).

    Prompts are learnt too: texts that name a thing again teach a small model to copy names early.
    """

    ids: np.ndarray
    weight: np.ndarray


def documents_of(dialogue: Dialogue, d: Demonstration, guidance: GuidanceForm) -> Iterator[tuple[str, list[Part]]]:
    """The dialogs in which R3L would play, review and retry the demonstrated episode, by kind.

    A compact review continues the episode; a released one is a dialog of its own.
    """
    if dialogue.style == "compact":
        yield "episode", [*episode_parts(dialogue, d), *review_parts(dialogue, d)]
    else:
        yield "episode", episode_parts(dialogue, d)
        yield "review", review_parts(dialogue, d)
    if d.retry:
        yield "retry", retry_parts(dialogue, d, guidance)


def episode_parts(dialogue: Dialogue, d: Demonstration) -> list[Part]:
    """The episode, all but its blunders to be imitated."""
    prompts = _prompts(dialogue, d, d.steps)
    return [(m, s.response, s.imitate) for m, s in zip(prompts, d.steps, strict=True)]


def review_parts(dialogue: Dialogue, d: Demonstration) -> list[Part]:
    """The reflection on the episode, as a method would ask for it."""
    last = len(d.steps) - 1
    turns = [
        Turn(s.now.text, s.response, (), (), (), FinishReason.END, s.action, d.error if k == last else None)
        for k, s in enumerate(d.steps)
    ]
    feedback = dialogue.closing(d.reward, d.success, len(d.steps), d.error)
    ended = Trajectory(d.task, 0, TrajectoryKind.BASE, turns, d.reward, d.success, feedback=feedback)
    request = reflection_request(dialogue, ended, d.first, ReflectionSettings.model_validate({}))
    return [(request, reflection_text(d.critique), True)]


def retry_parts(dialogue: Dialogue, d: Demonstration, guidance: GuidanceForm = "suggestion") -> list[Part]:
    """The prefix (context only), the hint at the pivot, and what followed under it."""
    pivot = d.critique.turn
    assert pivot is not None, d.task.id
    steps = (*d.steps[:pivot], *d.retry)
    report = parse_reflection(reflection_text(d.critique), len(d.steps))
    assert isinstance(report, ParsedReflection)
    hint = with_guidance(Restart(pivot, guidance_text(report, guidance)), "user_turn")
    parts: list[Part] = []
    for k, (messages, step) in enumerate(zip(_prompts(dialogue, d, steps), steps, strict=True)):
        parts.append((hint(messages).messages if k == pivot else messages, step.response, k >= pivot))
    return parts


def _prompts(dialogue: Dialogue, d: Demonstration, steps: Sequence[Step]) -> Iterator[list[Message]]:
    actions: list[str] = []
    for step in steps:
        if actions:
            message = dialogue.following(d.first, actions, step.now)
            yield [] if message is None else [message]
        else:
            yield dialogue.opening(d.task, d.first)
        actions.append(step.action)


def render(renderer: ChatRenderer, parts: Sequence[Part], prompt_weight: float, stop: Stop = "end") -> SFTExample:
    """Token ids and weights of a document, piece by piece as a live dialog would be."""
    ids: list[int] = []
    weight: list[float] = []
    for messages, response, trained in parts:
        ended = bool(ids) and ids[-1] == renderer.end_id
        prompt = renderer.following(messages, ended) if ids else renderer.opening(messages)
        answer = renderer.response(response, stop)
        ids += prompt + answer
        weight += [prompt_weight] * len(prompt) + [float(trained)] * len(answer)
    return SFTExample(np.asarray(ids, dtype=np.int32), np.asarray(weight, dtype=np.float32))
