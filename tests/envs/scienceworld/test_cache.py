"""Cached observations equal the real simulator's and are not computed again."""

import random

import pytest
from r3l.envs.scienceworld.engine.cache import CachedEngine, ObservationCache
from r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine
from r3l.envs.scienceworld.task_sets.tasks import TASK_SETS

from r3l.core.environment import Observation
from r3l.core.errors import ReplayMismatch
from r3l.core.task import Task


class Counting:
    """The real engine with a count of its calls."""

    def __init__(self):
        self.engine = ScienceWorldEngine()
        self.resets = self.steps = 0

    def reset(self, task):
        self.resets += 1
        return self.engine.reset(task)

    def step(self, action):
        self.steps += 1
        return self.engine.step(action)

    def close(self):
        self.engine.close()


@pytest.fixture(scope="module")
def task():
    return TASK_SETS.tasks("nano/test")[0]


@pytest.fixture
def counting():
    engine = Counting()
    yield engine
    engine.close()


def test_repeated_attempts_ask_the_simulator_once(task, counting):
    engine, solution = CachedEngine(ObservationCache(lambda: counting)), task.payload["solution"]
    observations = [[engine.reset(task), *map(engine.step, solution)] for _ in range(5)]
    assert observations[0][-1].success and all(one == observations[0] for one in observations)
    assert (counting.resets, counting.steps) == (1, len(solution))


def test_a_new_branch_replays_its_prefix_once(task, counting):
    engine, solution = CachedEngine(ObservationCache(lambda: counting)), task.payload["solution"]
    engine.reset(task)
    marks = [engine.snapshot()]
    for action in solution:
        engine.step(action)
        marks.append(engine.snapshot())
    engine.restore(marks[1])
    engine.step("inventory")  # new: the simulator starts over and replays one action
    engine.step("look around")  # goes on from there
    assert (counting.resets, counting.steps) == (2, len(solution) + 3)


def test_random_walks_are_those_of_the_bare_engine():
    """Episodes that take turns on too few simulators and branch at random have a bare engine's
    observations."""
    simulators = 2
    rng, tasks, bare = random.Random(3), TASK_SETS.tasks("nano/test")[:2], ScienceWorldEngine()
    cache = ObservationCache(ScienceWorldEngine, simulators=simulators)
    engines = [CachedEngine(cache) for _ in range(3)]
    actions = [
        *tasks[0].payload["solution"],
        "look around",
        "inventory",
        "teleport to kitchen",
        "focus on nothing",
    ]
    observations = [[engine.reset(tasks[k % 2])] for k, engine in enumerate(engines)]
    paths = [[rng.choice(actions) for _ in range(4)] for _ in engines]
    for turn in range(4):
        for engine, seen, path in zip(engines, observations, paths, strict=True):
            seen.append(engine.step(path[turn]))
    assert len(cache._slots) == simulators
    for k, (seen, path) in enumerate(zip(observations, paths, strict=True)):
        assert seen == [bare.reset(tasks[k % 2]), *map(bare.step, path)]
    bare.close()


class Drifting:
    """An engine with another first observation at each reset."""

    def __init__(self):
        self.count = 0

    def reset(self, task):
        self.count += 1
        return Observation(f"reset {self.count}")

    def step(self, action):
        return Observation(action)

    def close(self):
        pass


def test_an_engine_that_does_not_repeat_itself_is_found_out():
    engine = CachedEngine(ObservationCache(Drifting, simulators=1))
    engine.reset(Task("t", "scienceworld", "s", "", {}))
    engine.step("a")
    engine.restore(())
    with pytest.raises(ReplayMismatch, match="says 'reset 2' where it said 'reset 1'"):
        engine.step("b")


def test_the_least_recently_started_tasks_are_forgotten():
    cache = ObservationCache(Drifting, limit=3)
    cache.observations("first").update({(str(n),): Observation(str(n)) for n in range(2)})
    cache.observations("second").update({(str(n),): Observation(str(n)) for n in range(3)})
    cache.observations("third")  # five observations are more than three
    assert (len(cache.observations("second")), len(cache.observations("first"))) == (3, 0)
