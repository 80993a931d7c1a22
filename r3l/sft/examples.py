"""SFT examples: dialogs in which R3L would play, reflect on and retry a demonstrated episode, as tokens.

Prompts are rendered by the code that renders them for sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from r3l.chat.renderer import ChatRenderer
from r3l.config.sft_recipe import ExampleKind
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


class Exchange(NamedTuple):
    """One turn of a dialog: messages to the model, its response, and whether SFT imitates the response."""

    messages: list[Message]
    response: str
    trained: bool


Document = tuple[ExampleKind, list[Exchange]]


@dataclass(frozen=True)
class SFTExample:
    """A tokenised dialog: token ids and the weight of each token's loss, shape (T,) each.

    The weight is 1 on responses to imitate, 0 on other responses, and the recipe's ``prompt_weight`` on
    prompts: they are trained too, since texts that repeat a name teach a small model to copy names early.
    """

    ids: np.ndarray
    weight: np.ndarray


def documents_of(
    dialogue: Dialogue,
    d: Demonstration,
    guidance: GuidanceForm,
    hinted: bool = False,
    plan_thoughts: bool = False,
) -> Iterator[Document]:
    """The dialogs in which R3L would play, reflect on and retry the demonstrated episode ``d``.

    Yields (kind, turns of the dialog): the episode; the reflection on it, which with compact prompts is part
    of the same dialog; and the retry, if the demonstration has one. ``guidance``: the form of the retry's
    hint: ``full_report``, ``suggestion`` or ``none``. ``hinted`` adds the episode with a hint at every turn,
    since a guided retry has only one. ``plan_thoughts``: the thought before a suggested action states that
    action. Raises ConfigError for these two if the environment's agents write no thoughts.
    """
    if (hinted or plan_thoughts) and not any(step.planned for step in d.steps):
        raise ConfigError(
            "hinted_share and plan_thoughts need an environment whose agents think before they act; the "
            f"demonstrations of {d.task.id} have no thoughts: leave both out"
        )

    # The episode: every response is trained except the expert's deliberate errors.
    prompts = list(_prompts(dialogue, d, d.steps))
    episode = [Exchange(m, s.response, s.imitate) for m, s in zip(prompts, d.steps, strict=True)]

    # The reflection on it. A compact one continues the episode's dialog; a full one is a separate dialog.
    # It is requested as a method requests it.
    turns = [Turn(s.now.text, s.response, (), (), (), FinishReason.END, s.action) for s in d.steps]
    turns[-1] = replace(turns[-1], error=d.error)  # the parse error that ended the episode, or None
    feedback = dialogue.closing(d.reward, d.success, len(d.steps), d.error, d.steps[-1].response)
    finished = Trajectory(d.task, 0, TrajectoryKind.BASE, turns, d.reward, d.success, feedback=feedback)
    request = reflection_request(dialogue, finished, d.first, ReflectionSettings.model_validate({}), prompts)
    reflection = Exchange(request, reflection_text(d.critique), True)
    if dialogue.style == "compact":
        yield ExampleKind.EPISODE, [*episode, reflection]
    else:
        yield ExampleKind.EPISODE, episode
        yield ExampleKind.REFLECTION, [reflection]

    if d.retry:
        yield ExampleKind.RETRY, _retry(dialogue, d, guidance, plan_thoughts)
    exchanges = _hinted(dialogue, d, plan_thoughts) if hinted else []
    if exchanges:
        yield ExampleKind.HINTED, exchanges


def _retry(
    dialogue: Dialogue,
    d: Demonstration,
    guidance: GuidanceForm,
    plan_thoughts: bool,
) -> list[Exchange]:
    """The prefix (not trained), the hint at the pivot, and the turns after it."""
    pivot = d.critique.turn
    assert pivot is not None, d.task.id
    steps = (*d.steps[:pivot], *d.retry)

    # The hint is made from the reflection's text, as in training, not from the critique itself.
    reflection = parse_reflection(reflection_text(d.critique), len(d.steps))
    assert isinstance(reflection, ParsedReflection)
    settings = ReflectionSettings.model_validate({"guidance": guidance})
    guide = with_guidance(Restart(pivot, guidance_text(reflection, settings, dialogue.release)), "user_turn")

    exchanges: list[Exchange] = []
    for k, (messages, step) in enumerate(zip(_prompts(dialogue, d, steps), steps, strict=True)):
        planned = step.planned if plan_thoughts and step.suggested else None
        shown = guide(messages).messages if k == pivot else messages
        exchanges.append(Exchange(shown, planned or step.response, k >= pivot))
    return exchanges


def _hinted(dialogue: Dialogue, d: Demonstration, plan_thoughts: bool) -> list[Exchange]:
    """The episode with a hint before each turn: its action and up to LONGEST_HINT - 1 following ones.

    A share of the hints, LATE_HINTS, begin with the action just taken if it is impossible by now: they
    imitate reflections that name a turn too late.
    """
    steps = [step for step in d.steps if step.planned and step.imitate]
    actions = [step.action for step in steps]
    rng = generator("hint lengths", d.task.id)
    lengths = rng.integers(1, LONGEST_HINT + 1, len(steps))
    late = rng.random(len(steps)) < LATE_HINTS
    exchanges: list[Exchange] = []
    for k, (messages, step) in enumerate(zip(_prompts(dialogue, d, steps), steps, strict=True)):
        possible = step.now.admissible
        too_late = late[k] and k > 0 and bool(possible) and actions[k - 1] not in possible
        suggestion = suggestion_of(actions[k - too_late : k + lengths[k]])
        guide = with_guidance(Restart(k, hint(suggestion)), "user_turn")
        response = step.planned if plan_thoughts else step.response
        exchanges.append(Exchange(guide(messages).messages, response, True))
    return exchanges


def _prompts(dialogue: Dialogue, d: Demonstration, steps: Sequence[Step]) -> Iterator[list[Message]]:
    """The messages before each step's response: the opening, then one observation each."""
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
    """Token ids and weights of a dialog, tokenised exchange by exchange as in sampling (SFTExample).

    Tokens of a response weigh 1 if its exchange is ``trained``, else 0; prompt tokens weigh
    ``prompt_weight``. ``stop``: what ends a response, as in the dialogue of the environment: ``end`` (the end
    token) or ``line`` (a line break).
    """
    ids: list[int] = []
    weight: list[float] = []
    for messages, response, trained in exchanges:
        ended = bool(ids) and ids[-1] == renderer.end_id
        prompt = renderer.following(messages, ended) if ids else renderer.opening(messages)
        answer = renderer.response(response, stop)
        ids += prompt + answer
        weight += [prompt_weight] * len(prompt) + [float(trained)] * len(answer)
    return SFTExample(np.asarray(ids, dtype=np.int32), np.asarray(weight, dtype=np.float32))
