"""Stacked bars, a bar a method: what its training cost, and how its test episodes ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from r3l.core.errors import DataError
from r3l.evaluation.summary import ENDINGS as names_of_reasons
from r3l.report.figures import style
from r3l.report.figures.data import Shown
from r3l.report.updates import updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r3l.report.figures.style import Drawn

Amounts = dict[str, float]
# Key: (label, colour); no colour of a method, and darker where it matters more.
Parts = dict[str, tuple[str, str]]
SECONDS: Parts = {
    "seconds/rollout": ("rollouts", "#3B5B6D"),
    "seconds/feedback": ("reflections, critiques", "#C9A66B"),
    "seconds/retry": ("retries", "#8A5A44"),
    "seconds/waiting": ("environments and waiting", "#D9D9D9"),
    "seconds/train": ("training", "#9FB8AD"),
}
TOKENS: Parts = {
    "tokens/rollout": SECONDS["seconds/rollout"],
    "tokens/feedback": SECONDS["seconds/feedback"],
    "tokens/retry": SECONDS["seconds/retry"],
}
STOP_COLOURS = (
    "#2F6B4F",
    "#B9CDA6",
    "#E3C77B",
    "#C98B4B",
    "#8E4A3C",
    "#5B3A57",
    "#8D83A6",
    "#B9B4C7",
    "#1A1A1A",
)
STOPS: Parts = {
    reason.value: (name, colour)
    for (reason, name), colour in zip(names_of_reasons.items(), STOP_COLOURS, strict=True)
}
ENDINGS: Parts = STOPS | {"other": ("other", "#E0E0E0")}


def cost(shown: Shown) -> Drawn:
    """Figure of training cost: seconds by phase and generated tokens by kind, means over seeds.

    One row of subplots per environment. Raises DataError if none of the runs was trained.
    """
    trained = shown.only(lambda run: run.steps > 0)
    if not trained.benches:
        raise DataError(
            f"nothing to draw of {', '.join(shown.labels().values())}: none of them was trained; add runs"
        )
    heights = [len(bench.runs) + 1.2 for bench in trained.benches]
    size = (style.PAGE, 0.15 * sum(heights) + 0.35 * len(heights) + 0.7)
    figure, axes = style.subplots(len(heights), 2, *size, sharey="row", height_ratios=heights)
    for row, bench in zip(axes, trained.benches, strict=True):
        spent = [_mean_spent(seeds) for seeds in bench.runs.values()]
        _stack(row[0], spent, SECONDS, 60, "not recorded")
        _stack(row[1], spent, TOKENS, 1000, "not recorded")
        row[0].set_title(bench.label, loc="left", fontweight="bold")
        style.method_rows(row, bench.labels())
    axes[-1, 0].set_xlabel("time (minutes)")
    axes[-1, 1].set_xlabel("generated tokens (thousands)")
    _legend(figure, SECONDS.values())
    text = "What training cost, means over seeds. Time as measured: runs side by side share the machine."
    return figure, trained, text


def _mean_spent(seeds: pd.DataFrame) -> Amounts:
    """Seconds and tokens of a training by what they went into, means over its seeds."""
    of_seeds: list[Amounts] = []
    for path in seeds.path:
        sums: Counter[str] = Counter()
        for row in updates(path):
            sums.update({key: value for key, value in row.items() if key.startswith(("seconds/", "tokens/"))})
        parts = sums["seconds/rollout"] + sums["seconds/feedback"] + sums["seconds/retry"]
        sums["seconds/waiting"] = max(0, sums["seconds/collect"] - parts)
        sums["tokens/feedback"] = sums["tokens/reflection"] + sums["tokens/critique"]
        of_seeds.append(dict(sums))
    keys = {key for sums in of_seeds for key in sums}
    return {key: sum(sums.get(key, 0.0) for sums in of_seeds) / len(of_seeds) for key in keys}


def stops(shown: Shown) -> Drawn:
    """Figure of the share of test episodes by the reason that ended them, the seeds of a method together.

    One subplot per environment, one bar per method.
    """
    across = min(3, len(shown.benches))
    down = -(-len(shown.benches) // across)
    labels = shown.labels()
    width = style.PAGE if across > 1 else 4.5
    figure, axes = style.subplots(
        down, across, width, (0.16 * len(labels) + 0.5) * down + 0.9, sharex=True, sharey=True
    )
    for ax, bench in zip(axes.flat, shown.benches, strict=False):
        shares = {method: ending_shares(seeds) for method, seeds in bench.runs.items()}
        _stack(ax, [shares.get(method, {}) for method in labels], ENDINGS, 1, "no run")
        ax.set_title(bench.label, loc="left", fontweight="bold")
        ax.set(xlim=(0, 1), xlabel="share of test episodes")
        ax.tick_params(labelbottom=True)
    for ax in axes.flat[len(shown.benches) :]:
        ax.set_axis_off()
    for row in axes:
        style.method_rows(row, labels)
    # Only reasons that occur are in the legend.
    reasons = set(ending_shares(shown.runs))
    _legend(figure, [part for reason, part in ENDINGS.items() if reason in reasons])
    text = "How the test episodes of the last checkpoint ended, seeds together."
    return figure, shown, text


def ending_shares(runs: pd.DataFrame) -> Amounts:
    """The share in [0, 1] of the test episodes of ``runs`` that ended for each reason that occurs.

    Reasons without a colour (not in STOPS) are added up as ``other``. {} without runs.
    """
    counts: Counter[str] = Counter()
    for stops in runs.stops:
        counts.update({reason if reason in STOPS else "other": count for reason, count in stops.items()})
    return {reason: count / counts.total() for reason, count in counts.items()}


def _stack(ax: Axes, bars: Sequence[Amounts], parts: Parts, unit: float, empty: str) -> None:
    """A horizontal bar for each of ``bars``: its ``parts`` one after the other, divided by ``unit``; else
    ``empty``."""
    left = np.zeros(len(bars))
    for key, (_, colour) in parts.items():
        widths = np.array([bar.get(key, 0.0) for bar in bars]) / unit
        ax.barh(range(len(bars)), widths, 0.72, left, color=colour, linewidth=0)
        left += widths
    for y in np.flatnonzero(left == 0):
        place = ax.get_yaxis_transform()
        ax.text(0.02, float(y), empty, va="center", color=style.GREY, fontsize=6, transform=place)
    ax.set_xlim(0, 1.04 * (left.max() or 1.0))
    ax.grid(axis="x")
    ax.set_axisbelow(True)


def _legend(figure: Figure, parts: Iterable[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    style.legend(figure, [Patch(color=colour, label=label, linewidth=0) for label, colour in parts])
