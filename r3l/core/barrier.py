"""Barrier: many coroutines, one deterministic batch at a time.

A batch must not depend on which environment worker answered first: the floating-point result of a batched
forward pass depends on who else is in the batch. So a batch is served only when *every* live coroutine waits
for the model, and its requests are sorted by key. Requests carry a phase; the lowest waiting phase is served
first, so that e.g. all reflections of a step share one batch instead of stalling rollouts one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One waiting request: ``(phase, key)`` orders it, ``payload`` is what ``serve`` gets."""

    phase: int
    key: tuple[str, ...]
    payload: Any
    answer: asyncio.Future[Any]


class Barrier:
    """Counts live coroutines and calls ``serve(payloads)`` when all of them wait.

    ``serve`` gets the payloads of one phase, sorted by key, and returns one result each. Coroutines that ask
    must run under :meth:`gather` (the outermost one may ask too).
    """

    def __init__(self, serve: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._serve = serve
        self._live = 1
        self._waiting: list[Request] = []

    async def request(self, phase: int, key: tuple[str | int, ...], payload: Any) -> Any:
        """Wait until the batch that contains ``payload`` has been served; its result."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(Request(phase, tuple(f"{part:0>12}" for part in key), payload, answer))
        self._serve_if_all_wait()
        return await answer

    async def gather(self, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines concurrently; like ``asyncio.gather``, but known to the barrier.

        If one fails, the others are cancelled and its error is raised.
        """
        if not coroutines:
            return []
        self._live += len(coroutines) - 1  # the caller is suspended meanwhile and lends its place
        left = [len(coroutines)]
        tasks = [asyncio.ensure_future(self._member(c, left)) for c in coroutines]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _member(self, coroutine: Coroutine[Any, Any, T], left: list[int]) -> T:
        result = await coroutine
        left[0] -= 1
        if left[0]:  # the last member hands its place back to the caller
            self._live -= 1
            self._serve_if_all_wait()
        return result

    def _serve_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._live:
            return
        phase = min(request.phase for request in self._waiting)
        batch = sorted((r for r in self._waiting if r.phase == phase), key=lambda r: r.key)
        self._waiting = [r for r in self._waiting if r.phase != phase]
        results = self._serve([request.payload for request in batch])
        for request, result in zip(batch, results, strict=True):
            request.answer.set_result(result)
