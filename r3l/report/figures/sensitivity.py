"""Test success against a setting: the lines of a table of variants (alpha, N, retries, sync interval)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from r3l.config import variant
from r3l.core.errors import DataError, check_known
from r3l.report.figures import style
from r3l.report.figures.data import Bench, Shown
from r3l.report.figures.style import look
from r3l.report.frame import scores_S_T
from r3l.stats.intervals import MIN_SEEDS, t_interval, task_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from r3l.report.figures.style import Drawn

Setting = Callable[[dict[str, Any]], float]  # of a run, as its manifest has it
Points = dict[float, pd.DataFrame]  # the value of the setting: its seeds


def _rollouts(run: dict[str, Any]) -> float:
    """The paper's N, rollouts per task: base rollouts, and for Reflect-GRPO also the retries it may make."""
    settings = run["method_settings"]
    return float(settings["group_size"] + settings.get("reflected_rollouts", 0))


SETTINGS: dict[str, tuple[str, Setting]] = {  # table: (axis label, the value in a run)
    "alpha": ("amplification factor alpha", lambda run: float(run["method_settings"]["alpha"])),
    "group_size": ("group size N (rollouts)", _rollouts),
    "retries": ("retries per base", lambda run: float(run["method_settings"]["retries"])),
    "sync_interval": ("sync interval S (updates)", lambda run: float(run["train"]["sync_interval"])),
}


def sensitivity(shown: Shown) -> Drawn:
    """Figure of success over the values of a setting: a line per method, a subplot per environment.

    The setting is the one that the variants of ``shown.table`` change (SETTINGS, else ConfigError). Raises
    DataError if no method has runs with two values, or if a run's manifest lacks the setting or has no number
    for it.
    """
    check_known("table", shown.table.table, SETTINGS)
    label, setting = SETTINGS[shown.table.table]
    lines = {bench.env: _lines(bench, setting) for bench in shown.benches}
    drawn = shown.only(lambda run: len(lines[run.env][variant(run.method)[0]]) > 1)
    if not drawn.benches:
        raise DataError(
            f"nothing to compare: {shown.table.table} needs two values of a method, found "
            f"{', '.join(shown.labels())}; train more of {', '.join(shown.table.methods)}"
        )
    names = {variant(m)[0]: text.partition(" (")[0] for m, text in drawn.labels().items()}
    across = len(drawn.benches)
    width = style.COLUMN if across == 1 else max(style.PAGE, 1.75 * across)
    figure, axes = style.subplots(1, across, width, 2.6)
    for ax, bench in zip(axes[0], drawn.benches, strict=True):
        compared = {name: points for name, points in lines[bench.env].items() if len(points) > 1}
        values = sorted({x for points in compared.values() for x in points})
        apart = 0.012 * (values[-1] - values[0])  # side by side, not one over the other
        for place, (name, points) in enumerate(compared.items()):
            _line(ax, name, points, apart * (place - (len(compared) - 1) / 2))
        ax.set_title(bench.label, loc="left", fontweight="bold")
        ax.set(xlabel=label, xticks=values, xticklabels=[f"{x:g}" for x in values])
        ax.grid(True)
    axes[0, 0].set_ylabel("test success")
    style.method_legend(figure, names)
    text = (
        "Success of the last checkpoint on the test task set. Lines: means over seeds; small dots: seeds; "
        f"bars: 95 % t-interval over seeds, from {MIN_SEEDS} on."
    )
    if any(len(seeds) == 1 for bench in drawn.benches for seeds in bench.runs.values()):
        text += f" Dashed: one seed, 95 % {style.one_seed_interval(drawn)}, "
        text += "which says nothing about other seeds."
    return figure, drawn, text


def _lines(bench: Bench, setting: Setting) -> dict[str, Points]:
    """The runs of each method without its variant's name, by the value of the setting."""
    lines: dict[str, Points] = {}
    for method, seeds in bench.runs.items():
        values = []
        for run in seeds.itertuples():
            where = run.path.with_name("manifest.json")
            try:
                values.append(setting(run.manifest["run"]))
            except KeyError as error:
                raise DataError(
                    f"{where} has no key {error}, which the figure is about; leave the run out"
                ) from error
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{where}: the figure needs a number, but {error}; leave the run out"
                ) from error
        points = lines.setdefault(variant(method)[0], {})
        for value in dict.fromkeys(values):
            chosen = seeds[[other == value for other in values]]
            points[value] = pd.concat([points[value], chosen]) if value in points else chosen
    return lines


def _line(ax: Axes, method: str, points: Points, shift: float) -> None:
    seen = look(method)
    xs = np.array(sorted(points))
    scores = {x: list(seeds.success) for x, seeds in points.items()}
    for x, seeds in points.items():
        ax.plot([x + shift] * len(seeds), scores[x], "o", color=seen.colour, markersize=2, alpha=0.5)
        if len(seeds) == 1 or len(seeds) >= MIN_SEEDS:
            if len(seeds) > 1:
                interval = t_interval(scores[x])
            else:
                interval = task_interval(scores_S_T(seeds)[0])
            bar = np.array([interval.low, interval.high], dtype=float)
            dash = style.dash(len(seeds))
            ax.plot([x + shift] * 2, bar, color=seen.colour, linewidth=0.9, linestyle=dash)
    means = [np.mean(scores[x]) for x in xs]
    ax.plot(xs + shift, means, linewidth=1.2, marker=seen.marker, markersize=4, **seen.line())
