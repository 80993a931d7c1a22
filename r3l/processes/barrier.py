"""Barrier: many coroutines, one deterministic batch at a time.

A batch must not depend on which environment worker answered first: the floating-point result of a batched
forward pass depends on who else is in the batch. So a batch is served only when *every* live coroutine waits
for the model, and its requests are sorted by address. The first phase that somebody waits for is served first, so
that e.g. all reflections of a step share one batch instead of stalling rollouts one by one.

Why counting is enough: a live coroutine either waits for the model (it stands in ``_waiting``), for an environment (it
will come back), or for coroutines that it has gathered (one of those stands for it). So when as many wait as live,
nobody is left who could still add a request, and whatever order the workers answered in, the same requests wait. Were
a coroutine counted twice, the batch would never be served; were one forgotten, it would be served without it, and its
result would depend on timing. ``gather`` is therefore the only place where the number of live coroutines changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from r3l.core.policy import Phase
from r3l.core.rollout import Item, T
from r3l.core.seeds import Address
from r3l.processes.gather import together

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Request(Generic[P, R]):
    """One waiting request: ``(phase, address)`` orders it, ``payload`` is what ``serve`` gets."""

    phase: Phase
    address: Address
    payload: P
    answer: asyncio.Future[R]


class Barrier(Generic[P, R]):
    """Counts live coroutines and calls ``serve(payloads)`` when all of them wait.

    ``serve`` gets the payloads of one phase, sorted by address, and returns one result each. Addresses of one phase
    hold numbers and words at the same places. Coroutines that ask must run under :meth:`gather` (the outermost one
    may ask too).
    """

    def __init__(self, serve: Callable[[list[P]], Sequence[R]]) -> None:
        self._serve = serve
        self._live = 1
        self._waiting: list[Request[P, R]] = []

    async def request(self, phase: Phase, address: Address, payload: P) -> R:
        """Wait until the batch that contains ``payload`` has been served; its result."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(Request(phase, address, payload, answer))
        self._serve_if_all_wait()
        return await answer

    async def gather(self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        """:func:`r3l.processes.gather.together`, known to the barrier."""
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
                self._serve_if_all_wait()
            return result

        # The caller is suspended until all have ended, so it cannot ask: of n members only n - 1 are new. The last one
        # to end keeps the place for the caller, which runs on at once and is live again.
        self._live += running - 1
        return await together(member, items)

    def _serve_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._live:
            return
        phase = next(phase for phase in Phase if any(request.phase is phase for request in self._waiting))
        batch = sorted((r for r in self._waiting if r.phase is phase), key=lambda r: r.address)
        self._waiting = [r for r in self._waiting if r.phase is not phase]
        results = self._serve([request.payload for request in batch])
        for request, result in zip(batch, results, strict=True):
            request.answer.set_result(result)
