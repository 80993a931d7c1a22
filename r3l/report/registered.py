"""Where the primary comparisons of docs/preregistration.md stand: by its stopping rule, test and verdicts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field
from scipy import stats

from r3l.config import Strict, resolve, validate
from r3l.evaluation.power import Goal, StoppingRule, minimum_detectable_effect
from r3l.evaluation.statistics import holm
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.compare import Comparison, compare
from r3l.report.labels import env_label, method_label
from r3l.report.paired import p_cell
from r3l.report.records import Record
from r3l.report.table import Column, Table, table

RULE = StoppingRule()
GOAL = Goal(alpha=RULE.alpha)


class Earlier(Strict):
    """A comparison that was made from a base checkpoint no longer in use; its runs are in the tree of ``commit``."""

    env: str
    model: str
    pairs: int = Field(ge=2, description="training seeds that both methods have")
    ours_mean: float
    theirs_mean: float
    spread: float = Field(gt=0, description="standard deviation of the difference over seeds")
    p_value: float = Field(ge=0, le=1, description="before Holm's correction")
    verdict: str = Field(description="as it was given")
    commit: str


class Registered(Strict):
    """configs/registered.yaml: ``method`` minus ``against`` in each of ``envs``.

    With the ``earlier`` comparisons, which stay counted, they are one family for Holm.
    """

    tier: str
    method: str
    against: str
    envs: list[str]
    earlier: list[Earlier] = []
    sources: dict[str, str]


def load_registered() -> Registered:
    path = CONFIGS / "registered.yaml"
    return validate(Registered, read_yaml(path), str(path))


def of_base_checkpoints(records: Sequence[Record], plan: Registered, envs: Sequence[str] | None = None) -> list[Record]:
    """Those of ``plan``'s tier, in ``envs`` (default: the plan's), that began from the base checkpoints of today's
    configuration.
    """
    benches = {(plan.tier, env, resolve(plan.tier, env, plan.against, 0).model_name()) for env in envs or plan.envs}
    return [record for record in records if record.bench in benches]


@dataclass(frozen=True)
class Standing:
    """One comparison of the family. ``low``, ``high``: interval of the difference at the level of the test.

    ``seeds_due``: by the stopping rule; a verdict waits until it is 0. ``earlier``: what was found from a base
    checkpoint no longer in use, with the verdict that was given.
    """

    env: str
    pairs: int
    seeds_due: int
    verdict: str
    p_holm: float
    ours: float | None = None
    theirs: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    mde: float | None = None
    earlier: Earlier | None = None

    def flat(self) -> dict[str, Any]:
        columns = {key: getattr(self, key) for key in ("env", "pairs", "seeds_due", "verdict", "p_holm", "low", "high")}
        columns |= {f"{key}_mean": getattr(self, key) for key in ("ours", "theirs", "difference")}
        columns |= {"mde": self.mde}
        return columns | ({"model": self.earlier.model, "commit": self.earlier.commit} if self.earlier else {})


def registered_rows(records: Sequence[Record], plan: Registered) -> list[Standing]:
    """A row for each environment of ``plan``, whether it has runs or not, then one for each earlier comparison.

    ``p_holm`` is over all rows, those without two common seeds counting as 1.
    """
    ran = any(record.method == plan.method for record in records)
    tested = {row.env: row for row in (compare(records, plan.method, [plan.against]) if ran else [])}
    family = holm([*(_p_value(tested.get(env)) for env in plan.envs), *(one.p_value for one in plan.earlier)])
    rows = [_standing(env, tested.get(env), p_holm) for env, p_holm in zip(plan.envs, family, strict=False)]
    return rows + [_earlier(one, p_holm) for one, p_holm in zip(plan.earlier, family[len(rows) :], strict=True)]


def _p_value(row: Comparison | None) -> float:
    p_value = row.difference.p_value if row and row.difference else None
    return 1.0 if p_value is None else p_value


def _standing(env: str, row: Comparison | None, p_holm: float) -> Standing:
    if row is None or row.difference is None or row.ours is None or row.theirs is None:
        return Standing(env, 0, RULE.block, "not begun", p_holm)
    difference, spread = row.difference.interval.mean, row.difference.spread
    low, high, mde = _interval(difference, spread, row.pairs)
    due = RULE.seeds_due(spread, row.pairs, GOAL)
    judged = f"{due} more seeds are due" if due else verdict(difference, high, p_holm)
    return Standing(env, row.pairs, due, judged, p_holm, row.ours.mean, row.theirs.mean, difference, low, high, mde)


def _earlier(one: Earlier, p_holm: float) -> Standing:
    difference = one.ours_mean - one.theirs_mean
    low, high, mde = _interval(difference, one.spread, one.pairs)
    numbers = (one.ours_mean, one.theirs_mean, difference, low, high, mde)
    return Standing(one.env, one.pairs, 0, one.verdict, p_holm, *numbers, earlier=one)


def _interval(difference: float, spread: float | None, pairs: int) -> tuple[float | None, float | None, float | None]:
    """The interval of the difference at the level of the test, and the minimum detectable effect."""
    if spread is None:
        return None, None, None
    half = float(stats.t.ppf(1 - GOAL.alpha / 2, pairs - 1) * spread / np.sqrt(pairs))
    return difference - half, difference + half, minimum_detectable_effect(spread, pairs, GOAL)


def verdict(difference: float, high: float | None, p_holm: float) -> str:
    """``supported``; ``rejected``: behind, or the margin of the stopping rule is excluded; else ``inconclusive``."""
    if p_holm < GOAL.alpha:
        return "supported" if difference > 0 else "rejected"
    return "rejected" if high is not None and high < RULE.difference else "inconclusive"


def registered_table(rows: Sequence[Standing], plan: Registered) -> Table:
    level = f"{100 * GOAL.alpha:g} %"
    columns = [
        Column("env", lambda row: env_label(row.env) + (f", from {row.earlier.model}" if row.earlier else "")),
        Column("seeds", lambda row: row.pairs, "d"),
        Column("method", lambda row: row.ours, ".3f"),
        Column("against", lambda row: row.theirs, ".3f"),
        Column("difference", form="+.3f"),
        Column("interval", lambda row: None if row.low is None else f"{row.low:+.3f} to {row.high:+.3f}", right=True),
        Column("p (Holm)", lambda row: p_cell(row.p_holm), right=True),
        Column("MDE", lambda row: row.mde, ".3f"),
        Column("verdict"),
    ]
    return table(
        f"Registered comparisons: {method_label(plan.method)} minus {method_label(plan.against)}, tier {plan.tier}",
        columns,
        rows,
        f"docs/preregistration.md: paired t-test over seeds, two-sided {level}, Holm over the {len(rows)} "
        f"comparisons; interval of {100 - 100 * GOAL.alpha:g} %; MDE: minimum detectable effect ({level}, power "
        f"{100 * GOAL.power:g} %). supported: ahead; rejected: behind, or the interval excludes an advantage of "
        f"{RULE.difference:g}; else inconclusive. No verdict before the stopping rule is met: blocks of {RULE.block} "
        f"seeds until the MDE is at most {RULE.difference:g}, at most {RULE.most} seeds",
    )
