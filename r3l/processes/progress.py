"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 10  # printed in place of a bar
T = TypeVar("T")


class Advance(Protocol):
    """Says that ``count`` more of the work is done; ``note`` stands beside the bar."""

    def __call__(self, note: str = "", count: int = 1) -> None: ...


@contextmanager
def progress(label: str, total: int, done: int = 0, lines: int = LINES) -> Iterator[Advance]:
    """Show work of ``total`` parts, ``done`` of which were there before, on stderr until the end of the block.

    Where stderr is not a terminal, ``lines`` of the parts leave a line each, evenly spread.
    """
    console, start, began = Console(stderr=True), done, time.monotonic()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total, completed=done, note="")

        def advance(note: str = "", count: int = 1) -> None:
            nonlocal done
            before, done = done, done + count
            bar.update(task, completed=done, note=note)
            if not console.is_terminal and done * lines // total > before * lines // total:
                left = (time.monotonic() - began) / (done - start) * (total - done)
                text = f"{label}: {done}/{total}  {note}".rstrip() + (f"  {clock(left)} left" if done < total else "")
                console.print(text, soft_wrap=True, highlight=False, markup=False)

        yield advance


def clock(seconds: float) -> str:
    """``42 s``, ``9 min``, ``3 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def tracked(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """``items``, one after the other, with :func:`progress`; ``total``: how many, where that is not their length."""
    count = total if total is not None else len(items) if isinstance(items, Sized) else 0
    with progress(label, count) as advance:
        for item in items:
            yield item
            advance()
