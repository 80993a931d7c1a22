"""Scripted demonstrations: an episode with errors, its critique, and a retry that follows the critique.

``ScriptedDemonstrator`` plays environments with actions, ``AnswerDemonstrator`` writes the lines of
problems with one final answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from r3l.envs.base.action_parsers import write_response
from r3l.envs.base.experts import ErrorModel, ScriptedExpert, having_read
from r3l.envs.base.package import EnvironmentPackage

from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Observation, StopReason, Transcript
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.validation import close_all
from r3l.processes.worker import RecordedEnvironment

# (task, first lines, error model, generator) -> all lines of a response that begins with the first lines.
Write = Callable[[Task, Sequence[str], ErrorModel, np.random.Generator], list[str]]


@dataclass(frozen=True)
class ErrorRates:
    """Error rates of scripted agents (``error_rates`` of configs/sft).

    Each episode has an agent whose error rate per action is drawn uniformly from [``low``, ``high``].
    ``systematic``: the share of errors that recur in the same situation. Per episode, the agent overlooks one
    kind of thing (such as cleaning an object) with probability ``overlook``, and takes one invalid action
    with probability ``invalid``. Raises ValueError for a rate outside of 0 to 1, and for ``low`` above
    ``high``.
    """

    low: float
    high: float
    systematic: float
    overlook: float
    invalid: float = 0.0

    def __post_init__(self) -> None:
        for name, rate in vars(self).items():
            if not 0 <= rate <= 1:
                raise ValueError(f"error rate {name} is {rate:g}; it must be from 0 to 1")
        if self.low > self.high:
            raise ValueError(f"error rate low, {self.low:g}, is above high, {self.high:g}; swap them")

    def draw(self, rng: np.random.Generator) -> ErrorModel:
        """Draw the error model of one episode's agent."""
        rate = float(rng.uniform(self.low, self.high))
        return ErrorModel(rate, self.systematic, bool(rng.random() < self.overlook))


CAREFUL = ErrorRates(low=0, high=0, systematic=1, overlook=0)


@dataclass(frozen=True)
class Demonstrator(ABC):
    """Makes demonstrations (episode, critique, retry) on an environment's engine and compact dialogue.

    ``task(k)`` is task k of the supervised stage (SFT), for any k >= 0. ``tasks_repeat``: two numbers may
    give the same task; then the agents of each number are drawn separately.
    """

    package: EnvironmentPackage[Any]
    task: Callable[[int], Task]
    tasks_repeat: bool

    @abstractmethod
    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        """Play ``task`` with an erring agent, criticise the episode, and retry from the critique's turn.

        ``variant``: number of the demonstration within its task; the agent's errors are drawn by task
        and variant, so the same two always give the same demonstration.
        """

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each SFT task whose number is in ``indices``, played one by one."""

        def tasks_and_variants() -> Iterator[tuple[Task, int]]:
            for index in indices:
                task = self.task(index)
                offset = index * variants if self.tasks_repeat else 0
                for variant in range(variants):
                    yield task, offset + variant

        return self._all(tasks_and_variants(), error_rates, max_turns)

    def expert_demonstrations(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """Play each task once with the error-free expert, one by one; yields the demonstrations.

        ``max_turns``: turn limit of an episode.
        Used to check that tasks can be solved and to compare a model with the expert, not for SFT.
        """
        return self._all(((task, 0) for task in tasks), CAREFUL, max_turns)

    def _all(
        self, tasks_and_variants: Iterator[tuple[Task, int]], rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """Play all on one engine, and close it at the end."""
        engine = self.package.create({})
        recorded = RecordedEnvironment(engine, self.package.name)
        try:
            for task, variant in tasks_and_variants:
                yield self.demonstrate(recorded, task, variant, rates, max_turns)
        finally:
            close_all(self.package.name, [engine])

    def dialogue(self, max_turns: int) -> Dialogue:
        """The environment's dialogue in the compact style, with default options."""
        return self.package.dialogue("compact", max_turns)


@dataclass
class ScriptedEpisode:
    """State of a scripted agent in an episode.

    ``invalid_at``: turn of its one invalid action, None for none. ``actions``: those played so far.
    ``suggested``: the critique's actions that are still to be played. ``error``: why a rule of the dialogue
    ended the episode, else None.
    """

    engine: RecordedEnvironment
    dialogue: Dialogue
    expert: ScriptedExpert
    now: Observation
    error_model: ErrorModel
    rng: np.random.Generator
    invalid_at: int | None = None
    actions: list[str] = field(default_factory=list)
    suggested: list[str] = field(default_factory=list)
    error: StopReason | None = None

    def play(self) -> list[Step]:
        """Act until the engine, a rule of the dialogue or its turn limit ends the episode; returns the steps.

        Changes this object: ``now``, ``actions``, ``suggested``, ``error``, and the expert.
        """
        steps: list[Step] = []
        while not self.now.done and self.error is None and len(self.actions) < self.dialogue.max_turns:
            # Take the planned invalid action, else the next suggested one if possible, else the expert's.
            invalid = len(self.actions) == self.invalid_at
            suggested = False
            if invalid:
                action = self.expert.invalid_action(self.now, self.rng)
            elif self.suggested and self.expert.possible(self.suggested[0], self.now):
                action = self.suggested.pop(0)
                suggested = True
            else:
                self.suggested = []
                action = self.expert.choose(self.now, self.actions, self.error_model, self.rng)

            # The dialogue judges the response as it judges a policy's; an error is shown but never imitated.
            response = write_response(self.expert.thought(), action)
            self.error = self.dialogue.parse(response, self.now, self.actions).error
            imitate = not invalid and self.error is None
            planned = write_response(self.expert.planned(action), action)
            steps.append(Step(self.now, response, action, imitate, suggested, planned))
            if self.error is None:
                self.actions.append(action)
                self.now = self.engine.step(action)
                self.expert.observe(action, self.now.text)
        return steps


