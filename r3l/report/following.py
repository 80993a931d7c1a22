"""Following a workflow: on a terminal a line a run, rewritten in place; elsewhere a line for each run that ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from r3l.processes.progress import clock
from r3l.workflow.following import Progress
from r3l.workflow.status import State

EVERY = 1.0  # seconds between two looks
HEARTBEAT = 60.0  # and between two lines where there is no terminal
MARGIN = 4  # lines of a terminal that are not for runs
Look = Callable[[], tuple[list[Progress], float]]  # every run as it is now, and the seconds that are left


def follow(look: Look, at_work: Callable[[], bool], console: Console) -> list[Progress]:
    """Show what ``look`` sees while the workflow is ``at_work``; the last that was seen."""
    return (_in_place if console.is_terminal else _by_lines)(look, at_work, console)


def _in_place(look: Look, at_work: Callable[[], bool], console: Console) -> list[Progress]:
    began = time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            going = at_work()
            seen, left = look()
            live.update(_picture(seen, summary(seen, time.monotonic() - began, left), console.height), refresh=True)
            if not going:
                return seen
            time.sleep(EVERY)


def _by_lines(look: Look, at_work: Callable[[], bool], console: Console) -> list[Progress]:
    began = told = time.monotonic()
    before = {progress.name: progress.status.state for progress in look()[0]}
    while True:
        going = at_work()
        seen, left = look()
        for progress in seen:
            state = progress.status.state
            if state in (State.DONE, State.FAILED) and before[progress.name] is not state:
                console.print(f"{progress.name}: {said(progress)}", soft_wrap=True, highlight=False, markup=False)
            before[progress.name] = state
        if not going:
            return seen
        if time.monotonic() - told >= HEARTBEAT:
            told = time.monotonic()
            console.print(_beat(seen, told - began, left), soft_wrap=True, highlight=False, markup=False)
        time.sleep(EVERY)


def said(progress: Progress) -> str:
    """How far a run is, in words."""
    status = progress.status
    success = "" if progress.success is None else f"success {progress.success:.2f}"
    match status.state:
        case State.DONE:
            return f"done, {progress.split} success {progress.success:.3f} in {progress.episodes} episodes"
        case State.FAILED:
            return f"FAILED at step {status.steps}/{status.planned}: {status.error.splitlines()[0]}"
        case State.RUNNING if status.steps < status.planned:
            return f"step {status.steps}/{status.planned}  {success}"
        case State.RUNNING:
            return f"playing {progress.split} tasks, {progress.evaluated}/{progress.episodes}"
        case State.TRAINED:
            return "trained, waits for its evaluation"
    return f"waits at step {status.steps}/{status.planned}" if status.steps else "waits"


def summary(seen: Sequence[Progress], seconds: float, left: float) -> str:
    """The whole in one line."""
    done = sum(progress.done for progress in seen)
    trained, failed = (sum(one.status.state is state for one in seen) for state in (State.TRAINED, State.FAILED))
    counted = [(trained, "trained and not evaluated"), (failed, "failed")]
    others = [f"{count} {what}" for count, what in counted if count]
    parts = [f"{done} of {len(seen)} runs done", *others, f"{clock(seconds)} gone"]
    rest = f"about {clock(left)} left" if done + failed < len(seen) else "tables and figures are next"
    return ", ".join([*parts, rest] if seen else [clock(seconds)])


def _beat(seen: Sequence[Progress], seconds: float, left: float) -> str:
    running = [f"{progress.name}: {said(progress)}" for progress in seen if progress.status.state is State.RUNNING]
    return "; ".join([summary(seen, seconds, left), *running])


def _picture(seen: Sequence[Progress], below: str, height: int) -> Group:
    """What is at work first where not everything fits."""
    first = {State.RUNNING: 0, State.FAILED: 1}
    fits = len(seen) <= height - MARGIN
    shown = list(seen) if fits else sorted(seen, key=lambda progress: first.get(progress.status.state, 2))
    grid = Table.grid(padding=(0, 2))
    for progress in shown[: max(height - MARGIN, 1)]:
        run, status = progress.status.run, progress.status
        bar = ProgressBar(total=max(status.planned, 1), completed=status.planned and status.steps, width=20)
        style = {State.DONE: "green", State.FAILED: "red", State.RUNNING: "bold"}.get(status.state, "dim")
        grid.add_row(run.env, run.method, f"seed {run.seed}", bar, said(progress), style=style)
    return Group(grid, below if fits else f"{below}; {len(seen) - height + MARGIN} more runs do not fit here")
