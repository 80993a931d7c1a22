"""The shipped path of the packages behind our Environment protocol: the yardstick of tests and ``bench``.

What a user of alfworld's AlfredTWEnv gets: textworld's PddlEnv under the AlfredDemangler wrapper. Slow
(seconds a start, a tenth of a second a step); training and evaluation never use it.
"""

from __future__ import annotations

from typing import Any

from r3l.envs.alfworld.engine import read_grammar
from r3l.envs.alfworld.games import game_texts
from r3l.envs.alfworld.translate import check_versions

from r3l.core.environment import Observation
from r3l.core.errors import EngineError
from r3l.core.task import Task


class OfficialEnvironment:
    """One live game on the packages' own code. It has no snapshots: only replaying comes back to a state."""

    def __init__(self) -> None:
        check_versions()
        self._env: Any = None

    def reset(self, task: Task) -> Observation:
        """Load and start ``task``. Raises what the packages raise on a damaged game."""
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv

        if self._env is None:
            infos = textworld.EnvInfos(won=True, admissible_commands=True, score=True, feedback=True)
            self._env = AlfredDemangler(PddlEnv(infos), shuffle=False)
        self._env.load(official_game(task))
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

    def snapshot(self) -> None:
        """None: the packages have no way back but a replay (see ``restart``)."""

    def restore(self, snapshot: Any) -> Observation:
        """Always an error; ``restart`` is what a user of the packages has."""
        raise EngineError("the packages' own ALFWorld environment has no snapshots; replay the actions instead")

    def restart(self, actions: list[str]) -> Observation:
        """Come to the state after ``actions`` the shipped way: reset the loaded game and play them."""
        self._env.reset()
        observation = Observation("")
        for action in actions:
            observation = self.step(action)
        return observation

    def close(self) -> None:
        """Release the library."""
        if self._env is not None:
            self._env.close()
        self._env = None


def official_game(task: Task) -> dict[str, Any]:
    """The game dict that the packages load for ``task``.

    Raises DataError where the grammar holds an expression that our reader refuses: the packages evaluate any Python.
    """
    domain, grammar, problem = game_texts(task)
    read_grammar(grammar, task.id)
    walkthrough = list(task.payload.get("walkthrough", ())) or None
    return {"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem, "walkthrough": walkthrough}
