"""RLTF's reasoning puzzles (Knights & Knaves, binary matrix, shortest path), and countdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from r3l.envs.base.answers import AnswerOptions
from r3l.envs.base.package import ConstantAnswer, EnvironmentPackage

from r3l.core.demonstration import Demonstration
from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import AnswerDemonstrator
    from r3l.envs.puzzles.task_sets.tasks import PuzzleTaskSets


class PuzzleOptions(AnswerOptions):
    """Settings of the puzzles. ``verifier``: our strict one, or the released code's with its defects."""

    verifier: Literal["ours", "released"] = option(
        "ours", "what grades an answer", "our choice: the released one has defects (docs/environments.md)"
    )


class Puzzles(EnvironmentPackage[PuzzleOptions]):
    """One environment for four puzzles: knights and knaves, binary matrix, shortest path and countdown.

    The task set decides which one is played.
    """

    name = "puzzles"
    options = PuzzleOptions
    extra = "puzzles"

    def make_engine(self, options: PuzzleOptions) -> Environment:
        from r3l.envs.base.answers import AnswerEngine
        from r3l.envs.puzzles.engine.answer_engine import response_grader

        return AnswerEngine(options, response_grader(options))

    def make_dialogue(self, style: Style, max_turns: int, options: PuzzleOptions) -> Dialogue:
        from r3l.envs.base.answers import AnswerDialogue
        from r3l.envs.puzzles.expert import SUBJECT

        return AnswerDialogue(SUBJECT, style, max_turns, options)

    def task_sets(self) -> PuzzleTaskSets:
        from r3l.envs.puzzles.task_sets.tasks import TASK_SETS

        return TASK_SETS

    def demonstrator(self, task_sets: Sequence[str] = ()) -> AnswerDemonstrator:
        """Demonstrator that writes worked solutions of spare problems, which are in no split.

        The task sets take turns: the first problem of each one, then the second of each one, and so on.
        Raises ConfigError without ``task_sets``: each is another puzzle, so there is no right default.
        """
        from r3l.envs.base.demonstrations import AnswerDemonstrator
        from r3l.envs.puzzles.expert import solution, write

        if not task_sets:
            raise ConfigError(
                "an SFT recipe of environment 'puzzles' must name the task sets whose spare problems are "
                "taught, for example task_sets: [countdown_nano]"
            )
        sets = self.task_sets()
        for name in task_sets:
            sets.definition(name)  # raises ConfigError for an unknown name, before the first demonstration

        def task(index: int) -> Task:
            number, turn = divmod(index, len(task_sets))
            return sets.spare_task(task_sets[turn], number)

        return AnswerDemonstrator(self, task, False, solution, write)

    def expert_demonstrations(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        return self.demonstrator([tasks[0].id.partition("/")[0]]).expert_demonstrations(tasks, max_turns)

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        return self.task_sets().constant_answer(task_set)


ENVIRONMENT = Puzzles()
