"""A paired difference between two methods: its interval, test, and minimum detectable effect (MDE).

Pairs are runs of one seed on the same tasks. P-values are Holm-corrected over the comparisons of one table, or of one
call; the probability of improvement is Mann-Whitney's, as rliable has it (Agarwal et al. 2021, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from numpy.typing import NDArray

from r3l.evaluation import statistics
from r3l.evaluation.power import ALPHA, POWER, Goal, minimum_detectable_effect, spread
from r3l.evaluation.statistics import Interval
from r3l.report.table import Cell

ASKED = f"two-sided {100 * ALPHA:.0f} %, power {100 * POWER:.0f} %"
MDE = "MDE"  # the column in print
MDE_NOTE = (
    f"{MDE}: minimum detectable effect of so many seeds (paired t-test, {ASKED}, from the standard deviation of the "
    "differences over seeds), in brackets with Holm's correction over this table; no spread: all seeds differ alike"
)


@dataclass(frozen=True)
class Difference:
    """One method minus another. ``spread``: the standard deviation of the differences over seeds, None where it says
    nothing (r3l.evaluation.power.spread), and then there is no MDE. Of one pair there is no test.
    """

    interval: Interval
    probability_of_improvement: float
    pairs: int
    p_value: float | None
    p_holm: float | None
    spread: float | None
    mde: float | None  # minimum detectable effect
    mde_holm: float | None

    @property
    def significant(self) -> bool:
        return self.p_holm is not None and self.p_holm < ALPHA

    def columns(self) -> dict[str, Any]:
        """All but the interval, by column."""
        return {key: value for key, value in asdict(self).items() if key != "interval"}


def paired(ours_S_T: NDArray[Any], theirs_S_T: NDArray[Any]) -> Difference:
    """Before Holm's correction, see :func:`corrected`; rows are the same seeds, columns the same tasks."""
    interval = statistics.paired_difference(ours_S_T, theirs_S_T)
    ours_S, theirs_S = ours_S_T.mean(axis=1), theirs_S_T.mean(axis=1)
    deviation = spread((ours_S_T - theirs_S_T).mean(axis=1))
    return Difference(
        interval,
        statistics.probability_of_improvement(ours_S, theirs_S),
        len(ours_S),
        statistics.paired_p_value((ours_S_T - theirs_S_T).mean(axis=1)),
        None,
        deviation,
        None if deviation is None else minimum_detectable_effect(deviation, len(ours_S)),
        None,
    )


def corrected(differences: Iterable[Difference | None]) -> list[Difference | None]:
    """With Holm's correction over all that were tested."""
    given = list(differences)
    p_values = {k: one.p_value for k, one in enumerate(given) if one is not None and one.p_value is not None}
    goal = Goal(comparisons=len(p_values))
    p_holm = dict(zip(p_values, statistics.holm(list(p_values.values())), strict=True))

    def one_of(k: int, one: Difference | None) -> Difference | None:
        if one is None or k not in p_holm:
            return one
        mde = None if one.spread is None else minimum_detectable_effect(one.spread, one.pairs, goal)
        return replace(one, p_holm=p_holm[k], mde_holm=mde)

    return [one_of(k, one) for k, one in enumerate(given)]


def verdict(difference: Difference | None) -> str:
    """``better``, ``worse``, ``inconclusive``, or ``incomplete`` (under two common seeds)."""
    if difference is None or difference.p_holm is None:
        pairs = difference.pairs if difference else 0
        return f"incomplete ({pairs} common seed{'' if pairs == 1 else 's'})"
    if not difference.significant:
        return "inconclusive"
    return "better" if difference.interval.mean > 0 else "worse"


def p_cell(p: float | None) -> Cell | None:
    """A p-value in print: never 0, which none is."""
    return None if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def mde(difference: Difference | None) -> str:
    """``0.058 (0.112)``: alone, and with Holm's correction over the table; empty where nothing was tested."""
    if difference is None or difference.p_value is None:
        return ""
    if difference.mde is None:
        return "no spread"
    return f"{_size(difference.mde)} ({_size(difference.mde_holm)})"


def mde_range(differences: Sequence[Difference]) -> str:
    """``0.014 to 0.135 (0.047 to 0.454)`` of several; empty for none with an MDE."""
    alone = [d.mde for d in differences if d.mde is not None]
    holm = [d.mde_holm for d in differences if d.mde_holm is not None]
    return f"{_range(alone)} ({_range(holm)})" if alone else ""


def _range(sizes: Sequence[float]) -> str:
    low, high = _size(min(sizes)), _size(max(sizes))
    return low if low == high else f"{low} to {high}"


def _size(difference: float | None) -> str:
    """Success rates differ by 1 at most."""
    return "" if difference is None else f"{difference:.3f}" if difference <= 1 else "> 1"
