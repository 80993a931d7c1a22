"""Scripted WebShop demonstrations: an erring customer's episode, its review, and a retry that follows the review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from envs.webshop.demonstrator import Belief, Temperament, belief_after, choose, plan, review, thought
from envs.webshop.dialogue import WebshopDialogue
from envs.webshop.engine import WebshopEngine
from envs.webshop.panels import warmstart_task
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Environment, Observation
from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

_CAREFUL = Temperament(0.0, 0.0, forgets=False)
_PROOF_TURNS = 10  # within which a careful customer must succeed (configs/envs/webshop.yaml, nano)


@dataclass(frozen=True)
class Manner:
    """How often the scripted customers err: ``slip`` per decision, ``forget`` per episode."""

    slip_low: float
    slip_high: float
    habit: float
    forget: float
    max_turns: int

    def temperament(self, rng: np.random.Generator) -> Temperament:
        """One customer's character."""
        slip = float(rng.uniform(self.slip_low, self.slip_high))
        return Temperament(slip, self.habit, bool(rng.random() < self.forget))


@dataclass
class _Scene:
    """A customer at play: what it believes, what it did, what it must do first (``todo``)."""

    engine: Environment
    belief: Belief
    now: Observation
    who: Temperament
    rng: np.random.Generator
    max_turns: int
    actions: list[str]
    todo: list[str]

    def play(self) -> tuple[list[Step], list[object], str | None]:
        """Act until the episode ends: the steps, the engine's state before each, and why a rule ended it."""
        dialogue = WebshopDialogue("compact", self.max_turns)
        steps: list[Step] = []
        marks: list[object] = []
        while not self.now.done and len(self.actions) < self.max_turns:
            marks.append(self.engine.snapshot())
            action = self._next_action()
            response = f"<think>{thought(self.belief)}</think><action>{action}</action>"
            error = dialogue.parse(response, self.now, self.actions).error
            steps.append(Step(self.now, response, action, imitate=error is None))
            if error is not None:
                return steps, marks, error
            self.actions.append(action)
            self.now = self.engine.step(action)
            self.belief.see(action, self.now.text)
        return steps, marks, None

    def _next_action(self) -> str:
        if self.todo and (self.todo[0] in self.now.admissible or self.todo[0].startswith("search[")):
            return self.todo.pop(0)
        self.todo = []
        return choose(self.belief, self.now.admissible, self.who, self.rng)


def demonstrate(engine: Environment, task: Task, variant: int, manner: Manner) -> Demonstration:
    """Play ``task`` once, review it, and play it again from the pivot. Deterministic in (task, variant)."""
    rng = generator("demonstration", task.id, variant)
    who = manner.temperament(rng)
    first = engine.reset(task)
    scene = _Scene(engine, Belief.at_start(first.text), first, who, rng, manner.max_turns, [], [])
    steps, marks, error = scene.play()
    last = scene.now
    answers = _answers(steps, last.text)
    report = review(first.text, answers, last.success, manner.max_turns)
    pivot = report["retry_from_step"]
    retry: list[Step] = []
    if pivot is not None:
        belief = belief_after(first.text, answers[:pivot])
        before = [action for action, _ in answers[:pivot]]
        now = engine.restore(marks[pivot])
        again = _Scene(engine, belief, now, who, rng, manner.max_turns, before, plan(belief))
        retry, _, _ = again.play()
    return Demonstration(
        task=task,
        first=first,
        steps=tuple(steps),
        reward=last.reward if error is None else 0.0,
        success=last.success,
        error=error,
        review=report,
        retry=tuple(retry),
        retry_success=pivot is not None and again.now.success,
    )


def demonstrations(indices: Sequence[int], variants: int, manner: Manner) -> Iterator[Demonstration]:
    """``variants`` demonstrations on each warm-start goal; indices beyond the goals begin again (other variants)."""
    engine = WebshopEngine()
    try:
        for index in indices:
            task = warmstart_task(index)
            for variant in range(variants):
                yield demonstrate(engine, task, index * variants + variant, manner)
    finally:
        engine.close()


def prove(task: Task) -> int:
    """Play ``task`` with a careful customer; its number of turns. Raises DataError where that does not succeed."""
    engine, rng = WebshopEngine(), generator("proof", task.id)
    first = engine.reset(task)
    scene = _Scene(engine, Belief.at_start(first.text), first, _CAREFUL, rng, _PROOF_TURNS, [], [])
    steps, _, _ = scene.play()
    if not scene.now.success:
        raise DataError(
            f"task {task.id} is not solved in {_PROOF_TURNS} turns by a careful customer, reward {scene.now.reward:g}: "
            f"{[step.action for step in steps]}; change the catalogue in configs/panels"
        )
    return len(steps)


def _answers(steps: Sequence[Step], last: str) -> list[tuple[str, str]]:
    """(action, observation after it) of every step."""
    texts = [*(step.now.text for step in steps[1:]), last]
    return [(step.action, text) for step, text in zip(steps, texts, strict=True)]
