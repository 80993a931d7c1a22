"""What numbers of seeds could show: the smallest difference against seeds, a subplot an environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from r3l.core.errors import DataError
from r3l.evaluation.power import Goal, smallest_difference, uncertainty
from r3l.report.figures import style
from r3l.report.figures.data import select
from r3l.report.figures.palette import look
from r3l.report.labels import env_label, method_label
from r3l.report.records import Record
from r3l.report.rows import LongRow
from r3l.workflow.plan import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEDS = np.arange(3, 31)  # fewer show nothing, more are seldom run
COLUMNS = 4  # subplots side by side


def draw_power(rows: Sequence[LongRow], records: Sequence[Record], goal: Goal, out: Path) -> list[Path]:
    """Draw the rows of ``power_rows`` as ``out`` (.png or .pdf; without suffix both). Raises DataError for none."""
    import matplotlib

    known = [row for row in rows if row["spread"] is not None]
    if not known:
        raise DataError("nothing to draw: no comparison has two common seeds that differ")
    envs = list(dict.fromkeys(row["env"] for row in known))
    across = math.ceil(len(envs) / math.ceil(len(envs) / COLUMNS))  # rows of equal length
    with matplotlib.rc_context(style.RC):
        figure, axes = style.grid(len(envs), across, cell_height=1.9, margin=0.9)
        for ax, env in zip(axes.flat, envs, strict=False):
            _subplot(ax, [row for row in known if row["env"] == env], goal)
        for ax in axes[:, 0]:
            ax.set_ylabel("smallest difference in success")
        style.method_legend(figure, {row["against"]: f"against {row['label']}" for row in known})
        drawn = [record for record in records if record["env"] in envs]
        style.caption(figure, select(drawn, tables()["table1"]), _caption(known, goal))
        return style.save(figure, out)


def _caption(rows: Sequence[LongRow], goal: Goal) -> str:
    first, one = rows[0], len({row["against"] for row in rows}) == 1
    bands = "bands: 95 % intervals of that spread; " if one else ""
    return (
        f"The smallest difference between {method_label(first['method'])} and another method that so many paired "
        f"seeds can show (two-sided {100 * goal.level:.3g} %, power {100 * goal.power:g} %), if differences spread "
        f"over seeds as in the stored runs; markers: as many as are stored; {bands}dashed: {first['wanted']:g}."
    )


def _subplot(ax: Axes, rows: Sequence[LongRow], goal: Goal) -> None:
    shapes_K = np.array([smallest_difference(1.0, int(seeds), goal) for seeds in SEEDS])
    for row in rows:
        seen, sizes_K = look(row["against"]), row["spread"] * shapes_K
        ax.plot(SEEDS, sizes_K, **seen.line(), linewidth=1.2)
        ax.plot(row["pairs"], row["smallest_difference"], **seen.point(4.5))
        if len(rows) == 1:  # bands of several would hide each other
            low, high = uncertainty(row["pairs"])
            ax.fill_between(SEEDS, low * sizes_K, high * sizes_K, color=seen.colour, alpha=0.15, linewidth=0)
    ax.axhline(rows[0]["wanted"], color=style.GREY, linewidth=0.8, linestyle="--")
    ax.set_yscale("log")
    ax.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"])
    ax.minorticks_off()
    ax.set_ylim(0.009, 1)
    ax.set_xticks([3, 5, 10, 15, 20, 25, 30])
    ax.set_title(env_label(rows[0]["env"]), loc="left", fontweight="bold")
    ax.set_xlabel("seeds")
    ax.grid(axis="both")
