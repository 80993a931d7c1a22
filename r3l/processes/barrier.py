"""Concurrent coroutines: playing many at once, and a barrier at which they wait for one shared batch.

A batch must not depend on which environment worker answered first: the floating-point result of a batched
forward pass depends on the other rows of the batch. So a batch is served only when *every* live coroutine
waits for the model, and its requests are sorted by address. Phases are served in their declared order, so
that e.g. all reflections of a step share one batch instead of stalling rollouts one by one.

Why counting is enough: a live coroutine waits either for the model (it is in ``_waiting``), for an
environment (it will come back), or for coroutines that it has gathered (one of those counts in its place).
So when the number of waiting requests equals the number of live coroutines, no further request can arrive,
and the same requests wait in any order of the workers' answers. If a coroutine were counted twice, the
batch would never be served; if one were not counted, the batch would be served without it and its result
would depend on timing. ``gather`` is therefore the only place where the number of live coroutines changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from r3l.core.policy import Phase
from r3l.core.rollout import Item, T
from r3l.core.seeds import Address

P = TypeVar("P")
R = TypeVar("R")


async def together(play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
    """Run ``play(item)`` for all items concurrently; return the results in the order of ``items``.

    Coroutines start in this order too. If one raises, or this call is cancelled, the others are cancelled.
    (A ``Gather``, as RolloutContext in r3l.core.rollout has one.)
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


@dataclass(frozen=True)
class WaitingRequest(Generic[P, R]):
    """A request that waits at the barrier: ``(phase, address)`` orders it, ``payload`` is what is served."""

    phase: Phase
    address: Address
    payload: P
    result: asyncio.Future[R]


class Barrier(Generic[P, R]):
    """Collects the requests of concurrent coroutines and serves them in one batch once all of them wait.

    A coroutine calls ``await barrier.request(phase, address, payload)``. ``serve(payloads)`` gets the
    payloads of one phase, sorted by address, and returns one result for each, in this order. If requests of
    several phases wait, the phase that :class:`Phase` declares first is served first.

    Addresses of one phase must be comparable: numbers and words at the same positions. Coroutines that send
    requests must run under :meth:`gather`; only the outermost coroutine may also send requests itself.
    """

    def __init__(self, serve: Callable[[list[P]], Sequence[R]]) -> None:
        self._serve = serve
        self._live = 1
        self._waiting: list[WaitingRequest[P, R]] = []

    async def request(self, phase: Phase, address: Address, payload: P) -> R:
        """Wait until the batch that contains ``payload`` has been served, and return its result.

        Requests of the phase that is declared first are served first, sorted by ``address`` within the batch.
        """
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingRequest(phase, address, payload, result))
        self._serve_if_all_wait()
        return await result

    async def gather(self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        """Run ``play(item)`` for all items concurrently; results in their order (:func:`together`).

        The barrier waits for these coroutines: it serves no batch before each has ended or sent a request.
        """
        items = list(items)
        running = len(items)
        if not running:
            return []

        async def member(item: Item) -> T:
            nonlocal running
            result = await play(item)
            running -= 1
            if running:
                self._live -= 1
                # If the others all wait for the model already, only this call notices it.
                self._serve_if_all_wait()
            return result

        # The caller is suspended until all members have ended, so it sends no request meanwhile: n members
        # add only n - 1 live coroutines. The last member to end is not subtracted: the caller runs on at
        # once and is live again.
        self._live += running - 1
        return await together(member, items)

    def _serve_if_all_wait(self) -> None:
        """Serve the waiting requests of one phase if as many requests wait as coroutines are live."""
        if not self._waiting or len(self._waiting) < self._live:
            return

        # One phase at a time, the first in declared order; addresses decide the order of rows in the batch.
        phase = next(phase for phase in Phase if any(request.phase is phase for request in self._waiting))
        batch = sorted((r for r in self._waiting if r.phase is phase), key=lambda r: r.address)
        self._waiting = [r for r in self._waiting if r.phase is not phase]

        results = self._serve([request.payload for request in batch])
        for request, result in zip(batch, results, strict=True):
            request.result.set_result(result)


@contextmanager
def outside_event_loop() -> Iterator[None]:
    """Allow this thread to start another asyncio event loop in the block, inside one that is running.

    A notebook needs this: its own loop waits meanwhile. Without a running loop nothing changes.
    """
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
