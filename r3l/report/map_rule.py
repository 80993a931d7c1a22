"""The rule of the map: what a probe leads one to expect of R3L minus GRPO, and how well that held.

A straight line through the comparisons of r3l.report.probe_map, difference = intercept + slope * (guided
minus fresh), predicts the early and the final difference for a model that was only probed.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypedDict

from r3l.files.paths import STORED
from r3l.report.probe_map import Comparison
from r3l.stats.prediction import Line, gives_line, leave_one_out

DIFFERENCES = {"early": "in the first third", "final": "at the end"}
# The part whose runs docs/preregistration.md predicted before they started, and the eight comparisons that
# were known then: the predictions are those of the line through them, whatever is stored since.
UNSEEN = "map"
KNOWN_BEFORE = STORED / "map_registered.csv"


class Expected(TypedDict):
    """One predicted difference of R3L to GRPO, with the interval in which a new comparison is expected."""

    value: float
    low: float
    high: float


class Expectation(TypedDict):
    """The map's prediction of R3L minus GRPO for a probed model, from ``comparisons`` comparisons.

    ``early``, ``final``: None with too few comparisons (:func:`lines`) or without the measure. ``outside``:
    guided minus fresh is outside the ``range`` (lowest, highest) of the comparisons. ``nearest``: the two
    that are nearest in guided minus fresh, as text.
    """

    early: Expected | None
    final: Expected | None
    comparisons: int
    range: tuple[float, float] | None
    outside: bool
    nearest: list[str]


def lines(rows: Sequence[Comparison]) -> dict[str, Line]:
    """Fit the map's rule: a line for each of DIFFERENCES (early, final), by name, over guided minus fresh.

    {} with fewer than four comparisons, or if all have one guided minus fresh.
    """
    x_N = [row["guided_minus_fresh"] for row in rows]
    if not gives_line(x_N):
        return {}
    return {name: Line.through(x_N, [row[name] for row in rows]) for name in DIFFERENCES}


def expectation(guided_minus_fresh: float | None, rows: Sequence[Comparison]) -> Expectation:
    """Predict R3L's advantage for a model with this probe measure, from the comparisons in ``rows``.

    If the measure is None, or there are too few comparisons for :func:`lines`, then ``early``, ``final`` and
    ``range`` are None, ``nearest`` is [], ``outside`` False.
    """
    x_N = sorted(row["guided_minus_fresh"] for row in rows)
    rule = lines(rows)
    if guided_minus_fresh is None or not rule:
        return Expectation(
            early=None, final=None, comparisons=len(rows), range=None, outside=False, nearest=[]
        )
    near = sorted(rows, key=lambda row: abs(row["guided_minus_fresh"] - guided_minus_fresh))[:2]
    predicted = [rule[name].at(guided_minus_fresh) for name in DIFFERENCES]
    early, final = (Expected(value=one.value, low=one.low, high=one.high) for one in predicted)
    return Expectation(
        early=early,
        final=final,
        comparisons=len(rows),
        range=(x_N[0], x_N[-1]),
        outside=not x_N[0] <= guided_minus_fresh <= x_N[-1],
        nearest=[f"{name_of(row)} ({row['early']:+.2f}, {row['final']:+.2f})" for row in near],
    )


def sentence(found: Expectation, guided_minus_fresh: float | None) -> str:
    """The last line of a printed probe: the expected differences, and the comparisons behind them.

    ``found``: :func:`expectation` at ``guided_minus_fresh``. Says why if nothing can be expected.
    """
    if (
        guided_minus_fresh is None
        or found["early"] is None
        or found["final"] is None
        or found["range"] is None
    ):
        why = "guided minus fresh was not measured" if guided_minus_fresh is None else "too few comparisons"
        return f"R3L minus GRPO: no expectation ({why})."
    parts = [
        f"{one['value']:+.2f} ({one['low']:.2f} to {one['high']:.2f}) {when}"
        for one, when in zip((found["early"], found["final"]), DIFFERENCES.values(), strict=True)
    ]
    text = (
        f"R3L minus GRPO: expected {', '.join(parts)}, from {found['comparisons']} comparisons; nearest: "
        f"{', '.join(found['nearest'])}."
    )
    if found["outside"]:
        low, high = found["range"]
        text += (
            f" Guided minus fresh, {guided_minus_fresh:+.2f}, is outside what was measured ({low:+.2f} to "
            f"{high:+.2f}): the line is drawn on, not tested there."
        )
    return text


def name_of(row: Comparison) -> str:
    """A comparison's printed name: ``WebShop``, or ``WebShop, critic 0.33 wrong`` with a critic."""
    if row["feedback"] == "self":
        return str(row["label"])
    wrong = row["feedback_corruption"]
    return f"{row['label']}, critic" + (f" {wrong:.2g} wrong" if wrong else "")


def checked(rows: Sequence[Comparison], name: str) -> tuple[int, int, int]:
    """How well the other comparisons predict difference ``name`` of each one (leave-one-out).

    Returns (right signs, values inside the interval, comparisons). All are 0 if the other comparisons of one
    are too few for a line (:func:`lines`).
    """
    x_N = [row["guided_minus_fresh"] for row in rows]
    if not rows or not all(gives_line(x_N[:k] + x_N[k + 1 :]) for k in range(len(x_N))):
        return 0, 0, 0
    predicted = leave_one_out(x_N, [row[name] for row in rows])
    pairs = list(zip(predicted, (row[name] for row in rows), strict=True))
    signs = sum((one.value > 0) == (value > 0) for one, value in pairs)
    return signs, sum(one.low <= value <= one.high for one, value in pairs), len(pairs)


def predicted_before(
    rows: Sequence[Comparison], name: str, known: Sequence[Comparison]
) -> tuple[int, int, int]:
    """How well the line through ``known`` predicts difference ``name`` of the comparisons of part UNSEEN.

    ``known``: the comparisons from before these ran (KNOWN_BEFORE). Returns (right signs, values inside the
    interval, comparisons); zeros with too few to predict from.
    """
    rule = lines(known)
    unseen = [row for row in rows if row["part"] == UNSEEN]
    pairs = [(rule[name].at(row["guided_minus_fresh"]), row[name]) for row in unseen] if rule else []
    signs = sum((one.value > 0) == (value > 0) for one, value in pairs)
    return signs, sum(one.low <= value <= one.high for one, value in pairs), len(pairs)
