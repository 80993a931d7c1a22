"""One model's score under each protocol of an environment, as a table and a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r3l.config.protocol import load_protocol
from r3l.evaluation.summary import caveats
from r3l.files.writing import writable, write_atomic
from r3l.report.figures import style
from r3l.report.protocol_scores import Episodes, Evaluation, interval_over_tasks, shown
from r3l.report.table import Column, Table, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Played = Sequence[tuple[Evaluation, Episodes]]


def compared(played: Played) -> Table:
    """The table that compares evaluations of one model under several protocols, one row each."""
    first, _ = played[0]
    columns = [
        Column("protocol", lambda row: row[0]["protocol"]["name"]),
        Column("task set", lambda row: row[0]["task_set"]["name"]),
        Column("episodes", lambda row: row[0]["episodes"], "d"),
        Column("success (95 % interval)", lambda row: shown(interval_over_tasks(row[1]))),
        Column("reward (95 % interval)", lambda row: shown(interval_over_tasks(row[1], "reward"))),
        Column("reports", lambda row: _measure(row[0])),
        Column(
            "impossible actions", lambda row: f"{row[0]['turns']['impossible']} of {row[0]['turns']['all']}"
        ),
        Column("deviations", lambda row: "; ".join(row[0]["protocol"]["deviations"])),
    ]
    title = f"{first['model']} on {first['env']}, one model by every protocol"
    note = "Rewards are not on one scale: each protocol has its own rule. Task sets differ too."
    known = dict.fromkeys(line for evaluation, _ in played for line in caveats(evaluation))
    return table(title, columns, list(played), note, *known)


def draw(played: Played, path: Path) -> Path:
    """Draw success by protocol with its interval over tasks, as the PNG file ``path``; returns it."""
    import matplotlib.style  # takes a second

    with matplotlib.style.context(style.SHEET):
        drawn = io.BytesIO()  # in memory: matplotlib fails in its own ways on a full disk
        _figure(played).savefig(drawn, format="png", metadata={"Software": None})
    with writable(path):
        write_atomic(path, drawn.getvalue())
    return path


def _figure(played: Played) -> Figure:
    figure, axes = style.subplots(1, 1, style.COLUMN, 0.3 * len(played) + 0.8)
    axis = axes[0, 0]
    for place, (_, episodes) in enumerate(played):
        found = interval_over_tasks(episodes)
        low, high = (found.mean if end is None else end for end in (found.low, found.high))
        axis.errorbar(
            found.mean,
            place,
            xerr=[[found.mean - low], [high - found.mean]],
            fmt="o",
            color=style.GREY,
            capsize=2,
        )
    first, _ = played[0]
    axis.set_yticks(
        range(len(played)), [f"{e['protocol']['name']} ({e['task_set']['name']})" for e, _ in played]
    )
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("success, 95 % interval over tasks")
    axis.set_title(f"{first['model']}, {first['env']}", loc="left")
    return figure


def _measure(evaluation: Evaluation) -> str:
    return load_protocol(evaluation["env"], evaluation["protocol"]["name"]).config.measure
