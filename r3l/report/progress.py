"""Following a workflow: on a terminal one line per run, rewritten in place; elsewhere a line for each run
that ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from r3l.core.text import printable
from r3l.processes.progress import clock
from r3l.workflow.status import State, Status, seconds_left

EVERY = 1.0  # seconds between two inspections
HEARTBEAT = 60.0  # and between two lines where there is no terminal
MARGIN = 4  # lines of a terminal that are not for runs
Inspect = Callable[[], list[Status]]


def follow(inspect: Inspect, at_work: Callable[[], bool], console: Console, cores: int) -> list[Status]:
    """Show the runs while the workflow is ``at_work``; returns their last status.

    ``inspect`` gives the present status of all runs. ``cores``: on how many cores they run, for the time
    left.
    """
    began = time.monotonic()

    def overview(statuses: Sequence[Status]) -> str:
        return summary(statuses, time.monotonic() - began, seconds_left(statuses, cores))

    show = _in_place if console.is_terminal else _by_lines
    return show(inspect, at_work, console, overview)


Overview = Callable[[Sequence[Status]], str]


def _in_place(
    inspect: Inspect, at_work: Callable[[], bool], console: Console, overview: Overview
) -> list[Status]:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            going = at_work()
            statuses = inspect()
            live.update(_picture(statuses, overview(statuses), console.height), refresh=True)
            if not going:
                return statuses
            time.sleep(EVERY)


def _by_lines(
    inspect: Inspect, at_work: Callable[[], bool], console: Console, overview: Overview
) -> list[Status]:
    def show(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    last = time.monotonic()
    before = {status.name: status.state for status in inspect()}
    while True:
        going = at_work()
        statuses = inspect()
        for status in statuses:
            if status.state in (State.DONE, State.FAILED) and before[status.name] is not status.state:
                show(f"{status.name}: {phrase(status)}")
            before[status.name] = status.state
        if not going:
            return statuses
        if time.monotonic() - last >= HEARTBEAT:
            last = time.monotonic()
            running = [f"{one.name}: {phrase(one)}" for one in statuses if one.state is State.RUNNING]
            show("; ".join([overview(statuses), *running]))
        time.sleep(EVERY)


def phrase(status: Status) -> str:
    """The progress of a run in words."""
    success = "" if status.success is None else f"success {status.success:.2f}"
    match status.state:
        case State.DONE:
            return f"done, {status.split} success {status.success:.3f} in {status.episodes} episodes"
        case State.FAILED:
            return f"FAILED at step {status.steps}/{status.planned}: {status.error.splitlines()[0]}"
        case State.RUNNING if status.steps < status.planned:
            return f"step {status.steps}/{status.planned}  {success}"
        case State.RUNNING:
            return f"playing {status.split} tasks, {status.episodes_done}/{status.episodes}"
        case State.TRAINED:
            return "trained, waits for its evaluation"
    return f"waits at step {status.steps}/{status.planned}" if status.steps else "waits"


def summary(statuses: Sequence[Status], seconds: float, left: float | None) -> str:
    """One line on all runs: how many are done, the ``seconds`` so far, and those ``left``, if known."""
    done, trained, failed = (
        sum(status.state is state for status in statuses)
        for state in (State.DONE, State.TRAINED, State.FAILED)
    )
    counted = [(trained, "trained and not evaluated"), (failed, "failed")]
    others = [f"{count} {what}" for count, what in counted if count]
    parts = [f"{done} of {len(statuses)} runs done", *others, f"{clock(seconds)} gone"]
    if done + failed == len(statuses):
        rest = "tables and figures are next"
    elif left is None:
        rest = "time left not known before each run has trained a step"
    else:
        rest = f"about {clock(left)} of training left"
    return ", ".join([*parts, rest] if statuses else [clock(seconds)])


def _picture(statuses: Sequence[Status], below: str, height: int) -> Group:
    """Runs at work first where not everything fits."""
    first = {State.RUNNING: 0, State.FAILED: 1}
    fits = len(statuses) <= height - MARGIN
    shown = list(statuses) if fits else sorted(statuses, key=lambda status: first.get(status.state, 2))
    grid = Table.grid(padding=(0, 2))
    for status in shown[: max(height - MARGIN, 1)]:
        bar = ProgressBar(total=max(status.planned, 1), completed=status.planned and status.steps, width=20)
        style = {State.DONE: "green", State.FAILED: "red", State.RUNNING: "bold"}.get(status.state, "dim")
        run = status.run
        texts = [Text(printable(text)) for text in (run.env, run.method, f"seed {run.seed}", phrase(status))]
        grid.add_row(*texts[:3], bar, texts[3], style=style)
    more = "" if fits else f"; {len(statuses) - height + MARGIN} more runs do not fit here"
    return Group(grid, Text(printable(below + more)))
