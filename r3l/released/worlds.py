"""Environments with the calls that the released rollouts make.

ScienceWorld is the shipped class. ALFWorld and WebShop, whose packages are not installed, are our engines, held against
the shipped ones by their own tests: what is compared here are the rollouts around them.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from r3l.core.task import Task
from r3l.envs.registry import find_environment

Step = tuple[str, float, bool, dict[str, Any]]


class AlfworldGame:
    """``reset`` and ``step`` of TextWorld's gym, with the admissible commands."""

    def __init__(self, task: Task) -> None:
        self._engine, self._task = find_environment("alfworld").create({}), task

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Text and infos."""
        now = self._engine.reset(self._task)
        return now.text, {"admissible_commands": list(now.admissible)}

    def step(self, action: str) -> Step:
        """Text, score, done, infos."""
        now = self._engine.step(action)
        return now.text, now.reward, now.done, {"admissible_commands": list(now.admissible)}


class Shop:
    """``reset``, ``step`` and what can be done, as the original's text environment has them."""

    def __init__(self, task: Task) -> None:
        self._engine, self._task = find_environment("webshop").create({}), task
        self.observation = ""

    def reset(self, session: int) -> None:
        """The first page."""
        self._now = self._engine.reset(self._task)
        self.observation = self._now.text

    def get_available_actions(self) -> dict[str, Any]:
        """Whether there is a search bar, and what can be clicked: beside our list the button of the bar."""
        clicks = [action.removeprefix("click[")[:-1] for action in self._now.admissible if action.startswith("click[")]
        bar = len(clicks) < len(self._now.admissible)
        return {"has_search_bar": bar, "clickables": [*clicks, *(["search"] if bar else [])]}

    def step(self, action: str) -> Step:
        """Text, reward, done, infos."""
        self._now = self._engine.step(action)
        return self._now.text, self._now.reward, self._now.done, {}


class Laboratory:
    """The shipped class of ScienceWorld, which here does not list all valid actions at each step."""

    def __init__(self, task: Task) -> None:
        self._payload: Mapping[str, Any] = task.payload

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Text and infos."""
        simulator, payload = _simulator(), self._payload
        simulator.load(payload["task"], payload["variation"], payload["simplifications"])
        text, infos = simulator.reset()
        return str(text), dict(infos)

    def get_task_description(self) -> str:
        """The task."""
        return str(_simulator().get_task_description())

    def step(self, action: str) -> Step:
        """Text, gain of points, done, infos."""
        text, gain, done, infos = _simulator().step(action)
        return str(text), float(gain), bool(done), dict(infos)


WORLDS = {"alfworld": AlfworldGame, "webshop": Shop, "scienceworld": Laboratory}


@cache
def _simulator() -> Any:
    from scienceworld import ScienceWorldEnv

    from r3l.envs.scienceworld.jvm import find_java

    class Simulator(ScienceWorldEnv):  # type: ignore[misc]
        def get_valid_action_object_combinations(self) -> list[str]:
            return []

    os.environ["PATH"] = f"{Path(find_java().path).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"  # else chance orders objects
    simulator = Simulator("", envStepLimit=30)
    atexit.register(simulator.close)
    return simulator
