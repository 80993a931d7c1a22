"""Scripted demonstrations: an erring agent's episode, its review, and a retry that follows the review.

The same for every environment; what differs is a ``Curriculum``: its engine, text side, tasks and beliefs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Environment, Observation, Transcript
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.worker import RecordedEnvironment
from r3l.envs.scripted.expert import Answers, ErrorModel, ScriptedExpert, after, criticise
from r3l.envs.tagged_text.responses import write_response


@dataclass(frozen=True)
class ErrorRates:
    """How often the scripted agents err: ``slip`` per decision, ``forget`` and ``blunder`` per episode."""

    slip_low: float
    slip_high: float
    habit: float
    forget: float
    blunder: float = 0.0

    def error_model(self, rng: np.random.Generator) -> ErrorModel:
        """One agent's character."""
        slip = float(rng.uniform(self.slip_low, self.slip_high))
        return ErrorModel(slip, self.habit, bool(rng.random() < self.forget))


CAREFUL = ErrorRates(slip_low=0, slip_high=0, habit=1, forget=0)


@dataclass(frozen=True)
class Curriculum:
    """What an environment brings to its demonstrations.

    ``task``: warm-start task k, without end. ``begin``: the expert after a first observation. ``fresh``: no two k
    give the same task; where tasks come round again, later rounds get agents of their own.
    """

    engine: Callable[[], Environment]
    dialogue: Callable[[int], Dialogue]  # of a turn limit, in the compact style
    task: Callable[[int], Task]
    begin: Callable[[Task, str], ScriptedExpert]
    fresh: bool

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations on each warm-start task."""
        engine = self.engine()
        recorded = RecordedEnvironment(engine)
        try:
            for index in indices:
                task = self.task(index)
                for variant in range(variants):
                    number = variant if self.fresh else index * variants + variant
                    yield demonstrate(self, recorded, task, number, error_rates, max_turns)
        finally:
            engine.close()


@dataclass
class Scene:
    """An agent at play: what it believes, what it did, what it must do first (``todo``)."""

    engine: RecordedEnvironment
    dialogue: Dialogue
    expert: ScriptedExpert
    now: Observation
    who: ErrorModel
    rng: np.random.Generator
    actions: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    blunder_at: int | None = None
    error: str | None = None

    def play(self) -> list[Step]:
        """Act until the engine or a rule of the dialogue (``error``) ends the episode."""
        steps: list[Step] = []
        while not self.now.done and self.error is None and len(self.actions) < self.dialogue.max_turns:
            steps.append(self._step())
        return steps

    def _step(self) -> Step:
        blunders = len(self.actions) == self.blunder_at
        action = self.expert.blunder(self.now, self.rng) if blunders else self._next_action()
        response = write_response(self.expert.thought(), action)
        self.error = self.dialogue.parse(response, self.now, self.actions).error
        step = Step(self.now, response, action, imitate=not blunders and self.error is None)
        if self.error is None:
            self.actions.append(action)
            self.now = self.engine.step(action)
            self.expert.see(action, self.now.text)
        return step

    def _next_action(self) -> str:
        if self.todo and self.expert.possible(self.todo[0], self.now):
            return self.todo.pop(0)
        self.todo = []
        return self.expert.choose(self.now, self.actions, self.who, self.rng)


def demonstrate(
    curriculum: Curriculum,
    engine: RecordedEnvironment,
    task: Task,
    variant: int,
    error_rates: ErrorRates,
    max_turns: int,
) -> Demonstration:
    """Play ``task`` once, review it, and play it again from the pivot. Deterministic in (task, variant)."""
    rng = generator("demonstration", task.id, variant)
    first = engine.reset(task)
    scene = Scene(engine, curriculum.dialogue(max_turns), curriculum.begin(task, first.text), first, _NOBODY, rng)
    if error_rates.blunder and rng.random() < error_rates.blunder:
        scene.blunder_at = int(rng.integers(scene.expert.blunder_turns(max_turns)))
    scene.who = error_rates.error_model(rng)
    steps = scene.play()
    answers = _answers(steps, "" if scene.error else scene.now.text)
    transcript = Transcript(task, first.text, tuple(answers), scene.now.success, scene.error)
    critique = criticise(curriculum.begin(task, first.text), transcript, max_turns)
    again, retry = None, list[Step]()
    if (pivot := critique.turn) is not None:
        again = _guided(scene, after(curriculum.begin(task, first.text), answers[:pivot]), answers[:pivot])
        retry = again.play()
    return Demonstration(
        task=task,
        first=first,
        steps=tuple(steps),
        reward=0.0 if scene.error else scene.now.reward,
        success=scene.now.success,
        error=scene.error,
        critique=critique,
        retry=tuple(retry),
        retry_success=again is not None and again.now.success,
    )


_NOBODY = ErrorModel(0.0, 0.0, forgets=False)


def _guided(scene: Scene, expert: ScriptedExpert, before: Answers) -> Scene:
    """The same agent back at the pivot. It follows the hint, then errs as before."""
    hint = expert.hint()
    who = expert.reminded(scene.who, hint)
    actions = [action for action, _ in before]
    now = scene.engine.rewind(len(before))
    return Scene(scene.engine, scene.dialogue, expert, now, who, scene.rng, actions, hint)


def _answers(steps: Sequence[Step], last: str) -> list[tuple[str, str]]:
    texts = [*(step.now.text for step in steps[1:]), last]
    return [(step.action, text) for step, text in zip(steps, texts, strict=True)]
