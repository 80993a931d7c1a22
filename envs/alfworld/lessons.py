"""Scripted ALFWorld demonstrations: an erring agent's episode, its review, and a retry that follows the review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.alfworld.demonstrator import Belief, Temperament, choose, plan, review, thought
from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.goals import parse_goal
from envs.alfworld.panels import warmstart_task
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Environment, Observation
from r3l.core.seeds import generator
from r3l.core.task import Task


@dataclass(frozen=True)
class Manner:
    """How often the scripted agents err (rates per decision and per episode)."""

    slip_low: float
    slip_high: float
    habit: float
    forget: float
    max_turns: int

    def temperament(self, rng: np.random.Generator) -> Temperament:
        """One agent's character."""
        slip = float(rng.uniform(self.slip_low, self.slip_high))
        return Temperament(slip, self.habit, bool(rng.random() < self.forget))


def demonstrate(engine: Environment, task: Task, variant: int, manner: Manner) -> Demonstration:
    """Play ``task`` once, review it, and play it again from the pivot. Deterministic in (task, variant)."""
    rng = generator("demonstration", task.id, variant)
    who = manner.temperament(rng)
    first = engine.reset(task)
    goal = parse_goal(str(task.payload["goal_text"]))
    belief = Belief.at_start(goal, first.text)
    marks = [engine.snapshot()]
    steps, last = _play(engine, belief, first, [], who, rng, manner.max_turns, marks)
    after = [s.now.text for s in steps[1:]] + [last.text]
    answers = list(zip((s.action for s in steps), after, strict=True))
    report = review(goal, first.text, answers, last.success, manner.max_turns)
    pivot = report["retry_from_step"]
    retry: list[Step] = []
    again = last
    if pivot is not None:
        again_belief = Belief.at_start(goal, first.text)
        for step, text in zip(steps[:pivot], after, strict=False):
            again_belief.see(step.action, text)
        now = engine.restore(marks[pivot])
        guided = plan(again_belief)
        calm = replace(who, forgets=who.forgets and not _mends_state(guided))
        retry, again = _play(
            engine, again_belief, now, [s.action for s in steps[:pivot]], calm, rng, manner.max_turns, [], guided
        )
    return Demonstration(task, first, tuple(steps), last.reward, last.success, report, tuple(retry), again.success)


def _mends_state(guided: Sequence[str]) -> bool:
    return any(step.startswith(("heat ", "cool ", "clean ")) for step in guided)


def _play(
    engine: Environment,
    belief: Belief,
    now: Observation,
    actions: list[str],
    who: Temperament,
    rng: np.random.Generator,
    max_turns: int,
    marks: list[object],
    guided: Sequence[str] = (),
) -> tuple[list[Step], Observation]:
    """Act until the end, following ``guided`` first; ``marks`` collects a snapshot after every step."""
    steps: list[Step] = []
    actions, todo = list(actions), list(guided)
    while not now.done and len(actions) < max_turns:
        thinking = thought(belief)
        if todo and todo[0] in now.admissible:
            action = todo.pop(0)
        else:
            todo = []
            action = choose(belief, now.admissible, actions, who, rng)
        steps.append(Step(now, f"<think>{thinking}</think><action>{action}</action>", action))
        actions.append(action)
        now = engine.step(action)
        marks.append(engine.snapshot())
        belief.see(action, now.text)
    return steps, now


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
