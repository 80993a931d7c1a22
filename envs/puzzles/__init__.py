"""RLTF's reasoning puzzles: Knights & Knaves, binary matrix, shortest path, and countdown beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from r3l.envs.base.package import ConstantAnswer, Demonstrator, EnvironmentPackage, TaskSets
from r3l.envs.puzzles.options import PuzzleOptions

from r3l.core.demonstration import Demonstration
from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.task import Task


class Puzzles(EnvironmentPackage[PuzzleOptions]):
    """A task set says which puzzle its problems are of."""

    name, options, extra = "puzzles", PuzzleOptions, "puzzles"

    def make_engine(self, options: PuzzleOptions) -> Environment:
        from r3l.envs.puzzles.engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: PuzzleOptions) -> Dialogue:
        from r3l.envs.puzzles.dialogue import create

        return create(style, max_turns, options)

    def task_sets(self) -> TaskSets:
        from r3l.envs.puzzles import task_sets

        return task_sets

    def build_task_set(self, name: str) -> Path:
        from r3l.envs.puzzles import validate

        return validate.build(name)

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        from r3l.envs.puzzles import task_sets

        return task_sets.constant_answer(task_set)

    def demonstrator_of(self, task_sets: Sequence[str]) -> Demonstrator:
        from r3l.envs.puzzles.demonstrations import demonstrator_of

        return demonstrator_of(task_sets)

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        return self.demonstrator_of([tasks[0].id.partition("/")[0]]).careful(tasks, max_turns)
