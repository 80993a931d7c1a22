"""Where the primary comparisons of docs/preregistration.md stand: by its stopping rule, test and verdicts alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from scipy import stats

from r3l.config import Strict, resolve, validate
from r3l.evaluation.power import Goal, StoppingRule, smallest_difference
from r3l.evaluation.statistics import holm
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.comparison.compare import compare
from r3l.report.labels import env_label, method_label
from r3l.report.records import Record
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Row, Table, table

RULE = StoppingRule()
GOAL = Goal(alpha=RULE.alpha)


class Earlier(Strict):
    """A comparison that was made from a start model no longer in use; its runs are in the tree of ``commit``."""

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
    """Read configs/registered.yaml."""
    path = CONFIGS / "registered.yaml"
    return validate(Registered, read_yaml(path), str(path))


def of_start_models(records: Sequence[Record], plan: Registered, envs: Sequence[str] | None = None) -> list[Record]:
    """Those of ``plan``'s tier, in ``envs`` (default: the plan's), that began from the start models of today's
    configuration.
    """
    benches = {(plan.tier, env, Path(resolve(plan.tier, env, plan.against, 0).model).name) for env in envs or plan.envs}
    return [record for record in records if record.bench in benches]


def registered_rows(records: Sequence[Record], plan: Registered) -> list[LongRow]:
    """A row for each environment of ``plan``, whether it has runs or not, then one for each earlier comparison.

    ``low``, ``high``: interval of the difference at the level of the test. ``p_holm``: over all rows, those without
    two common seeds counting as 1. ``seeds_due``: by the stopping rule; a verdict waits until it is 0. Rows of earlier
    comparisons have ``model`` and ``commit``, and the verdict that was given.
    """
    ran = any(record["method"] == plan.method for record in records)
    compared = compare(records, plan.method, [plan.against]) if ran else []
    tested = {row["env"]: row for row in compared}
    family = holm([*(_p_value(tested.get(env)) for env in plan.envs), *(one.p_value for one in plan.earlier)])
    rows = [_row(env, tested.get(env), p_holm) for env, p_holm in zip(plan.envs, family, strict=False)]
    return rows + [_earlier(one, p_holm) for one, p_holm in zip(plan.earlier, family[len(rows) :], strict=True)]


def _p_value(row: LongRow | None) -> float:
    return 1.0 if row is None or row["p_value"] is None else float(row["p_value"])


def _row(env: str, compared: LongRow | None, p_holm: float) -> LongRow:
    if compared is None or not compared["pairs"]:
        return {"env": env, "pairs": 0, "seeds_due": RULE.block, "verdict": "not begun"}
    keys = ("pairs", "ours_mean", "theirs_mean", "difference_mean", "spread", "p_value")
    row: LongRow = {"env": env} | {key: compared[key] for key in keys} | {"p_holm": p_holm}
    row |= _shown_by(row["difference_mean"], row["spread"], row["pairs"])
    row["seeds_due"] = RULE.seeds_due(row["spread"], row["pairs"], GOAL)
    return row | {"verdict": verdict(row)}


def _earlier(one: Earlier, p_holm: float) -> LongRow:
    difference = one.ours_mean - one.theirs_mean
    row = one.model_dump() | {"difference_mean": difference, "p_holm": p_holm, "seeds_due": 0}
    return row | _shown_by(difference, one.spread, one.pairs)


def _shown_by(difference: float, spread: float | None, pairs: int) -> LongRow:
    """The interval of the difference at the level of the test, and the smallest one that could have been shown."""
    if spread is None:
        return dict.fromkeys(("low", "high", "smallest_difference"))
    half = stats.t.ppf(1 - GOAL.alpha / 2, pairs - 1) * spread / np.sqrt(pairs)
    least = smallest_difference(spread, pairs, GOAL)
    return {"low": difference - half, "high": difference + half, "smallest_difference": least}


def verdict(row: LongRow) -> str:
    """``supported``, ``spoken against``, ``open``, or how many seeds are due before there is one."""
    if row["seeds_due"]:
        return f"{row['seeds_due']} more seeds are due"
    difference, high = row["difference_mean"], row["high"]
    if row["p_holm"] < GOAL.alpha:
        return "supported" if difference > 0 else "spoken against"
    return "spoken against" if high is not None and high < RULE.difference else "open"


def registered_table(rows: Sequence[LongRow], plan: Registered) -> Table:
    """A line an environment."""
    cells = [_cells(row) for row in rows]
    level = f"{100 * GOAL.alpha:g} %"
    return table(
        f"Registered comparisons: {method_label(plan.method)} minus {method_label(plan.against)}, tier {plan.tier}",
        [Column(name, right=name not in ("env", "verdict")) for name in cells[0]],
        cells,
        f"docs/preregistration.md: paired t-test over seeds, two-sided {level}, Holm over the {len(rows)} "
        f"comparisons; interval of {100 - 100 * GOAL.alpha:g} %; can show: the smallest difference that so many seeds "
        f"can show ({level}, power {100 * GOAL.power:g} %). No verdict before the stopping rule is met: "
        f"blocks of {RULE.block} seeds until that is at most {RULE.difference:g}, at most {RULE.most} seeds",
    )


def _cells(row: LongRow) -> Row:
    label = env_label(row["env"])
    texts = {"env": f"{label}, from {row['model']}" if "model" in row else label, "seeds": str(row["pairs"])}
    names = {"method": "ours_mean", "against": "theirs_mean"}
    texts |= {name: _number(row.get(key)) for name, key in names.items()}
    texts["difference"] = _number(row.get("difference_mean"), "+")
    known = row.get("low") is not None
    texts["interval"] = f"{row['low']:+.3f} to {row['high']:+.3f}" if known else ""
    texts |= {"p (Holm)": _number(row.get("p_holm")), "can show": _number(row.get("smallest_difference"))}
    return {name: Cell(text) for name, text in (texts | {"verdict": row["verdict"]}).items()}


def _number(value: Any, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.3f}"