@dataclass(frozen=True)
class ScriptedDemonstrator(Demonstrator):
    """Demonstrator for environments with actions; ``expert(task, first observation)`` makes its expert."""

    expert: Callable[[Task, str], ScriptedExpert]

    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        """Play with an erring expert, criticise, and follow the critique; see :class:`Demonstrator`.

        There is no retry if the critique names no turn.
        """
        # Play the episode with errors. The order of the draws decides what base checkpoints are trained on.
        rng = generator("demonstration", task.id, variant)
        first = engine.reset(task)
        expert = self.expert(task, first.text)
        dialogue = self.dialogue(max_turns)
        invalid = error_rates.invalid and rng.random() < error_rates.invalid
        invalid_at = int(rng.integers(expert.likely_turns(max_turns))) if invalid else None
        base = ScriptedEpisode(engine, dialogue, expert, first, error_rates.draw(rng), rng, invalid_at)
        steps = base.play()

        # Criticise it.
        texts = [*(step.now.text for step in steps[1:]), "" if base.error else base.now.text]
        answers = tuple((step.action, text) for step, text in zip(steps, texts, strict=True))
        critique = dialogue.critique(Transcript(task, first.text, answers, base.now.success, base.error))
        assert critique is not None, task.id

        # Retry: the same agent back at the critique's turn follows the suggestion, then errs as before.
        retry: ScriptedEpisode | None = None
        if critique.turn is not None:
            before = answers[: critique.turn]
            retrying = having_read(self.expert(task, first.text), before)
            suggested = retrying.suggested()
            retry = replace(
                base,
                expert=retrying,
                now=engine.rewind(critique.turn),
                error_model=retrying.guided(base.error_model, suggested),
                invalid_at=None,
                actions=[action for action, _ in before],
                suggested=suggested,
                error=None,
            )
        retry_steps = retry.play() if retry else []
        return Demonstration(
            task=task,
            first=first,
            steps=tuple(steps),
            reward=0.0 if base.error else base.now.reward,
            success=base.now.success,
            error=base.error,
            critique=critique,
            retry=tuple(retry_steps),
            retry_success=retry is not None and retry.now.success,
        )


@dataclass(frozen=True)
class AnswerDemonstrator(Demonstrator):
    """Demonstrator for problems with one final answer.

    ``solution(task)`` gives the lines of a correct response; ``write`` makes one with errors.
    ``imitates_errors``: wrong lines are training targets too, so that a base checkpoint has something to
    unlearn. If False, the lines from the criticised one on are no training targets, and the retry after the
    critique has no errors.
    """

    solution: Callable[[Task], list[str]]
    write: Write
    imitates_errors: bool = True

    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        """Write a response with errors, criticise it, and correct it up to the criticised line.

        See :class:`Demonstrator`. There is no retry if the critique names no line.
        """
        rng = generator("demonstration", task.id, variant)
        error_model = error_rates.draw(rng)
        first, steps, last = _play(engine, task, self.write(task, [], error_model, rng)[:max_turns])
        lines = tuple((step.action, "") for step in steps)
        critique = self.dialogue(max_turns).critique(Transcript(task, first.text, lines, last.success, None))
        assert critique is not None, (task.id, lines)

        # Retry: correct lines up to the one that the critique corrects, then the agent's own.
        retry: list[Step] = []
        retry_success = False
        if critique.turn is not None:
            if not self.imitates_errors:
                steps = [replace(step, imitate=k < critique.turn) for k, step in enumerate(steps)]
                error_model = CAREFUL.draw(rng)
            prefix = self.solution(task)[: critique.turn + 1]
            _, retried, end = _play(engine, task, self.write(task, prefix, error_model, rng)[:max_turns])
            retry = retried[critique.turn :]
            retry_success = end.success
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


def _play(
    engine: RecordedEnvironment,
    task: Task,
    lines: Sequence[str],
) -> tuple[Observation, list[Step], Observation]:
    """Step through ``lines``: (first observation, steps, last observation)."""
    first = engine.reset(task)
    now = first
    steps: list[Step] = []
    for line in lines:
        steps.append(Step(now, line, line))
        now = engine.step(line)
    return first, steps, now
