"""The barrier: one batch when everybody waits, sorted, lowest phase first, whatever the timing."""

import asyncio
import gc
import itertools
import random
from functools import partial

import pytest

from r3l.config import environment_of, resolve
from r3l.core.policy import Phase
from r3l.processes.barrier import Barrier


def run(delays):
    batches = []

    def serve(payloads):
        batches.append(list(payloads))
        return [p * 10 for p in payloads]

    barrier = Barrier(serve)

    async def member(i):
        await asyncio.sleep(delays[i])
        first = await barrier.request(Phase.ROLLOUT, (i,), i)
        second = await barrier.gather(partial(child, i), range(i))
        return first, second

    async def child(i, k):
        await asyncio.sleep(delays[k])
        return await barrier.request(Phase.FEEDBACK, (i, k), 100 * i + k)

    async def main():
        return await barrier.gather(member, range(4))

    return asyncio.run(main()), batches


def test_batches_do_not_depend_on_timing():
    results = [run([random.random() / 50 for _ in range(4)]) for _ in range(3)]
    assert results[0] == results[1] == results[2]
    answers, batches = results[0]
    assert batches == [[0, 1, 2, 3], [100, 200, 201, 300, 301, 302]]
    assert answers[3] == (30, [3000, 3010, 3020])


def test_a_lower_phase_goes_first():
    order = []
    barrier = Barrier(lambda payloads: order.append(payloads) or payloads)
    rollout, retry = Phase.ROLLOUT, Phase.RETRY
    phases = {"b": [rollout, rollout, retry], "a": [rollout, retry]}

    async def member(name):
        for phase in phases[name]:
            await barrier.request(phase, (name,), f"{name} {phase}")

    async def main():
        await barrier.gather(member, phases)

    asyncio.run(main())
    assert order == [["a rollout", "b rollout"], ["b rollout"], ["a retry", "b retry"]]


def padded(address):
    """The order that the stored runs were sampled in: the parts as texts, filled with zeros on the left."""
    return [f"{part:0>12}" for part in address]


@pytest.mark.parametrize(
    "env", ["alfworld", "scienceworld", "webshop", "math", "knights_knaves"]
)  # of each family
def test_batches_keep_the_order_of_the_stored_runs(env):
    """Who stands where in a batch may change its rounding: natural order is that of zero-padded texts."""
    run = resolve("nano", env, "r3l", 0)
    for task_set in (run.env_settings.train_task_set, run.env_settings.test_task_set):
        ids = [task.id for task in environment_of(env).tasks(task_set)]
        where = [
            *itertools.product(range(12), range(30)),
            *itertools.product(range(12), range(1, 3), range(30)),
        ]
        for address in ((0, "train", step, "retry") for step in (9, 10, 100)):
            addresses = [(*address, task, *rest) for task in ids[:12] for rest in where[::31]]
            assert sorted(addresses) == sorted(addresses, key=padded)
        assert sorted(ids) == sorted(ids, key=lambda task: padded((task,)))


def test_a_failure_reaches_the_caller():
    barrier = Barrier(lambda payloads: payloads)

    async def member(fails):
        if fails:
            raise ValueError("broken")
        await barrier.request(Phase.ROLLOUT, ("w",), 1)

    async def main():
        await barrier.gather(member, [False, False, True])

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main())


@pytest.mark.parametrize(
    "rounds", [0, 1]
)  # the event loop's, until the stop comes: none plays before the second
def test_a_stop_before_anything_plays_leaves_nothing_unawaited(rounds):
    async def play(item): ...

    async def stopped():
        barrier = Barrier(list)
        task = asyncio.ensure_future(barrier.gather(play, range(3)))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())
    gc.collect()
