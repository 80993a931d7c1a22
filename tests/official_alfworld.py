"""The shipped path of the packages behind our Environment protocol, which the tests compare ours with.

What a user of alfworld's AlfredTWEnv gets: textworld's PddlEnv under the AlfredDemangler wrapper. Slow
(seconds a start, a tenth of a second a step); training and evaluation never use it.
"""

from __future__ import annotations

from typing import Any

from r3l.envs.alfworld.engine.games import game_texts
from r3l.envs.alfworld.engine.text_engine import read_grammar
from r3l.envs.alfworld.engine.translate import check_versions

from r3l.core.environment import Observation
from r3l.core.task import Task


class OfficialEnvironment:
    """One live game on the packages' own code."""

    def __init__(self) -> None:
        check_versions()
        self._env: Any = None

    def reset(self, task: Task) -> Observation:
        """Load and start ``task``. Raises what the packages raise on a damaged game."""
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv

        game = official_game(task)
        if self._env is None:
            infos = textworld.EnvInfos(won=True, admissible_commands=True, score=True, feedback=True)
            self._env = AlfredDemangler(PddlEnv(infos), shuffle=False)
        self._env.load(game)
        state = self._env.reset()
        won = bool(state["won"])
        return Observation(state["feedback"], tuple(state["admissible_commands"]), 0.0, won, won)

    def step(self, action: str) -> Observation:
        """Apply one action."""
        state, score, done = self._env.step(action)
        return Observation(
            state["feedback"],
            tuple(state["admissible_commands"]),
            float(score),
            bool(done),
            bool(state["won"]),
        )

    def close(self) -> None:
        """Release the library."""
        if self._env is not None:
            self._env.close()
        self._env = None


def official_game(task: Task) -> dict[str, Any]:
    """The game dict that the packages load for ``task``.

    Raises DataError where the grammar holds an expression that our reader refuses: the packages evaluate any
    Python.
    """
    domain, grammar, problem = game_texts(task)
    read_grammar(grammar, task.id)
    walkthrough = list(task.payload.get("walkthrough", ())) or None
    return {"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem, "walkthrough": walkthrough}
