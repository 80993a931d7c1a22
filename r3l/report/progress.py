"""The state of a workflow's runs: a table of the grid, and their progress while it works. On a terminal that
is one line per run, rewritten in place; elsewhere a line for each run that ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from r3l.core.text import printable
from r3l.processes.progress import clock
from r3l.report.table import Column, Table, table
from r3l.workflow.status import MEANINGS, State, Status, seconds_left

EVERY = 1.0  # seconds between two inspections
HEARTBEAT = 60.0  # and between two lines where there is no terminal
MARGIN = 4  # lines of a terminal that are not for runs
Inspect = Callable[[], list[Status]]


def follow(inspect: Inspect, at_work: Callable[[], bool], console: Console, cores: int) -> list[Status]:
    """Show the runs, once a second, until the workflow is no longer ``at_work``; returns their last status.

    ``inspect`` gives the present status of all runs. ``at_work``: True while the workflow works. ``cores``:
    number of cores that the runs share, for the time left. Without a terminal it prints a line for each run
    that ends, and once a minute a line on all of them.
    """
    began = time.monotonic()

    def overview(statuses: Sequence[Status]) -> str:
        return summary(statuses, time.monotonic() - began, seconds_left(statuses, cores))

    if not console.is_terminal:
        return _by_lines(inspect, at_work, console, overview)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            going = at_work()
            statuses = inspect()
            live.update(_picture(statuses, overview(statuses), console.height), refresh=True)
            if not going:
                return statuses
            time.sleep(EVERY)


def _by_lines(
    inspect: Inspect,
    at_work: Callable[[], bool],
    console: Console,
    overview: Callable[[Sequence[Status]], str],
) -> list[Status]:
    """Follow the runs without a terminal: a line for each that ends, and one on all each minute."""

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
    """The progress of a run in words, such as ``step 12/100  success 0.50`` or ``waits``.

    Other forms: ``done, test success ...``, ``playing test tasks, 3/100``, ``FAILED at step 4/100: ...``,
    ``waits at step 4/100`` and ``trained, waits for its evaluation``.
    """
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
    """One line on all runs: how many are done, how long it took, and how long it will take.

    ``seconds``: so far. ``left``: seconds of training that are left; None: not known yet.
    """
    done, trained, failed, damaged = (
        sum(status.state is state for status in statuses)
        for state in (State.DONE, State.TRAINED, State.FAILED, State.DAMAGED)
    )
    counted = [(trained, "trained and not evaluated"), (failed, "failed"), (damaged, "damaged")]
    others = [f"{count} {what}" for count, what in counted if count]
    parts = [f"{done} of {len(statuses)} runs done", *others, f"{clock(seconds)} gone"]
    if done + failed + damaged == len(statuses):
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
    grid = Grid.grid(padding=(0, 2))
    for status in shown[: max(height - MARGIN, 1)]:
        bar = ProgressBar(total=max(status.planned, 1), completed=status.planned and status.steps, width=20)
        style = {State.DONE: "green", State.FAILED: "red", State.RUNNING: "bold"}.get(status.state, "dim")
        run = status.run
        texts = [Text(printable(text)) for text in (run.env, run.method, f"seed {run.seed}", phrase(status))]
        grid.add_row(*texts[:3], bar, texts[3], style=style)
    more = "" if fits else f"; {len(statuses) - height + MARGIN} more runs do not fit here"
    return Group(grid, Text(printable(below + more)))


def status_table(statuses: Sequence[Status]) -> Table:
    """The table of methods by environments: how many seeds are done, and the states of the others.

    A note gives the number of runs in each state with its meaning, and the training time left. Each damaged
    run adds a line with its error.
    """

    def states(env: str) -> Column:
        """``3 of 5; running at 4/10``."""

        def cell(method: str) -> str:
            here = [status for status in statuses if (status.run.env, status.run.method) == (env, method)]
            if not here:
                return ""
            others: Counter[str] = Counter()
            for status in here:
                begun = status.state in (State.RUNNING, State.STOPPED, State.FAILED) and status.planned
                if status.state is not State.DONE:
                    others[status.state + (f" at {status.steps}/{status.planned}" if begun else "")] += 1
            text = ", ".join(f"{n} {state}" if n > 1 else state for state, n in others.items())
            return f"{len(here) - others.total()} of {len(here)}" + (f"; {text}" if text else "")

        return Column(env, cell)

    # The note: runs by state, and the training that is left.
    counts = Counter(status.state for status in statuses)
    known = [f"{counts[state]} {state} ({MEANINGS[state]})" for state in State if counts[state]]
    unknown = sum(status.seconds_left is None for status in statuses)
    minutes = sum(status.seconds_left or 0 for status in statuses) / 60
    left = [f"about {minutes:.0f} minutes of one core left"] if minutes else []
    left += [f"{unknown} runs of unknown length"] if unknown else []
    damaged = [f"\n{status.error}" for status in statuses if status.state is State.DAMAGED]
    note = f"{'; '.join(known)}. Training: {'; '.join(left) or 'nothing left'}{''.join(damaged)}"

    envs = dict.fromkeys(status.run.env for status in statuses)
    methods = list(dict.fromkeys(status.run.method for status in statuses))
    title = f"{counts[State.DONE]} of {len(statuses)} runs done"
    return table(title, [Column("method", str), *map(states, envs)], methods, note)
