"""Scripted demonstrations of one-answer problems: lines that err, the critic's finding, and a retry from that line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Observation, Transcript
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.envs.scripted.demonstrations import ErrorRates
from r3l.envs.scripted.expert import ErrorModel
from r3l.envs.single_answer.engine import AnswerEngine, AnswerOptions, Judge

# A whole response that begins with the lines given, as somebody would write it who errs so.
Write = Callable[[Task, Sequence[str], ErrorModel, np.random.Generator], list[str]]


@dataclass(frozen=True)
class AnswerCurriculum:
    """What problems bring to their demonstrations. ``task``: warm-start task k; ``solution``: its right lines."""

    dialogue: Callable[[int], Dialogue]  # of a turn limit, in the compact style
    judge: Judge
    task: Callable[[int], Task]
    solution: Callable[[Task], list[str]]
    write: Write

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations on each warm-start task."""
        for index in indices:
            task = self.task(index)
            for variant in range(variants):
                yield self.demonstrate(task, variant, error_rates, max_turns)

    def demonstrate(self, task: Task, variant: int, error_rates: ErrorRates, max_turns: int) -> Demonstration:
        """Answer ``task`` once, review it, and answer again from the pivot. Deterministic in (task, variant)."""
        rng = generator("demonstration", task.id, variant)
        dialogue, who = self.dialogue(max_turns), error_rates.error_model(rng)
        first, steps, last = self._play(task, self.write(task, [], who, rng)[:max_turns])
        answers = tuple((step.action, "") for step in steps)
        critique = dialogue.critique(Transcript(task, first.text, answers, last.success, None))
        assert critique is not None, (task.id, answers)
        retry, again = list[Step](), None
        if (pivot := critique.turn) is not None:
            kept = self.solution(task)[: pivot + 1]  # what was right before, and the line that the review asks for
            _, written, again = self._play(task, self.write(task, kept, who, rng)[:max_turns])
            retry = written[pivot:]
        return Demonstration(
            task=task,
            first=first,
            steps=tuple(steps),
            reward=last.reward,
            success=last.success,
            error=None,
            critique=critique,
            retry=tuple(retry),
            retry_success=again is not None and again.success,
        )

    def _play(self, task: Task, lines: Sequence[str]) -> tuple[Observation, list[Step], Observation]:
        """First observation, steps, last observation."""
        engine = AnswerEngine(AnswerOptions(), self.judge)
        first = now = engine.reset(task)
        steps: list[Step] = []
        for line in lines:
            steps.append(Step(now, line, line))
            now = engine.step(line)
        return first, steps, now
