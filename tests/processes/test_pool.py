"""A task is one game: its first observation is compared over members, workers and attempts."""

import asyncio
import itertools
import multiprocessing
import os
import signal
import time

import pytest

from r3l.core.environment import Observation
from r3l.core.errors import ReplayMismatch
from r3l.core.task import Task
from r3l.processes.pool import STATES, EnvironmentPool

RESETS = itertools.count()


class Game:
    """A game whose reset shows what the task says, or of what process and count it is."""

    def reset(self, task):
        begins = task.payload["begins"]
        self.steady = begins == "steady"
        if begins == "another":
            return Observation(f"game {os.getpid()} {next(RESETS)}")
        if begins == "offers":
            return Observation("the same words", admissible=(f"open {next(RESETS)}",))
        return Observation(begins)

    def step(self, action):
        # A later observation may differ: users, markets, servers.
        return Observation(f"steady {action}" if self.steady else f"{action} at {next(RESETS)}")

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
        # Said once: a game that draws its hidden part anew at each reset begins with the same words.
        with pytest.warns(UserWarning, match="'games': task one showed .* after the same actions") as said:
            assert asyncio.run(play(one)).startswith("go at")
            assert asyncio.run(play(one)).startswith("go at")
        assert len(said) == 1
    finally:
        pool.close()


def test_a_game_that_is_the_same_after_the_same_actions_is_not_warned_of(recwarn):
    pool = EnvironmentPool(Games(), 0)

    async def play(number, *actions):
        handle = pool.open()
        await handle.reset(Task(str(number), "games", "test", payload={"begins": "steady"}))
        return [(await handle.step(action)).text for action in actions]

    for _ in range(2):
        assert asyncio.run(play(1, "a", "b")) == ["steady a", "steady b"]
        assert asyncio.run(play(1, "b", "a")) == ["steady b", "steady a"]
        assert asyncio.run(play(2, "a", "a")) == ["steady a", "steady a"]
    assert not recwarn.list
    # However long a run is, only so many states are kept.
    for number in range(STATES + 10):
        asyncio.run(play(number, "a"))
    assert len(pool._states) == STATES


class Unclosable(Game):
    """A game whose close() notes itself in the task's file and then raises."""

    def reset(self, task):
        self.file = task.payload["file"]
        return super().reset(task)

    def close(self):
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("closed\n")
        raise RuntimeError("the window\nis gone")


class UnclosableGames(Games):
    def create(self, options):
        return Unclosable()


@pytest.mark.parametrize("workers", [0, 2])
def test_engines_are_closed_at_the_end_and_one_that_raises_is_named(workers, tmp_path):
    file = tmp_path / "closed"
    pool = EnvironmentPool(UnclosableGames(), workers)
    task = Task("odd", "games", "test", payload={"begins": "steady", "file": str(file)})
    asyncio.run(begun(pool, [task, task, task]))
    with pytest.warns(UserWarning) as warned:
        pool.close()
    assert file.read_text(encoding="utf-8") == "closed\n" * 3
    assert len(warned) == 1
    message = str(warned[0].message)
    assert "environment 'games': 3 of 3 engines did not close" in message
    assert "(Unclosable.close() raised RuntimeError: the window is gone)" in message


def test_a_worker_outlives_ctrl_c():
    """A terminal sends it to every process; what saves the work may still need the environments."""
    pool = EnvironmentPool(Games(), 1)
    task = Task("odd", "games", "test", payload={"begins": "steady"})

    async def play():
        handle = pool.open()
        await handle.reset(task)
        [child] = multiprocessing.active_children()
        os.kill(child.pid, signal.SIGINT)
        text = (await handle.step("on")).text
        assert multiprocessing.active_children() == [child]
        return text

    try:
        assert asyncio.run(play()) == "steady on"
    finally:
        pool.close()


class Hanging(Game):
    """A game whose close() never returns, or ends its process, if its task says so."""

    def reset(self, task):
        self.closing = task.payload["closing"]
        return super().reset(task)

    def close(self):
        if self.closing == "hangs":
            time.sleep(600)
        if self.closing == "exits":
            os._exit(3)


class HangingGames(Games):
    def create(self, options):
        return Hanging()


@pytest.mark.parametrize(
    ("closing", "why"),
    [("hangs", "did not return, and its worker was killed after 5 s"), ("exits", "ended its worker")],
)
def test_an_engine_that_does_not_close_is_named(closing, why):
    """Of three engines the first and the third share a worker, which closes its engines in this order."""
    pool = EnvironmentPool(HangingGames(), 2)
    payloads = [{"begins": "steady", "closing": each} for each in ("returns", "returns", closing)]
    tasks = [Task(f"odd{k}", "games", "test", payload=payload) for k, payload in enumerate(payloads)]
    asyncio.run(begun(pool, tasks))
    began = time.monotonic()
    with pytest.warns(UserWarning) as warned:
        pool.close()
    assert time.monotonic() - began < 60  # 5 s, on a busy machine more
    assert len(warned) == 1
    assert f"environment 'games': 1 of 3 engines did not close (Hanging.close() {why})" in str(
        warned[0].message
    )
