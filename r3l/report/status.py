"""The state of a grid of runs: as a table, and followed while a workflow is at work.

On a terminal a line a run is rewritten in place; elsewhere each run that ends is a line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid

from r3l.processes.progress import clock
from r3l.report.table import Column, Table, table
from r3l.workflow.following import Progress
from r3l.workflow.status import MEANINGS, State, Status

EVERY = 1.0  # seconds between two looks
HEARTBEAT = 60.0  # and between two lines where there is no terminal
MARGIN = 4  # lines of a terminal that are not for runs
Look = Callable[[], tuple[list[Progress], float]]  # every run as it is now, and the seconds that are left


def status_table(statuses: Sequence[Status]) -> Table:
    """Methods by environments, with the seeds that are done and what the others do; what is left below."""
    envs = list(dict.fromkeys(status.run.env for status in statuses))
    methods = list(dict.fromkeys(status.run.method for status in statuses))

    def states(env: str) -> Column:
        return Column(env, lambda method: _text([s for s in statuses if (s.run.env, s.run.method) == (env, method)]))

    title = f"{_count(statuses, State.DONE)} of {len(statuses)} runs done"
    return table(title, [Column("method", str), *map(states, envs)], methods, summary(statuses))


def _text(statuses: Sequence[Status]) -> str:
    """``3 of 5``, then what the others do."""
    if not statuses:
        return ""
    others = Counter(_phrase(status) for status in statuses if status.state is not State.DONE)
    text = ", ".join(f"{n} {phrase}" if n > 1 else phrase for phrase, n in others.items())
    return f"{_count(statuses, State.DONE)} of {len(statuses)}" + (f"; {text}" if text else "")


def _phrase(status: Status) -> str:
    if status.state in (State.RUNNING, State.STOPPED, State.FAILED) and status.planned:
        return f"{status.state} at {status.steps}/{status.planned}"
    return status.state


def summary(statuses: Sequence[Status]) -> str:
    """What the states mean and how much work is left."""
    counts = {state: _count(statuses, state) for state in State}
    states = [f"{n} {state} ({MEANINGS[state]})" for state, n in counts.items() if n]
    unknown = sum(status.seconds_left is None for status in statuses)
    minutes = sum(status.seconds_left or 0 for status in statuses) / 60
    time = f"about {minutes:.0f} minutes of one core left" if minutes else "nothing left" if not unknown else ""
    if unknown:
        time += f"{'; ' if time else ''}{unknown} runs of unknown length"
    return f"{'; '.join(states)}. Training: {time}"


def _count(statuses: Sequence[Status], state: State) -> int:
    return sum(status.state is state for status in statuses)


def follow(look: Look, at_work: Callable[[], bool], console: Console) -> list[Progress]:
    """Show what ``look`` sees while the workflow is ``at_work``; the last that was seen."""
    return (_in_place if console.is_terminal else _by_lines)(look, at_work, console)


def _in_place(look: Look, at_work: Callable[[], bool], console: Console) -> list[Progress]:
    began = time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            going = at_work()
            seen, left = look()
            live.update(_picture(seen, in_a_line(seen, time.monotonic() - began, left), console.height), refresh=True)
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


def in_a_line(seen: Sequence[Progress], seconds: float, left: float) -> str:
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
    return "; ".join([in_a_line(seen, seconds, left), *running])


def _picture(seen: Sequence[Progress], below: str, height: int) -> Group:
    """What is at work first where not everything fits."""
    first = {State.RUNNING: 0, State.FAILED: 1}
    fits = len(seen) <= height - MARGIN
    shown = list(seen) if fits else sorted(seen, key=lambda progress: first.get(progress.status.state, 2))
    grid = Grid.grid(padding=(0, 2))
    for progress in shown[: max(height - MARGIN, 1)]:
        run, status = progress.status.run, progress.status
        bar = ProgressBar(total=max(status.planned, 1), completed=status.planned and status.steps, width=20)
        style = {State.DONE: "green", State.FAILED: "red", State.RUNNING: "bold"}.get(status.state, "dim")
        grid.add_row(run.env, run.method, f"seed {run.seed}", bar, said(progress), style=style)
    return Group(grid, below if fits else f"{below}; {len(seen) - height + MARGIN} more runs do not fit here")
