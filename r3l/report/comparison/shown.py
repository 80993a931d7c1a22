"""Whether a difference is shown, and the smallest that would have been: for every comparison of every table.

Pairs are runs of one seed. Holm's correction is over the comparisons of one table, or of one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from r3l.evaluation import statistics
from r3l.evaluation.power import ALPHA, POWER, Goal, smallest_difference, spread
from r3l.report.labels import env_label
from r3l.report.rows import LongRow

COLUMNS = ("pairs", "p_value", "p_holm", "spread", "smallest_difference", "smallest_difference_holm")
WOULD_SHOW = "would show"  # the column in print
ASKED = f"two-sided {100 * ALPHA:.0f} %, power {100 * POWER:.0f} %"
NOTE = (
    f"{WOULD_SHOW}: the smallest difference that so many seeds can show (paired t-test, {ASKED}, from the standard "
    "deviation of the differences over seeds), in brackets with Holm's correction over this table; no spread: all "
    "seeds differ alike"
)


def tested(differences_S: ArrayLike) -> LongRow:
    """The columns COLUMNS of one comparison, from a difference a seed; :func:`correct` fills in what Holm corrects.

    ``spread``: their standard deviation, None where it says nothing (r3l.evaluation.power.spread).
    """
    pairs, deviation = statistics.t_interval(differences_S).seeds, spread(differences_S)
    row: LongRow = dict.fromkeys(COLUMNS)
    row |= {"pairs": pairs, "p_value": statistics.paired_p_value(differences_S), "spread": deviation}
    if deviation is not None:
        row["smallest_difference"] = smallest_difference(deviation, pairs)
    return row


def correct(rows: Iterable[LongRow]) -> None:
    """Fill in what Holm's correction over all that was tested in ``rows`` makes of each."""
    family = [row for row in rows if row["p_value"] is not None]
    goal = Goal(comparisons=len(family))
    for row, adjusted in zip(family, statistics.holm([row["p_value"] for row in family]), strict=True):
        row["p_holm"] = adjusted
        if row["spread"] is not None:
            row["smallest_difference_holm"] = smallest_difference(row["spread"], row["pairs"], goal)


def is_shown(row: Mapping[str, Any]) -> bool:
    """Whether a row's difference is significant after Holm's correction."""
    return row["p_holm"] is not None and row["p_holm"] < ALPHA


def verdict(row: Mapping[str, Any]) -> str:
    """``better``, ``worse``, ``no difference shown``, or ``incomplete`` (under two common seeds)."""
    if row["p_holm"] is None:
        return f"incomplete ({row['pairs'] or 0} common seed{'' if row['pairs'] == 1 else 's'})"
    if not is_shown(row):
        return "no difference shown"
    return "better" if row["difference_mean"] > 0 else "worse"


def would_show(row: Mapping[str, Any]) -> str:
    """``0.058 (0.112)``: alone, and with Holm's correction over the table; empty where nothing was tested."""
    if row["smallest_difference"] is None:
        return "" if row["p_value"] is None else "no spread"
    return f"{_size(row['smallest_difference'])} ({_size(row['smallest_difference_holm'])})"


def note_in_print(rows: Sequence[Mapping[str, Any]]) -> str:
    """For tables that print no differences: the range of what would show, by environment; empty where nothing was
    compared."""
    sizes: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get("smallest_difference") is not None:
            both = (row["smallest_difference"], row["smallest_difference_holm"])
            sizes.setdefault(env_label(row["env"]), []).append(both)
    if not sizes:
        return ""
    baseline = next((row["label"] for row in rows if row["method"] == row["baseline"]), rows[0]["baseline"])
    ranges = ", ".join(
        f"{env} {_range([alone for alone, _ in pairs])} ({_range([corrected for _, corrected in pairs])})"
        for env, pairs in sizes.items()
    )
    return (
        f"The smallest difference from {baseline} that so many seeds can show (paired by seed, {ASKED}; in brackets "
        f"with Holm's correction over this table and its task groups): {ranges}. Of two other rows: r3l compare."
    )


def _range(sizes: Sequence[float]) -> str:
    low, high = _size(min(sizes)), _size(max(sizes))
    return low if low == high else f"{low} to {high}"


def _size(difference: float) -> str:
    """Success rates differ by 1 at most."""
    return f"{difference:.3f}" if difference <= 1 else "> 1"
