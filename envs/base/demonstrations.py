"""Scripted demonstrations: an episode with errors, its critique, and a retry that follows the critique.

The same for every environment: ``ScriptedDemonstrator`` for actions, ``AnswerDemonstrator`` for problems whose
response ends with one answer, line by line.
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
from r3l.processes.worker import RecordedEnvironment

# A whole response that begins with the lines given, by an agent that errs so.
Write = Callable[[Task, Sequence[str], ErrorModel, np.random.Generator], list[str]]


@dataclass(frozen=True)
class ErrorRates:
    """How often scripted agents err (``error_rates`` of configs/sft).

    An agent's error rate per action is uniform in [``low``, ``high``]; ``systematic`` is the share of errors that are
    the same one in the same situation. Per episode: ``overlook`` is the probability of overlooking one kind of thing,
    ``invalid`` that of one invalid action.
    """

    low: float
    high: float
    systematic: float
    overlook: float
    invalid: float = 0.0

    def draw(self, rng: np.random.Generator) -> ErrorModel:
        rate = float(rng.uniform(self.low, self.high))
        return ErrorModel(rate, self.systematic, bool(rng.random() < self.overlook))


CAREFUL = ErrorRates(low=0, high=0, systematic=1, overlook=0)


@dataclass(frozen=True)
class Demonstrator(ABC):
    """Demonstrations on an environment's own engine and compact dialogue.

    ``task``: task k for SFT, without end. ``tasks_repeat``: different k may give the same task; each k then has agents
    of its own.
    """

    package: EnvironmentPackage[Any]
    task: Callable[[int], Task]
    tasks_repeat: bool

    @abstractmethod
    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        """Play ``task``, criticise the episode, and play again from the critique's turn.

        Deterministic in (task, variant).
        """

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each task of ``indices``."""

        def plays() -> Iterator[tuple[Task, int]]:
            for index in indices:
                task, offset = self.task(index), index * variants if self.tasks_repeat else 0
                yield from ((task, offset + variant) for variant in range(variants))

        return self._all(plays(), error_rates, max_turns)

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """What an error-free expert does in each task."""
        return self._all(((task, 0) for task in tasks), CAREFUL, max_turns)

    def _all(self, plays: Iterator[tuple[Task, int]], rates: ErrorRates, max_turns: int) -> Iterator[Demonstration]:
        engine = self.package.create({})
        recorded = RecordedEnvironment(engine, self.package.name)
        try:
            for task, variant in plays:
                yield self.demonstrate(recorded, task, variant, rates, max_turns)
        finally:
            engine.close()

    def dialogue(self, max_turns: int) -> Dialogue:
        return self.package.dialogue("compact", max_turns)


@dataclass
class ScriptedEpisode:
    """An agent at play: what it knows, how it errs, what it did, and the suggested actions that it takes first."""

    engine: RecordedEnvironment
    dialogue: Dialogue
    expert: ScriptedExpert
    now: Observation
    error_model: ErrorModel
    rng: np.random.Generator
    invalid_at: int | None = None  # the turn of an invalid action
    actions: list[str] = field(default_factory=list)
    suggested: list[str] = field(default_factory=list)
    error: StopReason | None = None  # the rule of the dialogue that ended the episode

    def play(self) -> list[Step]:
        """Act until the engine or a rule of the dialogue ends the episode."""
        steps: list[Step] = []
        while not self.now.done and self.error is None and len(self.actions) < self.dialogue.max_turns:
            steps.append(self._step())
        return steps

    def _step(self) -> Step:
        invalid = len(self.actions) == self.invalid_at
        suggested = not invalid and self._follows()
        if suggested:
            action = self.suggested.pop(0)
        elif invalid:
            action = self.expert.invalid_action(self.now, self.rng)
        else:
            action = self.expert.choose(self.now, self.actions, self.error_model, self.rng)
        response = write_response(self.expert.thought(), action)
        self.error = self.dialogue.parse(response, self.now, self.actions).error
        imitate, planned = not invalid and self.error is None, write_response(self.expert.planned(action), action)
        step = Step(self.now, response, action, imitate, suggested, planned)
        if self.error is None:
            self.actions.append(action)
            self.now = self.engine.step(action)
            self.expert.observe(action, self.now.text)
        return step

    def _follows(self) -> bool:
        """Whether the next suggested action is taken; one that is impossible ends the suggestion."""
        if not self.suggested or not self.expert.possible(self.suggested[0], self.now):
            self.suggested = []
        return bool(self.suggested)


