"""A Java process that dies or hangs inside the pool costs the episodes in it a counted replay, never the
run."""

import asyncio
import os
import signal

import psutil
import pytest
from dove_egg import FIND, SOLUTION
from r3l.envs.registry import find_environment
from r3l.envs.scienceworld.engine import jvm
from r3l.envs.scienceworld.task_sets.tasks import problem

from r3l.core.errors import EngineError
from r3l.processes.pool import EnvironmentPool

OTHER = problem("find-living-thing", 1, "test")


async def episode(pool, disturb=lambda: None):
    """Two environments of one worker in turn, the second on a retry from turn 1; disturbed in the middle."""
    first, second = pool.open(), pool.open()
    seen = [await first.reset(FIND), await second.reset(OTHER)]
    seen += [await env.step(action) for action in SOLUTION[:3] for env in (first, second)]
    seen += [await second.rewind(1), await second.step(SOLUTION[1])]
    disturb()
    seen += [await second.step(action) for action in SOLUTION[2:]]
    seen += [await first.step(action) for action in SOLUTION[3:]]
    await first.close()
    await second.close()
    return seen


pytestmark = [
    pytest.mark.usefixtures("nothing_remembered"),
    pytest.mark.filterwarnings("ignore:.*an episode is played again"),
]


def played(pool, disturb=lambda: None):
    try:
        return asyncio.run(episode(pool, disturb))
    finally:
        pool.close()


@pytest.fixture(scope="module")
def undisturbed():
    seen = played(EnvironmentPool(find_environment("scienceworld"), 0))
    assert seen[-1].success
    return seen


def java():
    """The Java process of the current process."""
    return [process for process in psutil.Process().children() if process.name() == "java"][-1]


def gone(process):
    _, alive = psutil.wait_procs([process], timeout=20)
    return not alive


def test_a_killed_java_costs_each_episode_in_it_one_counted_replay(undisturbed):
    pool = EnvironmentPool(find_environment("scienceworld"), 0)
    assert played(pool, lambda: java().kill()) == undisturbed
    assert pool.lost == 2


@pytest.mark.slow
def test_a_hung_java_is_ended_after_its_deadline_and_replaced(undisturbed, monkeypatch):
    monkeypatch.setattr(jvm, "DEADLINE_S", 15.0)
    jvm.shared_jvm().close()  # the next one has the short deadline
    pool, stopped = EnvironmentPool(find_environment("scienceworld"), 0), []

    def hang():
        stopped.append(java())
        os.kill(stopped[0].pid, signal.SIGSTOP)

    assert played(pool, hang) == undisturbed
    assert pool.lost == 2 and gone(stopped[0])
    jvm.shared_jvm().close()


def test_a_java_that_dies_at_every_try_is_a_clear_error():
    dead = jvm.Jvm()
    dead.process.kill()
    dead.process.wait()
    pool = EnvironmentPool(find_environment("scienceworld"), 0)
    with pytest.MonkeyPatch.context() as patch:

        async def main():
            env = pool.open()
            await env.reset(FIND)
            patch.setattr(jvm, "Jvm", lambda: dead)
            java().kill()
            await env.step("look around")

        with pytest.raises(
            EngineError, match=r"ScienceWorld process does not answer .*3 times in a row at step 'look"
        ):
            asyncio.run(main())
