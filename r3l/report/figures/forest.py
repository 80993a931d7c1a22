"""Forest plot: each method of a table minus its baseline, paired, a column an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3l.core.errors import DataError
from r3l.evaluation.statistics import interval, t_interval
from r3l.report.figures import style
from r3l.report.figures.data import Bench, Shown
from r3l.report.records import scores_S_T

if TYPE_CHECKING:
    from r3l.report.figures.style import Drawn


def differences(shown: Shown) -> Drawn:
    """Test success minus the baseline's, paired by task and seed (r3l.evaluation.statistics.paired_difference).

    With one common seed the interval is over the differences of its tasks, drawn dashed. Raises DataError where no
    method has a seed in common with the baseline.
    """
    baseline = shown.table.baseline
    common = {bench.env: _common(bench, baseline) for bench in shown.benches}
    compared = shown.only(lambda record: record["seed"] in common[record["env"]])
    if not compared.benches:
        raise DataError(
            f"nothing to compare: {shown.table.table} needs runs of {baseline} and of another method with the same "
            f"seed; found {', '.join(shown.labels())}"
        )
    labels = {method: label for method, label in compared.labels().items() if method != baseline}
    benches = compared.benches
    width = max(4.5, min(style.PAGE, 2.2 + 1.7 * len(benches)))
    figure, axes = style.subplots(1, len(benches), width, 0.19 * len(labels) + 1.2, sharey=True)
    for ax, bench in zip(axes[0], benches, strict=True):
        theirs = {record["seed"]: record for record in bench.runs[baseline]}
        for y, method in enumerate(labels):
            if seeds := bench.runs.get(method):
                differences_S_T = scores_S_T(seeds) - scores_S_T([theirs[record["seed"]] for record in seeds])
                bar = interval(differences_S_T) if len(seeds) > 1 else t_interval(differences_S_T[0])
                style.interval(ax, y, method, bar, list(differences_S_T.mean(axis=1)))
        ax.axvline(0, color=style.GREY, linewidth=0.8)
        ax.set_title(bench.label, loc="left", fontweight="bold")
        ax.set_xlabel("difference in test success")
        ax.grid(axis="x")
    style.method_rows(axes[0], labels)
    text = f"Test success minus that of {shown.labels()[baseline]}, paired by task and seed. "
    return figure, compared, text + style.interval_note(compared, "t-interval over the differences of its tasks")


def _common(bench: Bench, baseline: str) -> set[int]:
    """The seeds that the baseline shares with another method."""
    theirs = {record["seed"] for record in bench.runs.get(baseline, [])}
    return theirs & {record["seed"] for record in bench.records() if record["method"] != baseline}
