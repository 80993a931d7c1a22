"""Gain from feedback per token: differences to GRPO, tokens an update, success gained per million tokens."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.config.method import RATE
from r3l.core.errors import DataError
from r3l.report.feedback_per_token import FeedbackRow, section
from r3l.report.figures import style
from r3l.report.labels import has_foreign_feedback

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from r3l.stats.intervals import Interval

ASIDE = 0.16  # rows, of the early difference above and of the final one below a method's line
THICK = 0.5  # rows, of a bar
SCORED = 0.55  # tint of the bar of scored tokens
FARTHEST = 0.5  # of differences; one beyond it is an arrow at the edge, so that others can be read
GAP = 0.5  # rows, above the name of an environment
NAME = 40  # characters in a line of a row's name; longer lines would narrow the panels
SECOND_LINE = 0.5  # rows, the height of each further line of a row's name
TITLES = ("success minus GRPO's", "tokens an update", "gain per million")
UNITS = ("share of tasks", "thousands", "success per million sampled")


def draw(rows: Sequence[FeedbackRow], out: Path) -> list[Path]:
    """Draw the figure into the folder ``out``, or as the one file ``out``; returns the files written.

    ``rows``: the rows of one environment follow one another. A line for each, below its environment's name:
    differences to GRPO, tokens, gain. Raises DataError without a row that has runs, ConfigError if ``out``
    names another file type than PDF or PNG, RunDirectoryError if ``out`` cannot be written.
    """
    import matplotlib.style
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not any(row.seeds for row in rows):
        raise DataError("nothing to draw: none of these methods has run")
    # Heights in rows: a line for each environment's name, then one for each of its methods.
    ticks: dict[float, str] = {}
    end = -0.5
    placed: list[tuple[float, FeedbackRow]] = []
    for title, of_section in groupby(rows, key=section):
        ticks[end + GAP + 0.5] = title
        end += GAP + 1
        for row in of_section:
            name = textwrap.fill(_name(row), NAME)
            height = 1 + SECOND_LINE * name.count("\n")
            ticks[end + height / 2] = name
            placed.append((end + height / 2, row))
            end += height

    with matplotlib.style.context(style.SHEET):
        figure, axes = style.subplots(1, 3, style.PAGE, 1.1 + 0.17 * (end + 0.5), sharey=True)
        for ax, title, unit in zip(axes[0], TITLES, UNITS, strict=True):
            ax.set_title(title, loc="left", fontweight="bold")
            ax.set_xlabel(unit)
            ax.grid(axis="x")
            ax.set_axisbelow(True)
        axes[0, 0].axvline(0, color=style.GREY, linewidth=0.6)

        for y, row in placed:
            _row(axes[0], y, row)
        first = axes[0, 0]
        first.set_yticks(list(ticks), [style.drawable(name) for name in ticks.values()])
        sections = {style.drawable(section(row)) for row in rows}
        for label in first.get_yticklabels():
            if label.get_text() in sections:
                label.set_fontweight("bold")
        first.set_ylim(end + 0.1, -0.4)
        for ax in axes[0]:
            ax.tick_params(axis="y", length=0)

        dot: dict[str, Any] = {"linestyle": "none", "markersize": 4, "marker": "o", "color": style.GREY}
        handles = [
            Line2D([], [], **dot, markerfacecolor="white", label="early, first third"),
            Line2D([], [], **dot, label="final, test tasks"),
            Patch(color=style.GREY, label="sampled"),
            Patch(color=style.tint(style.GREY, SCORED), label="scored"),
            Line2D([], [], linestyle="none", marker="|", color="black", label="trained"),
        ]
        style.legend(figure, handles)
        style.note(
            figure,
            "In brackets: seeds. Each method at GRPO's learning rate unless its name says another. "
            "Bars: 95 % intervals over seeds; differences are paired by seed. "
            f"Arrows: a difference beyond {FARTHEST:g}, in figures. "
            "Gain: final success minus the base checkpoint's. "
            "Blind: the interval of the teacher's D on successes minus failures (at equal hints, where "
            "measured) includes 0. "
            "Numbers: r3l table feedback_per_token.",
        )
        return style.save(figure, out, "feedback_per_token")


def _name(row: FeedbackRow) -> str:
    """The method's name, with what a reader must know of its row."""
    remarks = ["no runs"] if not row.seeds else [f"{row.seeds}"]
    if row.at_other_rate and row.rate is not None and f"{RATE}=" not in row.method:
        remarks.append(f"rate {row.rate:g}")
    if row.blind:
        remarks.append("blind")
    if has_foreign_feedback(row.feedback) and "feedback=" not in row.label:
        remarks.append(str(row.feedback))
    in_one_line = ", ".join(remarks).replace(" ", "\u00a0")
    return f"{row.label} ({in_one_line})"


def _row(axes: Sequence[Axes], y: float, row: FeedbackRow) -> None:
    """One method's line in the three panels; an empty one without runs."""
    differences, tokens, gains = axes
    seen = style.look(row.method)
    if not row.seeds:
        return
    for effect, aside, fill in ((row.early_effect, -ASIDE, "white"), (row.final_effect, ASIDE, seen.colour)):
        if effect is not None:
            _difference(differences, y + aside, effect.interval, seen.colour, fill)
    # Tokens that were not recorded have no bar.
    sampled = row.tokens["generated_tokens"] or 0.0
    scored = row.tokens["scored_tokens"] or 0.0
    tokens.barh(y, sampled / 1000, THICK, color=seen.colour)
    tokens.barh(y, scored / 1000, THICK, left=sampled / 1000, color=style.tint(seen.colour, SCORED))
    if (trained := row.tokens["trained_tokens"]) is not None:
        tokens.plot(trained / 1000, y, "|", color="black", markersize=7)
    if row.gain is not None:
        _interval(gains, y, row.gain, seen.colour, seen.colour)
    else:
        gains.annotate(
            row.no_gain,
            (0.02, y),
            xycoords=gains.get_yaxis_transform(),
            va="center",
            fontsize=style.CAPTION,
            color=style.GREY,
        )


def _difference(ax: Axes, y: float, found: Interval, colour: str, fill: str) -> None:
    """A difference with its interval; one beyond FARTHEST is an arrow at the edge, with its value."""
    if abs(found.mean) <= FARTHEST:
        _interval(ax, y, found, colour, fill)
        return
    side = 1 if found.mean > 0 else -1
    arrow = "<" if side < 0 else ">"
    ax.plot(side * FARTHEST, y, arrow, color=colour, markersize=4, markerfacecolor=fill, clip_on=False)
    ax.annotate(
        f"{found.mean:+.2f}",
        (side * FARTHEST, y),
        (-5 * side, 0),
        textcoords="offset points",
        ha="right" if side > 0 else "left",
        va="center",
        fontsize=style.CAPTION,
        color=colour,
    )


def _interval(ax: Axes, y: float, found: Interval, colour: str, fill: str) -> None:
    if found.low is not None and found.high is not None:
        ax.plot([found.low, found.high], [y, y], color=colour, linewidth=1)
    ax.plot(found.mean, y, "o", color=colour, markersize=3.5, markerfacecolor=fill)
