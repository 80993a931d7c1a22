"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 10  # plain lines printed when stderr is not a terminal
BESIDE = 45  # characters of a line of a terminal for what is beside the label; our choice
T = TypeVar("T")


class Advance(Protocol):
    """Function that moves a progress bar: ``count`` more parts are done, and ``note`` is shown after the bar.

    The note comes first: ``advance("text", 3)``; a count alone is ``advance(count=3)``.
    """

    def __call__(self, note: str = "", count: int = 1) -> None: ...


@dataclass
class _CommonBar:
    """The progress of a command of several parts, which the progress of each part moves."""

    advance: Advance
    skip: Callable[[int], None]  # that many more were finished before


_common_bar: ContextVar[_CommonBar | None] = ContextVar("_common_bar", default=None)


@contextmanager
def one_progress(label: str, total: int) -> Iterator[None]:
    """Show one progress bar of ``total`` parts, named ``label``, on stderr for the block.

    Every :func:`progress` in the block moves this bar instead of showing its own. Without a terminal it is at
    most 10 plain lines.
    """
    with _bar(label, total, 0, LINES) as (advance, skip):
        before = _common_bar.set(_CommonBar(advance, skip))
        try:
            yield
        finally:
            _common_bar.reset(before)


@contextmanager
def progress(label: str, total: int, done: int = 0, lines: int = LINES) -> Iterator[Advance]:
    """Show a progress bar on stderr for the block; yields the function that moves it (:class:`Advance`).

    ``total``: number of parts; ``done``: parts that were finished before, which say nothing of the speed. If
    stderr is not a terminal, ``lines`` plain lines are printed, evenly spread over the parts. Inside
    :func:`one_progress` the common bar moves instead.
    """
    if common := _common_bar.get():
        common.skip(done)

        def advance(note: str = "", count: int = 1) -> None:
            common.advance(f"{label}: {note}" if note else label, count)

        yield advance
        return
    with _bar(label, total, done, lines) as (shown, _):
        yield shown


@contextmanager
def _bar(label: str, total: int, done: int, lines: int) -> Iterator[tuple[Advance, Callable[[int], None]]]:
    """A bar, or plain lines; what moves it, and what counts parts that were finished before."""
    console = Console(stderr=True)
    start = done
    began = time.monotonic()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        # A long name of a run leaves room for the counts, the note and the time.
        widest = max(20, console.width - BESIDE)
        shown = label if len(label) <= widest else f"{label[: widest - 4]} ..."
        task = bar.add_task(shown, total=total, completed=done, note="")

        # Parts that were finished before say nothing of the speed: the time left is of the others.
        def skip(count: int) -> None:
            nonlocal done, start
            done += count
            start += count
            bar.update(task, completed=done)

        def advance(note: str = "", count: int = 1) -> None:
            nonlocal done
            before = done
            done += count
            bar.update(task, completed=done, note=note)

            # Without a terminal: one line whenever another 1/lines of the work is done.
            if not console.is_terminal and done * lines // total > before * lines // total:
                text = f"{label}: {done}/{total}  {note}".rstrip()
                if done < total:
                    seconds_per_part = (time.monotonic() - began) / (done - start)
                    text += f"  {clock(seconds_per_part * (total - done))} left"
                console.print(text, soft_wrap=True, highlight=False, markup=False)

        yield advance, skip


def clock(seconds: float) -> str:
    """A duration in words: ``42 s`` below a minute, then rounded to minutes: ``9 min``, ``3 h 5 min``."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def tracked(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yield ``items`` one by one while a progress bar with ``label`` on stderr counts them.

    ``total``: their number; None: the length of ``items``. Raises TypeError, at the first item, without
    one.
    """
    if total is None:
        if not isinstance(items, Sized):
            raise TypeError(f"{label}: give total, the number of items: {type(items).__name__} has no length")
        total = len(items)
    with progress(label, total) as advance:
        for item in items:
            yield item
            advance()
