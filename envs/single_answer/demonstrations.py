"""Scripted demonstrations of single-answer problems: lines with errors, their critique, and a retry from that line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from r3l.envs.scripted.demonstrations import CAREFUL, ErrorRates
from r3l.envs.scripted.expert import ErrorModel
from r3l.envs.single_answer.engine import AnswerEngine, ResponseGrader
from r3l.envs.single_answer.options import AnswerOptions

from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Observation, Transcript
from r3l.core.seeds import generator
from r3l.core.task import Task

# A whole response that begins with the lines given, by an agent that errs so.
Write = Callable[[Task, Sequence[str], ErrorModel, np.random.Generator], list[str]]


@dataclass(frozen=True)
class AnswerDemonstrator:
    """What problems bring to their demonstrations.

    ``dialogue``: the text side of a turn limit, in the compact style. ``task``: task k of the supervised stage, without
    end. ``solution``: the right lines of a task.
    """

    dialogue: Callable[[int], Dialogue]
    grade: ResponseGrader
    task: Callable[[int], Task]
    solution: Callable[[Task], list[str]]
    write: Write

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each task of ``indices``."""
        for index in indices:
            task = self.task(index)
            for variant in range(variants):
                yield self.demonstrate(task, variant, error_rates, max_turns)

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """What an expert without errors does in each task."""
        return (self.demonstrate(task, 0, CAREFUL, max_turns) for task in tasks)

    def demonstrate(self, task: Task, variant: int, error_rates: ErrorRates, max_turns: int) -> Demonstration:
        """Answer ``task``, criticise the response, and answer again from the critique's line.

        Deterministic in (task, variant).
        """
        rng = generator("demonstration", task.id, variant)
        error_model = error_rates.draw(rng)
        first, steps, last = self._play(task, self.write(task, [], error_model, rng)[:max_turns])
        lines = tuple((step.action, "") for step in steps)
        critique = self.dialogue(max_turns).critique(Transcript(task, first.text, lines, last.success, None))
        assert critique is not None, (task.id, lines)
        retry, retry_success = list[Step](), False
        if critique.turn is not None:
            prefix = self.solution(task)[: critique.turn + 1]  # up to the line that the critique asks for
            _, retried, end = self._play(task, self.write(task, prefix, error_model, rng)[:max_turns])
            retry, retry_success = retried[critique.turn :], end.success
        return Demonstration(
            task=task,
            first=first,
            steps=tuple(steps),
            reward=last.reward,
            success=last.success,
            error=None,
            critique=critique,
            retry=tuple(retry),
            retry_success=retry_success,
        )

    def _play(self, task: Task, lines: Sequence[str]) -> tuple[Observation, list[Step], Observation]:
        """First observation, steps, last observation."""
        engine = AnswerEngine(AnswerOptions(), self.grade)
        first = now = engine.reset(task)
        steps: list[Step] = []
        for line in lines:
            steps.append(Step(now, line, line))
            now = engine.step(line)
        return first, steps, now
