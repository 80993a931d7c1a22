"""Performance profiles: which share of a method's runs scores above a threshold, over all environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.report.figures import style
from r3l.report.figures.data import Shown
from r3l.report.figures.palette import look
from r3l.report.figures.series import BAND_FROM

if TYPE_CHECKING:
    from r3l.report.figures.style import Drawn

THRESHOLDS = np.linspace(0, 1, 201)


def profile(shown: Shown) -> Drawn:
    """The profile of every method that was run in all environments of the figure (r3l.evaluation.statistics).

    Raises DataError where there is none.
    """
    compared = shown.only(lambda record: all(record["method"] in bench.runs for bench in shown.benches))
    labels = compared.labels()
    if not labels:
        envs = ", ".join(bench.env for bench in shown.benches)
        raise DataError(f"no method was run in all of {envs}; a profile compares over the same environments: run one")
    crowded = len(labels) > style.CROWD
    figure, axes = style.subplots(1, 1, style.PAGE if crowded else 4.5, 3.3)
    (ax,) = axes[0]
    best = max(record["groups"]["all"]["success"] for record in compared.records())
    for place, method in enumerate(labels):
        scores_E_S = [[r["groups"]["all"]["success"] for r in bench.runs[method]] for bench in compared.benches]
        seen = look(method)
        values = statistics.performance_profile(scores_E_S, THRESHOLDS)
        ax.step(THRESHOLDS, values, where="post", linewidth=1.2, **seen.line(), **_marks(method, place))
        if min(map(len, scores_E_S)) >= BAND_FROM and not crowded:
            low, high = statistics.profile_band(scores_E_S, THRESHOLDS, np.random.default_rng(0))
            ax.fill_between(THRESHOLDS, low, high, step="post", color=seen.colour, alpha=0.15, linewidth=0)
    ax.set(
        xlabel="test success threshold",
        ylabel="share of runs above it",
        xlim=(0, min(1.0, best + 0.05)),
        ylim=(0, 1.02),
    )
    ax.grid(True)
    style.method_legend(figure, labels)
    left_out = [label for method, label in shown.labels().items() if method not in labels]
    envs = ", ".join(bench.label for bench in shown.benches)
    band = f"Band: 95 % stratified bootstrap over seeds, from {BAND_FROM} on; under 10 seeds it is too narrow."
    text = f"Share of runs (seeds; {envs} weigh equally) whose test success exceeds the threshold. "
    text += f"No bands with over {style.CROWD} methods." if crowded else band
    return figure, compared, text + (f" Not in every environment: {'; '.join(left_out)}." if left_out else "")


def _marks(method: str, place: int) -> dict[str, Any]:
    """Markers that tell lines apart, at other thresholds for each method."""
    return {"marker": look(method).marker, "markersize": 3, "markevery": (3 + 2 * place, 26)}
