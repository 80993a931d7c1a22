"""Playing many items concurrently, so that a stop leaves no coroutine behind that was never awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from r3l.core.rollout import Item, T


@contextmanager
def outside_event_loop() -> Iterator[None]:
    """Allow this thread to run an event loop inside a running one, as in a notebook; the outer loop waits."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


async def together(play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
    """Play all items concurrently; the results are in the order of ``items``.

    (A ``Gather`` of r3l.core.rollout.) Tasks also start in this order.
    """

    # ``play(item)`` is called when its task starts, not before: a task that is cancelled earlier has no
    # coroutine that was made and never awaited.
    async def member(item: Item) -> T:
        return await play(item)

    tasks = [asyncio.ensure_future(member(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
