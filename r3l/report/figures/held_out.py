"""Figure of how R3L learns, compared with GRPO and R3L without reflection, all at GRPO's learning rate.

One row per environment: test success after the updates of ``evaluation.curve``, by updates and by generated
tokens, and paired differences in training success.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from r3l.core.errors import DataError
from r3l.report.claim_learning import (
    RATE_OF,
    THOUSAND,
    LearningCurve,
    Unit,
    base_checkpoint_success,
    learning_curves,
)
from r3l.report.figures import style
from r3l.report.figures.data import Bench, Shown
from r3l.report.figures.style import look
from r3l.report.frame import all_tasks, by_bench, common_seeds
from r3l.report.labels import method_label, place_label
from r3l.report.updates import WINDOW, at_rate, learning_rate, running_mean
from r3l.stats.intervals import MIN_SEEDS, t_interval
from r3l.workflow.plan import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from r3l.report.figures.style import Drawn

METHOD = "r3l"
AGAINST = ("grpo", "r3l_no_reflection")
TITLES = ("test success", "test success", "R3L minus the other, training")
ASIDE = 0.7  # updates
AXES = ("updates", "generated tokens (thousands)", "updates")


def draw(runs: pd.DataFrame, out: Path) -> list[Path]:
    """Draw how R3L, GRPO and R3L without reflection learn, into the folder ``out`` or as the file ``out``.

    Test success by updates and by generated tokens, and paired differences in training success, all at GRPO's
    learning rate. Returns the files written. Raises DataError if no run of R3L was scored on test tasks
    before its last update, ConfigError if ``out`` names another file type than PDF or PNG, RunDirectoryError
    if it cannot be written.
    """
    import matplotlib.style

    with matplotlib.style.context(style.SHEET):
        figure, shown, text = held_out_curves(runs)
        style.caption(figure, shown, text)
        return style.save(figure, out, "held_out")


def held_out_curves(runs: pd.DataFrame) -> Drawn:
    """The figure of how R3L, GRPO and R3L without reflection learn, with its runs and its caption.

    One row of subplots per environment and model, all methods at GRPO's learning rate. Raises DataError if
    no run of r3l was scored during its training (``evaluation.curve``).
    """
    shown: list[Bench] = []
    starts: list[float | None] = []
    for place, here in by_bench(all_tasks(runs)).items():
        rate = learning_rate(here, RATE_OF)
        at_equal = {} if rate is None else {name: at_rate(here, name, rate) for name in (*AGAINST, METHOD)}
        if any(one.scored_on_the_way for one in learning_curves(at_equal.get(METHOD, here.iloc[:0]))):
            # At this rate a variant that names it is the method itself.
            rows = [seeds.assign(method=name, label=method_label(name)) for name, seeds in at_equal.items()]
            shown.append(Bench(place[1], place_label(*place), pd.concat(rows), [*at_equal]))
            starts.append(base_checkpoint_success(here))
    if not shown:
        raise DataError(
            "no run of r3l was scored on the way; train some with --set evaluation.curve=[10,20,30,60]"
        )

    figure, axes = style.subplots(len(shown), len(AXES), style.PAGE, 1.75 * len(shown) + 0.9)
    counts = []
    for row, bench, start in zip(axes, shown, starts, strict=True):
        scored = {
            name: [one for one in learning_curves(seeds, start) if one.scored_on_the_way]
            for name, seeds in bench.runs.items()
        }
        for name, of_method in scored.items():
            _held_out(row[0], name, of_method, "updates")
            _held_out(row[1], name, of_method, "tokens")
            if name in AGAINST:
                _difference(row[2], name, bench.runs[METHOD], bench.runs[name])
        row[0].set_title(bench.label, loc="left", fontweight="bold")
        for ax, title in zip(row, TITLES, strict=True):
            ax.set_ylabel(title)
            ax.grid(True)
        numbers = ", ".join(f"{method_label(name)} {len(curves)}" for name, curves in scored.items())
        counts.append(f"{bench.label}: {numbers}")
    for ax, label in zip(axes[-1], AXES, strict=True):
        ax.set_xlabel(label)

    drawn = Shown(shown, tables()["table1"])
    style.method_legend(figure, drawn.labels())
    text = (
        "All at GRPO's learning rate. Left, middle: success on the test tasks, first of the base checkpoint, "
        "then at the updates that were scored; bars: 95 % t-intervals over seeds, thin lines without: fewer "
        f"than {MIN_SEEDS}; seeds: {'; '.join(counts)}. Right: training success of R3L minus that of the "
        f"other method, paired by seed, running means over {WINDOW} updates, with 95 % bands."
    )
    return figure, drawn, text


def _held_out(ax: Axes, method: str, curves: Sequence[LearningCurve], unit: Unit) -> None:
    """Mean test success over seeds, at the updates that all of them were scored at."""
    if not curves:
        return
    scored = sorted(set.intersection(*({*one.held_out} for one in curves)))
    y_S_U = np.array([[one.held_out[update] for update in scored] for one in curves])
    x_U = np.mean([one.spent[unit][scored] for one in curves], axis=0)
    if unit == "updates":
        x_U = x_U + ASIDE * [METHOD, *AGAINST].index(method)  # bars of three methods side by side
    else:
        x_U = x_U / THOUSAND
    several = len(curves) >= MIN_SEEDS
    seen: dict[str, Any] = look(method).line() | {"marker": look(method).marker, "markersize": 3.5}
    ax.plot(x_U, y_S_U.mean(axis=0), **seen, linewidth=1.2 if several else 0.6, alpha=1 if several else 0.5)
    if several:
        for x, y_S, update in zip(x_U, y_S_U.T, scored, strict=True):
            low = t_interval(y_S).low
            high = t_interval(y_S).high
            if update:  # the base checkpoint is one for all seeds
                ax.plot([x, x], np.array([low, high], dtype=float), color=look(method).colour, linewidth=0.9)


def _difference(ax: Axes, method: str, ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Training success of ``ours`` minus ``theirs``, paired by seed, as running means with a band."""
    both = common_seeds(ours, theirs)
    pairs = list(zip(*map(learning_curves, both), strict=True))
    if not pairs:
        return
    length = min(len(one.training_U) for pair in pairs for one in pair)
    differences = [ours.training_U[:length] - theirs.training_U[:length] for ours, theirs in pairs]
    y_S_U = np.array([running_mean(difference_U, WINDOW) for difference_U in differences])
    # At the first updates a seed may have had no base rollouts yet.
    known_U = ~np.isnan(y_S_U).any(axis=0)
    if not known_U.any():
        return
    x_U = np.arange(1, length + 1)[known_U]
    y_S_U = y_S_U[:, known_U]
    ax.axhline(0, color=style.GREY, linewidth=0.6)
    ax.plot(x_U, y_S_U.mean(axis=0), **look(method).line(), linewidth=1.2)
    if len(pairs) >= MIN_SEEDS:
        bounds = [t_interval(y_S) for y_S in y_S_U.T]
        low, high = ([getattr(one, end) for one in bounds] for end in ("low", "high"))
        ax.fill_between(x_U, low, high, color=look(method).colour, alpha=0.15, linewidth=0)
