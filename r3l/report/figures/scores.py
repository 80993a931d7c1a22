"""Test success of a table's methods: a row an environment, a subplot a task group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3l.evaluation.statistics import interval, wilson_interval
from r3l.report.figures import style
from r3l.report.figures.data import Bench, Shown
from r3l.report.records import groups, scores_S_T

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from r3l.report.figures.style import Drawn


def scores(shown: Shown) -> Drawn:
    """Every method's mean, seeds and interval.

    Bars are 95 % t-intervals over seeds. With one seed they are Wilson intervals over that run's tasks, drawn dashed:
    they say how exactly one run was measured, not how another would end. The axis ends at 1, whatever intervals do.
    """
    columns = max(len(groups(bench.records())) for bench in shown.benches)
    heights = [len(bench.runs) + 1.2 for bench in shown.benches]
    figure, axes = style.subplots(
        *(len(heights), columns, style.PAGE if columns > 1 else 4.5, 0.14 * sum(heights) + 0.35 * len(heights) + 0.6),
        sharex=True,
        sharey="row",
        height_ratios=heights,
    )
    for row, bench in zip(axes, shown.benches, strict=True):
        names = groups(bench.records())
        for ax, group in zip(row, names, strict=False):
            _group(ax, bench, group)
        for ax in row[len(names) :]:  # an environment may have fewer groups than another
            ax.set_axis_off()
        style.method_rows(row, bench.labels())
    for ax in axes[-1]:
        # an interval of few seeds may leave [0, 1], where no success rate is: it is cut there
        ax.set(xlabel="test success", xlim=(-0.02, min(1.02, ax.get_xlim()[1])))
    baseline = any("constant_answer_baseline" in record["task_set"] for record in shown.records())
    note = style.interval_note(shown, "Wilson interval over its test episodes")
    text = f"Success of the last checkpoint on the test task set. {note}"
    return figure, shown, text + (" Dotted: best constant answer." if baseline else "")


def _group(ax: Axes, bench: Bench, group: str) -> None:
    for y, (method, seeds) in enumerate(bench.runs.items()):
        values = [record["groups"][group]["success"] for record in seeds]
        several = len(seeds) > 1
        bar = interval(scores_S_T(seeds, group)) if several else wilson_interval(seeds[0].successes(group))
        style.interval(ax, y, method, bar, values)
    baseline = bench.records()[0]["task_set"].get("constant_answer_baseline")
    if baseline:
        ax.axvline(baseline["success"][group], color=style.GREY, linestyle=":", linewidth=1)
    ax.set_title(f"{bench.label}, {group}", loc="left", fontweight="bold")
    ax.grid(axis="x")
