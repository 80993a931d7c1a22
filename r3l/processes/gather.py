"""Playing many items at the same time, so that a stop leaves nothing behind that was created and never awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
T = TypeVar("T")


class Gather(Protocol):
    """``play`` of every item at the same time; results in the order of ``items``. What an engine hands to methods."""

    def __call__(
        self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]
    ) -> Coroutine[Any, Any, list[T]]:
        """If one fails, the others are cancelled and its error is raised."""


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
    """A :class:`Gather`: the tasks start in the order of ``items``, and each makes its coroutine when it starts."""

    async def member(item: Item) -> T:
        return await play(item)

    tasks = [asyncio.ensure_future(member(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
