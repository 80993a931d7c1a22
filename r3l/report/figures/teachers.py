"""Does the teacher teach? A row a method or probe: D on successes and on failures, and their difference."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.report.figures import style
from r3l.report.labels import bench_label
from r3l.report.teachers import BLIND, TeacherRow

SEES = "#0072B2"
NOT = "#9A9A9A"
NAME = 44  # characters in a line of a row's name


def draw(rows: Sequence[TeacherRow], out: Path) -> list[Path]:
    """Draw ``rows``, one line each, into the folder ``out`` or as the one file ``out``; returns the files.

    Raises DataError without rows, ConfigError if ``out`` names another file type than PDF or PNG,
    RunDirectoryError if it cannot be written.
    """
    import matplotlib.style
    from matplotlib.lines import Line2D

    if not rows:
        raise DataError("nothing to draw: no run has metrics of a teacher, and no probe measured one")
    seen = [(row.tier, row.env, row.model) for row in rows]
    names = [
        textwrap.fill(f"{bench_label(bench, seen)}: {row.label} ({row.count} {row.over})", NAME)
        for row, bench in zip(rows, seen, strict=True)
    ]
    with matplotlib.style.context(style.SHEET):
        height = 1.3 + 0.14 * sum(1.4 + name.count("\n") for name in names)
        figure, axes = style.subplots(1, 2, style.PAGE, height, sharey=True)
        means, differences = axes[0]
        for ax, title in ((means, "mean D (nats per token)"), (differences, "successes minus failures")):
            ax.axvline(0, color=style.GREY, linewidth=0.6)
            ax.set_title(title, loc="left", fontweight="bold")
            ax.grid(axis="y")
            ax.set_axisbelow(True)
        # A line for each row: D on both kinds of attempts, their difference, and the verdict in words.
        for y, row in enumerate(rows):
            colour = SEES if row.sees else NOT
            shown = row.decisive
            ends = [value for value in (shown.solved, shown.failed) if value is not None]
            means.plot(ends, [y] * len(ends), color=colour, linewidth=0.8)
            if shown.solved is not None:
                means.plot(shown.solved, y, "o", color=colour, markersize=4)
            if shown.failed is not None:
                means.plot(shown.failed, y, "o", color=colour, markersize=4, markerfacecolor="white")
            if shown.low is not None and shown.high is not None:
                differences.plot([shown.low, shown.high], [y, y], color=colour, linewidth=1.1)
            if shown.mean is not None:
                differences.plot(shown.mean, y, "D", color=colour, markersize=3.5)
            said = row.verdict if row.rank is None else f"rank {row.rank}"
            differences.annotate(
                said,
                (1.01, y),
                xycoords=differences.get_yaxis_transform(),
                va="center",
                fontsize=style.CAPTION,
                color=style.GREY if said == BLIND else "black",
            )
        means.set_yticks(range(len(rows)), [style.drawable(name) for name in names])
        means.set_ylim(len(rows) - 0.4, -0.6)
        dot: dict[str, Any] = {"linestyle": "none", "markersize": 4, "marker": "o", "color": style.GREY}
        handles = [
            Line2D([], [], **dot, label="D on successes"),
            Line2D([], [], **dot, markerfacecolor="white", label="D on failures"),
            Line2D([], [], color=SEES, label="tells successes from failures"),
            Line2D([], [], color=NOT, label="not shown to (blind, or too little data)"),
        ]
        style.legend(figure, handles)
        text = (
            "D: log p of sampled tokens under the teacher minus the policy's. Bars: 95 % intervals over "
            "seeds, or over a probe's tasks; of attempts with the same kind of hint, where runs recorded it. "
            "Where the interval includes 0 the teacher is blind, and the method is not ranked."
        )
        style.note(figure, text)
        return style.save(figure, out, "teachers")
