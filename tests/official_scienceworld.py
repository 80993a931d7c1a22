"""The shipped class as an environment of ours: what the tests compare with."""

from __future__ import annotations

from typing import Any

from r3l.core.environment import Observation
from r3l.core.task import Task


class OfficialEnvironment:
    """``scienceworld.ScienceWorldEnv`` with its own Java process."""

    def __init__(self, step_limit: int = 30) -> None:
        from scienceworld import ScienceWorldEnv

        self._env: Any = ScienceWorldEnv("", envStepLimit=step_limit)

    @property
    def process_id(self) -> int:
        """Of its Java process."""
        return int(self._env._gateway.java_process.pid)

    def reset(self, task: Task) -> Observation:
        """Start ``task``; the text is the task's description and what is seen."""
        payload = task.payload
        self._env.load(payload["task"], payload["variation"], payload["simplifications"])
        seen, info = self._env.reset()
        return Observation(f"{self._env.get_task_description()}\n{seen}", (), max(0, info["score"]) / 100)

    def step(self, action: str) -> Observation:
        """One step of the shipped class, which fetches every valid action as well."""
        text, _, done, info = self._env.step(action)
        return Observation(text, (), max(0, info["score"]) / 100, bool(done), info["score"] == 100)

    def close(self) -> None:
        """End its Java process."""
        self._env.close()
        self._env._gateway.java_process.wait(timeout=30)
