"""Playing many items at the same time, so that a stop leaves nothing behind that was created and never awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from r3l.core.rollout import Item, T


@contextmanager
def outside_event_loop() -> Iterator[None]:
    """In the block this thread may run an event loop though one runs already, as in a notebook; that one waits."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


async def together(play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
    """A ``Gather`` (``r3l.core.rollout``): tasks start in the order of ``items``, each making its coroutine then."""

    async def member(item: Item) -> T:
        return await play(item)

    tasks = [asyncio.ensure_future(member(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
