"""Scripted ALFWorld demonstrations: an erring agent's episode, its review, and a retry that follows the review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.alfworld.demonstrator import Belief, Temperament, belief_after, choose, plan, review, thought
from envs.alfworld.dialogue import INADMISSIBLE
from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.goals import Goal, parse_goal
from envs.alfworld.panels import warmstart_task
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Environment, Observation
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

    engine: Environment
    belief: Belief
    now: Observation
    who: Temperament
    rng: np.random.Generator
    max_turns: int
    actions: list[str]
    todo: list[str]
    blunder_at: int | None = None

    def play(self) -> tuple[list[Step], list[object]]:
        """Act until the episode ends; the steps, and the engine's state before each of them."""
        steps: list[Step] = []
        marks: list[object] = []
        while not self.now.done and len(self.actions) < self.max_turns:
            marks.append(self.engine.snapshot())
            if len(self.actions) == self.blunder_at:
                steps.append(self._step(_impossible(self.belief, self.now, self.rng), imitate=False))
                break
            steps.append(self._step(self._next_action(), imitate=True))
            self.actions.append(steps[-1].action)
            self.now = self.engine.step(steps[-1].action)
            self.belief.see(steps[-1].action, self.now.text)
        return steps, marks

    def _step(self, action: str, imitate: bool) -> Step:
        response = f"<think>{thought(self.belief)}</think><action>{action}</action>"
        return Step(self.now, response, action, imitate)

    def _next_action(self) -> str:
        if self.todo and self.todo[0] in self.now.admissible:
            return self.todo.pop(0)
        self.todo = []
        return choose(self.belief, self.now.admissible, self.actions, self.who, self.rng)


def demonstrate(engine: Environment, task: Task, variant: int, manner: Manner) -> Demonstration:
    """Play ``task`` once, review it, and play it again from the pivot. Deterministic in (task, variant)."""
    rng = generator("demonstration", task.id, variant)
    goal = parse_goal(str(task.payload["goal_text"]))
    first = engine.reset(task)
    blunder_at = int(rng.integers(manner.max_turns)) if rng.random() < manner.blunder else None
    who = manner.temperament(rng)
    scene = _Scene(engine, Belief.at_start(goal, first.text), first, who, rng, manner.max_turns, [], [], blunder_at)
    steps, marks = scene.play()
    last = scene.now
    blundered = not steps[-1].imitate
    answers = _answers(steps, "" if blundered else last.text)
    report = review(goal, first.text, answers, last.success, manner.max_turns, blundered)
    pivot = report["retry_from_step"]
    retry: list[Step] = []
    if pivot is not None:
        again = _guided(engine, goal, first, answers[:pivot], marks[pivot], who, rng, manner.max_turns)
        retry, _ = again.play()
    return Demonstration(
        task=task,
        first=first,
        steps=tuple(steps),
        reward=last.reward,
        success=last.success,
        error=INADMISSIBLE if blundered else None,
        review=report,
        retry=tuple(retry),
        retry_success=pivot is not None and again.now.success,
    )


def _answers(steps: Sequence[Step], last: str) -> list[tuple[str, str]]:
    """(action, observation after it) of every step."""
    texts = [*(step.now.text for step in steps[1:]), last]
    return [(step.action, text) for step, text in zip(steps, texts, strict=True)]


def _guided(
    engine: Environment,
    goal: Goal,
    first: Observation,
    before: Sequence[tuple[str, str]],
    mark: object,
    who: Temperament,
    rng: np.random.Generator,
    max_turns: int,
) -> _Scene:
    """The same agent back at the pivot. It follows the hint, then errs as before."""
    belief = belief_after(goal, first.text, before)
    hint = plan(belief)
    reminded = any(step.startswith(("heat ", "cool ", "clean ")) for step in hint)
    calm = replace(who, forgets=who.forgets and not reminded)
    actions = [action for action, _ in before]
    return _Scene(engine, belief, engine.restore(mark), calm, rng, max_turns, actions, hint)


def _impossible(belief: Belief, now: Observation, rng: np.random.Generator) -> str:
    """An action in the right words that the engine does not admit here."""
    verbs = [f"take {belief.goal.object} {n} from {r}" for n in (1, 2) for r in belief.receptacles]
    verbs += [f"open {r}" for r in belief.receptacles]
    return str(rng.choice([action for action in verbs if action not in now.admissible]))


def demonstrations(indices: Sequence[int], variants: int, manner: Manner) -> Iterator[Demonstration]:
    """``variants`` demonstrations on each warm-start house; houses are numbered without end."""
    engine = AlfworldEngine()
    try:
        for index in indices:
            task = warmstart_task(index)
            for variant in range(variants):
                yield demonstrate(engine, task, variant, manner)
    finally:
        engine.close()
