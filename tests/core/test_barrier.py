"""The barrier: one batch when everybody waits, sorted, lowest phase first, whatever the timing."""

import asyncio
import random

import pytest

from r3l.core.barrier import Barrier


def run(delays):
    batches = []

    def serve(payloads):
        batches.append(list(payloads))
        return [p * 10 for p in payloads]

    barrier = Barrier(serve)

    async def member(i):
        await asyncio.sleep(delays[i])
        first = await barrier.request(0, (i,), i)
        second = await barrier.gather(*[child(i, k) for k in range(i)])
        return first, second

    async def child(i, k):
        await asyncio.sleep(delays[k])
        return await barrier.request(1, (i, k), 100 * i + k)

    async def main():
        return await barrier.gather(*[member(i) for i in range(4)])

    return asyncio.run(main()), batches


def test_batches_do_not_depend_on_timing():
    results = [run([random.random() / 50 for _ in range(4)]) for _ in range(3)]
    assert results[0] == results[1] == results[2]
    answers, batches = results[0]
    assert batches == [[0, 1, 2, 3], [100, 200, 201, 300, 301, 302]]
    assert answers[3] == (30, [3000, 3010, 3020])


def test_a_lower_phase_goes_first():
    order = []
    barrier = Barrier(lambda payloads: order.append(sorted(payloads)) or payloads)

    async def member(name, phases):
        for phase in phases:
            await barrier.request(phase, (name,), f"{name}{phase}")

    async def main():
        await barrier.gather(member("a", [0, 1]), member("b", [0, 0, 1]))

    asyncio.run(main())
    assert order == [["a0", "b0"], ["b0"], ["a1", "b1"]]


def test_a_failure_reaches_the_caller():
    barrier = Barrier(lambda payloads: payloads)

    async def waits():
        await barrier.request(0, ("w",), 1)

    async def fails():
        raise ValueError("broken")

    async def main():
        await barrier.gather(waits(), waits(), fails())

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main())
