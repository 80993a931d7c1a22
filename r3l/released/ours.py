"""Our side of a check: methods and groups as profile ``released_code`` has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from r3l.config import Run, build_method, resolve
from r3l.core.environment import Dialogue
from r3l.core.method import Method
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind
from r3l.envs.registry import find_environment

PROFILE = "released_code"
TASK = Task("case", "alfworld", "train")


@cache
def method_of(name: str, environment: str = "alfworld") -> Method:
    """A method of configs/methods, or a variant of one, under the profile."""
    base, _, changes = name.partition("@")
    return build_method(resolve("paper", environment, f"{base}@profile={PROFILE},{changes}".rstrip(","), 0))


def group_of(rewards: Sequence[float]) -> Group:
    """Rollouts of one task with these rewards."""
    return Group(TASK, [Trajectory(TASK, m, TrajectoryKind.BASE, reward=r) for m, r in enumerate(rewards)])


@cache
def run_of(environment: str) -> Run:
    """R3L on an environment, with the released numbers of turns and options."""
    return resolve("paper", environment, f"r3l@profile={PROFILE}", 0)


def dialogue_of(environment: str, max_turns: int | None = None) -> Dialogue:
    """The text side of an environment; prompts are short, since nobody reads them."""
    settings = run_of(environment).env_settings
    return find_environment(environment).dialogue("compact", max_turns or settings.max_turns, settings.options)
