"""The map as a figure: R3L minus GRPO over what a probe of the base checkpoint measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.report.figures import style
from r3l.report.map_rule import DIFFERENCES, UNSEEN, lines, name_of
from r3l.report.probe_map import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REAL = 100_000_000  # parameters; what has as many is a published language model, not one of tier nano
COLOURS = "plasma"  # from dark to light, also in grey
LIMITS = (0.0, 0.5)  # of base success, by colour
TITLES = {"early": "Early: training success, first third", "final": "Final: test success, last update"}


def draw(rows: Sequence[Comparison], out: Path) -> list[Path]:
    """Draw the map into the folder ``out``, or as the one file ``out``; returns the files written.

    The map shows R3L minus GRPO over a probe's guided minus fresh. ``rows``: at least one. Raises
    ConfigError if ``out`` names another file type than PDF or PNG, RunDirectoryError if ``out`` cannot be
    written.
    """
    import matplotlib.style
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D

    ordered = sorted(rows, key=lambda row: row["guided_minus_fresh"])
    shade = ScalarMappable(Normalize(*LIMITS), colormaps[COLOURS])
    with matplotlib.style.context(style.SHEET):
        figure, axes = style.subplots(1, len(DIFFERENCES), style.PAGE, 3.6, sharex=True, sharey=True)
        for ax, name in zip(axes[0], DIFFERENCES, strict=True):
            _panel(ax, ordered, name, shade)
        axes[0, 0].set_ylabel("R3L minus GRPO")
        figure.colorbar(shade, ax=axes[0, -1], label="success of the base checkpoint", pad=0.02)
        dot: dict[str, Any] = {"linestyle": "none", "color": style.GREY, "markersize": 4}
        handles = [
            Line2D([], [], marker="o", label="tiny model (nano)", **dot),
            Line2D([], [], marker="D", label="language model", **dot),
        ]
        unseen = [row for row in rows if row["part"] == UNSEEN]
        wrong = [row for row in rows if _misled(row)]
        if unseen:
            handles.append(Line2D([], [], marker="s", label="predicted before it was run", **dot))
        if wrong:
            dot |= {"markerfacecolor": "white"}
            handles.append(Line2D([], [], marker="s", label="the same, hints made wrong on purpose", **dot))
        handles.append(Line2D([], [], color=style.GREY, label="line through all; band: 95 % of new ones"))
        style.legend(figure, handles)
        # Points have numbers, explained in the note, except the points of UNSEEN, which are too many.
        named = [row for row in ordered if row["part"] != UNSEEN]
        names = Counter(name_of(row) for row in named)
        key = [
            f"{k} {name_of(row)}" + (f" ({row['model']})" if names[name_of(row)] > 1 else "")
            for k, row in enumerate(named, 1)
        ]
        text = style.drawable(
            f"{len(rows)} comparisons at equal learning rates, {len(unseen)} of them predicted. Guided minus "
            "fresh: success of a retry under the hint minus that of another attempt, after failures of the "
            f"base checkpoint. Bars: 95 % intervals, over tasks and over seeds. {', '.join(key)}. Numbers: "
            "r3l table map."
        )
        style.note(figure, text)
        return style.save(figure, out, "map")


def _panel(ax: Axes, rows: Sequence[Comparison], name: str, shade: Any) -> None:
    """One difference: the rule with its band below, then each comparison with both intervals and its
    number."""
    xs = [row["guided_minus_fresh"] for row in rows]
    reach = np.linspace(min(xs) - 0.03, max(xs) + 0.03, 50)
    line = lines(rows).get(name)
    if line is not None:
        band = [line.at(float(x)) for x in reach]
        ax.fill_between(
            reach, [b.low for b in band], [b.high for b in band], color=style.GREY, alpha=0.12, linewidth=0
        )
        ax.plot(reach, [b.value for b in band], color=style.GREY, linewidth=0.8)
    box: dict[str, Any] = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
    corner = ax.text(
        0.03, 0.03, slopes(rows, name), transform=ax.transAxes, va="bottom", fontsize=6, bbox=box
    )
    corner.set_in_layout(False)  # the panel keeps its width
    ax.axhline(0, color=style.GREY, linewidth=0.5, linestyle=":")
    number = 0
    for row in rows:
        x = row["guided_minus_fresh"]
        y = row[name]
        colour = shade.to_rgba(row["base_success"])
        for low, high, along in (
            (row["guided_minus_fresh_low"], row["guided_minus_fresh_high"], True),
            (row[f"{name}_low"], row[f"{name}_high"], False),
        ):
            if low is not None and high is not None:
                ax.plot(
                    *(([low, high], [y, y]) if along else ([x, x], [low, high])),
                    color=colour,
                    linewidth=0.7,
                    alpha=0.7,
                )
        real = (row["parameters"] or 0) >= REAL
        marker = "D" if real else "s" if row["part"] == UNSEEN else "o"
        fill = "white" if _misled(row) else colour
        dot: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": colour}
        if row["part"] == UNSEEN:  # its cells are many, and named in the table
            ax.plot(x, y, marker, markersize=4, **dot)
            continue
        number += 1
        ax.plot(x, y, marker, markersize=7.5, zorder=3, **dot)
        # White on the dark half of the colours, black on the light half.
        ink = "white" if row["base_success"] < sum(LIMITS) / 2 else "black"
        place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 4}
        ax.annotate(str(number), (x, y), fontsize=5.5, color=ink, **place)
    ax.set(title=TITLES[name], xlabel="guided minus fresh, base checkpoint")
    ax.grid(axis="both")
    ax.set_axisbelow(True)


def slopes(rows: Sequence[Comparison], name: str) -> str:
    """Slopes of the difference ``name`` with 95 % intervals, one text line each.

    If some of ``rows`` were predicted before they were run, only those count, since the others raised the
    question: all of them, and those whose hints were not made wrong on purpose. "" if too few rows give a
    line.
    """
    predicted = [row for row in rows if row["part"] == UNSEEN]
    right = [row for row in predicted if not _misled(row)]
    groups = {f"{len(predicted)} predicted": predicted, f"{len(right)} of them, hints unaltered": right}
    texts = []
    for label, group in (groups if predicted else {"all": rows}).items():
        if (line := lines(group).get(name)) is not None:
            low, high = line.slope_bounds
            texts.append(f"slope, {label}: {line.slope:+.2f} ({low:.2f} to {high:.2f})")
    return "\n".join(texts)


def _misled(row: Comparison) -> bool:
    """Whether some of the reflections that R3L was trained with were wrong on purpose."""
    return bool(row["feedback_corruption"] > 0)
