"""Scripted ScienceWorld demonstrations: an erring agent's episode, its review, and a retry that follows the review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from envs.responses import write_response
from envs.scienceworld.demonstrator import Belief, Temperament, belief_after, choose, known_plan, review, thought
from envs.scienceworld.engine import ScienceWorldEngine
from envs.scienceworld.panels import warmstart_task
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Observation
from r3l.core.pool import Recorded
from r3l.core.seeds import generator
from r3l.core.task import Task


@dataclass(frozen=True)
class Manner:
    """How often the scripted agents err: ``slip`` per decision, ``forget`` and ``blunder`` per episode."""

    slip_low: float
    slip_high: float
    habit: float
    forget: float
    blunder: float
    max_turns: int

    def temperament(self, rng: np.random.Generator) -> Temperament:
        """One agent's character."""
        slip = float(rng.uniform(self.slip_low, self.slip_high))
        return Temperament(slip, self.habit, bool(rng.random() < self.forget))


@dataclass
class _Scene:
    """An agent at play: what it believes, what it did, what it must do first (``todo``)."""

    engine: Recorded
    belief: Belief
    now: Observation
    who: Temperament
    rng: np.random.Generator
    max_turns: int
    actions: list[str]
    todo: list[str]
    blunder_at: int | None = None

    def play(self) -> list[Step]:
        """Act until the episode ends."""
        steps: list[Step] = []
        while not self.now.done and len(self.actions) < self.max_turns:
            blunders = len(self.actions) == self.blunder_at
            action = self._impossible() if blunders else self._next_action()
            steps.append(Step(self.now, write_response(thought(self.belief), action), action, imitate=not blunders))
            self.actions.append(action)
            self.now = self.engine.step(action)
            self.belief.see(action, self.now.text)
        return steps

    def _next_action(self) -> str:
        return self.todo.pop(0) if self.todo else choose(self.belief, self.actions, self.who, self.rng)

    def _impossible(self) -> str:
        """An action in the right words on a thing that is not here: it costs a turn."""
        names = ("elephant egg", "red candle", "silver key", "glass marble")  # in no ScienceWorld task
        return f"{self.rng.choice(['focus on', 'pick up'])} {self.rng.choice(names)}"


def demonstrate(engine: Recorded, task: Task, variant: int, manner: Manner) -> Demonstration:
    """Play ``task`` once, review it, and play it again from the pivot. Deterministic in (task, variant)."""
    rng = generator("demonstration", task.id, variant)
    solution = task.payload["solution"]
    first = engine.reset(task)
    blunder_at = int(rng.integers(len(solution) + 2)) if rng.random() < manner.blunder else None
    who = manner.temperament(rng)
    belief = Belief.at_start(solution, first.text)
    scene = _Scene(engine, belief, first, who, rng, manner.max_turns, [], [], blunder_at)
    steps, last = scene.play(), scene.now
    answers = _answers(steps, last.text)
    report = review(solution, first.text, answers, last.success, manner.max_turns)
    pivot = report["retry_from_step"]
    retry: list[Step] = []
    if pivot is not None:
        again = _guided(scene, first, answers[:pivot])
        retry = again.play()
    return Demonstration(
        task=task,
        first=first,
        steps=tuple(steps),
        reward=last.reward,
        success=last.success,
        error=None,
        review=report,
        retry=tuple(retry),
        retry_success=pivot is not None and again.now.success,
    )


def _answers(steps: Sequence[Step], last: str) -> list[tuple[str, str]]:
    """(action, observation after it) of every step."""
    texts = [*(step.now.text for step in steps[1:]), last]
    return [(step.action, text) for step, text in zip(steps, texts, strict=True)]


def _guided(scene: _Scene, first: Observation, before: Sequence[tuple[str, str]]) -> _Scene:
    """The same agent back at the pivot. It follows the hint, then errs as before."""
    belief = belief_after(scene.belief.solution, first.text, before)
    now = scene.engine.rewind(len(before))
    calm = Temperament(scene.who.slip, scene.who.habit, forgets=False)
    actions = [action for action, _ in before]
    return _Scene(scene.engine, belief, now, calm, scene.rng, scene.max_turns, actions, known_plan(belief))


def demonstrations(indices: Sequence[int], variants: int, manner: Manner) -> Iterator[Demonstration]:
    """``variants`` demonstrations on each warm-start problem; their numbers run on without end."""
    engine = ScienceWorldEngine()
    recorded = Recorded(engine)
    try:
        for index in indices:
            task = warmstart_task(index)
            for variant in range(variants):
                # The problems repeat after a round: so do not the agents.
                yield demonstrate(recorded, task, index * variants + variant, manner)
    finally:
        engine.close()
