"""Figures of test scores: every method's, differences to a baseline (a forest plot), performance profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import DataError
from r3l.report.figures import style
from r3l.report.figures.data import Shown
from r3l.report.figures.style import look
from r3l.report.frame import by_method, common_seeds, groups, scores_S_T
from r3l.stats.intervals import MIN_SEEDS, t_interval, task_interval
from r3l.stats.profiles import performance_profile, profile_band

if TYPE_CHECKING:
    from r3l.report.figures.style import Drawn

THRESHOLDS = np.linspace(0, 1, 201)


def scores(shown: Shown) -> Drawn:
    """Figure of test success: each method's mean, its seeds and its interval.

    Bars are 95 % t-intervals over seeds. With one seed they are intervals over that run's tasks (Wilson's, if
    each was attempted once), drawn dashed: they say how exactly one run was measured, not how another would
    end. The axis ends at 1, even if an interval does not.
    """
    columns = max(len(groups(bench.rows)) for bench in shown.benches)
    heights = [len(bench.runs) + 1.2 for bench in shown.benches]
    size = (style.PAGE if columns > 1 else 4.5, 0.14 * sum(heights) + 0.35 * len(heights) + 0.6)
    shared: dict[str, Any] = {"sharex": True, "sharey": "row", "height_ratios": heights}
    figure, axes = style.subplots(len(heights), columns, *size, **shared)
    for row, bench in zip(axes, shown.benches, strict=True):
        names = groups(bench.rows)
        for ax, group in zip(row, names, strict=False):
            of_group = bench.rows[bench.rows.group == group]
            for y, (method, seeds) in enumerate(by_method(of_group, list(bench.runs)).items()):
                if not len(seeds):
                    continue  # it played no task of this group
                if len(seeds) > 1:
                    bar = t_interval(scores_S_T(seeds).mean(axis=1))
                else:
                    bar = task_interval(scores_S_T(seeds)[0])
                style.interval(ax, y, method, bar, list(seeds.success))
            for constant in of_group.constant_success.dropna().head(1):
                ax.axvline(constant, color=style.GREY, linestyle=":", linewidth=1)
            ax.set_title(f"{bench.label}, {group}", loc="left", fontweight="bold")
            ax.grid(axis="x")
        for ax in row[len(names) :]:  # an environment may have fewer groups than another
            ax.set_axis_off()
        style.method_rows(row, bench.labels())
    for ax in axes[-1]:
        # an interval of few seeds may leave [0, 1], where no success rate is: it is cut there
        ax.set(xlabel="test success", xlim=(-0.02, min(1.02, ax.get_xlim()[1])))
    baseline = shown.runs.constant_success.notna().any()
    note = style.interval_note(shown, style.one_seed_interval(shown))
    text = f"Success of the last checkpoint on the test task set. {note}"
    return figure, shown, text + (" Dotted: best constant answer." if baseline else "")


def differences(shown: Shown) -> Drawn:
    """Figure of test success minus the baseline's, paired by task and seed (``Effect.paired``).

    With one common seed the interval is over the differences of its tasks, drawn dashed. Raises DataError if
    no method has a seed in common with the baseline.
    """
    # Seeds that the baseline shares with another method.
    baseline = shown.table.baseline
    common: dict[str, set[int]] = {}
    for bench in shown.benches:
        of_baseline = bench.rows.method == baseline
        common[bench.env] = {*bench.rows[of_baseline].seed} & {*bench.rows[~of_baseline].seed}
    compared = shown.only(lambda run: run.seed in common[run.env])
    if not compared.benches:
        raise DataError(
            f"nothing to compare: {shown.table.table} needs runs of {baseline} and of another method with "
            f"the same seed; found {', '.join(shown.labels())}"
        )
    labels = {method: label for method, label in compared.labels().items() if method != baseline}
    benches = compared.benches
    width = max(4.5, min(style.PAGE, 2.2 + 1.7 * len(benches)))
    figure, axes = style.subplots(1, len(benches), width, 0.19 * len(labels) + 1.2, sharey=True)
    for ax, bench in zip(axes[0], benches, strict=True):
        for y, method in enumerate(labels):
            if method not in bench.runs:
                continue
            ours, theirs = common_seeds(bench.runs[method], bench.runs[baseline])
            if len(ours):
                differences_S_T = scores_S_T(ours) - scores_S_T(theirs)
                of_seeds_S = differences_S_T.mean(axis=1)
                bar = t_interval(of_seeds_S if len(ours) > 1 else differences_S_T[0])
                style.interval(ax, y, method, bar, list(of_seeds_S))
        ax.axvline(0, color=style.GREY, linewidth=0.8)
        ax.set_title(bench.label, loc="left", fontweight="bold")
        ax.set_xlabel("difference in test success")
        ax.grid(axis="x")
    style.method_rows(axes[0], labels)
    text = f"Test success minus that of {shown.labels()[baseline]}, paired by task and seed. "
    note = style.interval_note(compared, "t-interval over the differences of its tasks")
    return figure, compared, text + note


def profile(shown: Shown) -> Drawn:
    """Figure of performance profiles (r3l.stats.profiles) of the methods with runs in all environments.

    Raises DataError if there is no such method.
    """
    compared = shown.only(lambda run: all(run.method in bench.runs for bench in shown.benches))
    labels = compared.labels()
    if not labels:
        envs = ", ".join(bench.env for bench in shown.benches)
        raise DataError(
            f"no method was run in all of {envs}; a profile compares over the same environments: run one"
        )
    crowded = len(labels) > style.CROWD
    figure, axes = style.subplots(1, 1, style.PAGE if crowded else 4.5, 3.3)
    (ax,) = axes[0]
    best = compared.runs.success.max()
    for place, method in enumerate(labels):
        scores_E_S = [list(bench.runs[method].success) for bench in compared.benches]
        seen = look(method)
        values = performance_profile(scores_E_S, THRESHOLDS)
        # Markers tell lines apart, at other thresholds for each method.
        marks: dict[str, Any] = {"marker": seen.marker, "markersize": 3, "markevery": (3 + 2 * place, 26)}
        ax.step(THRESHOLDS, values, where="post", linewidth=1.2, **seen.line(), **marks)
        if min(map(len, scores_E_S)) >= MIN_SEEDS and not crowded:
            low, high = profile_band(scores_E_S, THRESHOLDS, np.random.default_rng(0))
            ax.fill_between(THRESHOLDS, low, high, step="post", color=seen.colour, alpha=0.15, linewidth=0)
    ax.set(xlabel="test success threshold", ylabel="share of runs above it")
    ax.set(xlim=(0, min(1.0, best + 0.05)), ylim=(0, 1.02))
    ax.grid(True)
    style.method_legend(figure, labels)
    left_out = [label for method, label in shown.labels().items() if method not in labels]
    envs = ", ".join(bench.label for bench in shown.benches)
    band = (
        f"Band: 95 % stratified bootstrap over seeds, from {MIN_SEEDS} on; under 10 seeds it is too narrow."
    )
    text = f"Share of runs (seeds; {envs} weigh equally) whose test success exceeds the threshold. "
    text += f"No bands with over {style.CROWD} methods." if crowded else band
    return figure, compared, text + (f" Not in every environment: {'; '.join(left_out)}." if left_out else "")