@dataclass(frozen=True)
class ScriptedDemonstrator(Demonstrator):
    """Of actions. ``expert``: that of a task and its first observation."""

    expert: Callable[[Task, str], ScriptedExpert]

    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        rng = generator("demonstration", task.id, variant)
        first = engine.reset(task)
        expert, dialogue = self.expert(task, first.text), self.dialogue(max_turns)
        invalid = error_rates.invalid and rng.random() < error_rates.invalid
        invalid_at = int(rng.integers(expert.likely_turns(max_turns))) if invalid else None
        base = ScriptedEpisode(engine, dialogue, expert, first, error_rates.draw(rng), rng, invalid_at)
        steps = base.play()
        transcript = _transcript(task, first, steps, base)
        critique = dialogue.critique(transcript)
        assert critique is not None, task.id
        retry = None if critique.turn is None else self._guided(base, transcript, critique.turn)
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

    def _guided(self, base: ScriptedEpisode, transcript: Transcript, turn: int) -> ScriptedEpisode:
        """The same agent back at ``turn``. It follows the suggestion, then errs as before."""
        before = transcript.answers[:turn]
        expert = having_read(self.expert(transcript.task, transcript.first), before)
        suggested = expert.suggested()
        return replace(
            base,
            expert=expert,
            now=base.engine.rewind(turn),
            error_model=expert.guided(base.error_model, suggested),
            invalid_at=None,
            actions=[action for action, _ in before],
            suggested=suggested,
            error=None,
        )


def _transcript(task: Task, first: Observation, steps: Sequence[Step], episode: ScriptedEpisode) -> Transcript:
    texts = [*(step.now.text for step in steps[1:]), "" if episode.error else episode.now.text]
    answers = tuple((step.action, text) for step, text in zip(steps, texts, strict=True))
    return Transcript(task, first.text, answers, episode.now.success, episode.error)


@dataclass(frozen=True)
class AnswerDemonstrator(Demonstrator):
    """Of problems that end with one answer. ``solution``: the right lines of a task.

    ``imitates_errors``: wrong lines are taught too, so that a base checkpoint has something to unlearn; otherwise they
    serve to be criticised, and a retry has none.
    """

    solution: Callable[[Task], list[str]]
    write: Write
    imitates_errors: bool = True

    def demonstrate(
        self, engine: RecordedEnvironment, task: Task, variant: int, error_rates: ErrorRates, max_turns: int
    ) -> Demonstration:
        rng = generator("demonstration", task.id, variant)
        error_model = error_rates.draw(rng)
        first, steps, last = _play(engine, task, self.write(task, [], error_model, rng)[:max_turns])
        lines = tuple((step.action, "") for step in steps)
        critique = self.dialogue(max_turns).critique(Transcript(task, first.text, lines, last.success, None))
        assert critique is not None, (task.id, lines)
        retry, retry_success = list[Step](), False
        if critique.turn is not None:
            if not self.imitates_errors:
                steps = [replace(step, imitate=k < critique.turn) for k, step in enumerate(steps)]
                error_model = CAREFUL.draw(rng)
            prefix = self.solution(task)[: critique.turn + 1]  # up to the line that the critique asks for
            _, retried, end = _play(engine, task, self.write(task, prefix, error_model, rng)[:max_turns])
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


def _play(engine: RecordedEnvironment, task: Task, lines: Sequence[str]) -> tuple[Observation, list[Step], Observation]:
    """First observation, steps, last observation."""
    first = now = engine.reset(task)
    steps: list[Step] = []
    for line in lines:
        steps.append(Step(now, line, line))
        now = engine.step(line)
    return first, steps, now
