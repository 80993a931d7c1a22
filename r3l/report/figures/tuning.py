"""Learning curves of every rate that a tuning tried: a subplot an environment and method."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.report.figures import style
from r3l.report.figures.series import WINDOW
from r3l.report.labels import env_label, method_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#56B4E9", "#0072B2", "#D55E00")  # of the low, the usual and the high rate (Okabe and Ito)
ACROSS = 4  # subplots side by side


def draw_tunings(tunings: Sequence[dict[str, Any]], out: Path) -> list[Path]:
    """Draw them as ``out`` (.png or .pdf; without suffix both)."""
    import matplotlib
    from matplotlib.lines import Line2D

    with matplotlib.rc_context(style.RC):
        figure, axes = style.grid(len(tunings), min(len(tunings), ACROSS), cell_height=1.7, margin=1.0)
        for ax, tuning in zip(axes.flat, tunings, strict=False):
            _subplot(ax, tuning)
        for ax in axes[:, 0]:
            ax.set_ylabel("success in training")
        names = ("lower rate", "usual rate", "higher rate")
        style.legend(figure, [Line2D([], [], color=c, label=n) for c, n in zip(COLOURS, names, strict=True)])
        text = (
            f"Success of base rollouts in training (running mean of {WINDOW} updates): thin lines seeds, thick ones "
            "their mean. Circles: success of the last checkpoint on the validation task set, by which a rate is "
            "chosen; filled: the chosen one, whose value stands above."
        )
        figure.supxlabel(textwrap.fill(text, round(figure.get_figwidth() * 22)), x=0.01, ha="left", fontsize=6)
        return style.save(figure, out)


def _subplot(ax: Axes, tuning: dict[str, Any]) -> None:
    for colour, rate in zip(COLOURS, tuning["rates"], strict=True):
        curves_S_U = [_smooth(run["curve"]) for run in rate["runs"]]
        shortest = min(map(len, curves_S_U))
        updates = np.arange(1, shortest + 1)
        for curve_U in curves_S_U:
            ax.plot(updates, curve_U[:shortest], color=colour, linewidth=0.5, alpha=0.6)
        ax.plot(updates, np.nanmean([curve[:shortest] for curve in curves_S_U], axis=0), color=colour, linewidth=1.3)
        filled = colour if rate["lr"] == tuning["chosen"] else "white"
        ax.plot(shortest * 1.06, rate["success"], "o", color=colour, markerfacecolor=filled, markersize=4.5)
    ax.set_title(f"{env_label(tuning['env'])}, {method_label(tuning['method'])}: {tuning['chosen']:g}", loc="left")
    ax.set_xlabel("updates")
    ax.set_ylim(bottom=0)
    ax.grid(True)


def _smooth(curve: Sequence[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A running mean, as learning curves have it."""
    values = np.array([np.nan if value is None else value for value in curve])
    return np.array([np.nanmean(values[max(0, k - WINDOW + 1) : k + 1]) for k in range(len(values))])
