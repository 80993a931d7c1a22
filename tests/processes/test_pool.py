"""A task is one game: its first observation is compared over members, workers and attempts."""

import asyncio
import itertools
import os

import pytest

from r3l.core.environment import Observation
from r3l.core.errors import ReplayMismatch
from r3l.core.task import Task
from r3l.processes.pool import EnvironmentPool

RESETS = itertools.count()


class Game:
    """A game whose reset shows what the task says, or of what process and count it is."""

    def reset(self, task):
        begins = task.payload["begins"]
        if begins == "another":
            return Observation(f"game {os.getpid()} {next(RESETS)}")
        if begins == "offers":
            return Observation("the same words", admissible=(f"open {next(RESETS)}",))
        return Observation(begins)

    def step(self, action):
        return Observation(
            f"{action} at {next(RESETS)}"
        )  # a later observation may differ: users, markets, servers

    def snapshot(self):
        return None

    def close(self):
        pass


class Games:
    name = "games"

    def create(self, options):
        return Game()


async def begun(pool, tasks):
    """Begin each task in an environment of its own; the first observations."""
    handles = [pool.open() for _ in tasks]
    return [(await handle.reset(task)).text for handle, task in zip(handles, tasks, strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("begins", ["another", "offers"])
def test_a_task_that_is_another_game_at_each_reset_is_refused(workers, begins):
    pool = EnvironmentPool(Games(), workers)
    task = Task("odd", "games", "test", payload={"begins": begins})
    try:
        if begins == "offers" and workers:  # each process counts by itself, so the third reset differs
            asyncio.run(begun(pool, [task, task]))
        with pytest.raises(
            ReplayMismatch, match=r"'games': task odd began with .* the same game at every reset"
        ):
            asyncio.run(begun(pool, [task, task]))
    finally:
        pool.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_different_tasks_and_later_observations_may_differ(workers):
    pool = EnvironmentPool(Games(), workers)
    one, two = (Task(text, "games", "test", payload={"begins": text}) for text in ("one", "two"))

    async def play(task):
        handle = pool.open()
        await handle.reset(task)
        return (await handle.step("go")).text

    try:
        assert asyncio.run(begun(pool, [one, two, one, two, one])) == ["one", "two", "one", "two", "one"]
        assert asyncio.run(play(one)).startswith("go at")
        assert asyncio.run(play(one)).startswith("go at")
    finally:
        pool.close()
