"""What plays concurrently may be stopped at any moment, also before it has begun."""

import asyncio
import gc

import pytest

from r3l.processes.barrier import Barrier


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
