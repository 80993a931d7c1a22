"""The state of a grid of runs, as a table: methods by environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from r3l.report.table import Column, Table, table
from r3l.workflow.status import MEANINGS, State, Status


def status_table(statuses: Sequence[Status]) -> Table:
    """The table of methods by environments: seeds that are done, and the states of the others.

    A note says how much is left.
    """
    envs = list(dict.fromkeys(status.run.env for status in statuses))
    methods = list(dict.fromkeys(status.run.method for status in statuses))

    def states(env: str) -> Column:
        return Column(
            env, lambda method: _text([s for s in statuses if (s.run.env, s.run.method) == (env, method)])
        )

    title = f"{_count(statuses, State.DONE)} of {len(statuses)} runs done"
    return table(title, [Column("method", str), *map(states, envs)], methods, summary(statuses))


def _text(statuses: Sequence[Status]) -> str:
    """How many of a cell's runs are done, and the states of the others: ``3 of 5; running at 4/10``."""
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
    """The number of runs in each state with its meaning, and the training time left, in one line.

    Each damaged run adds a line with its error.
    """
    counts = {state: _count(statuses, state) for state in State}
    states = [f"{n} {state} ({MEANINGS[state]})" for state, n in counts.items() if n]
    unknown = sum(status.seconds_left is None for status in statuses)
    minutes = sum(status.seconds_left or 0 for status in statuses) / 60
    time = (
        f"about {minutes:.0f} minutes of one core left" if minutes else "nothing left" if not unknown else ""
    )
    if unknown:
        time += f"{'; ' if time else ''}{unknown} runs of unknown length"
    damaged = [f"\n{status.error}" for status in statuses if status.state is State.DAMAGED]
    return f"{'; '.join(states)}. Training: {time}{''.join(damaged)}"


def _count(statuses: Sequence[Status], state: State) -> int:
    return sum(status.state is state for status in statuses)
