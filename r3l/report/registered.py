"""The primary comparisons of docs/preregistration.md, judged by its own stopping rule, test and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic import Field

from r3l.config import Strict, default_model, validate
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.compare import compare_methods
from r3l.report.frame import BENCH
from r3l.report.labels import env_label, method_label, p_cell
from r3l.report.table import Column, Table, table
from r3l.stats.comparison import POWER, Comparison, Effect, claim_verdict, compare_effects
from r3l.stats.power import StoppingRule

RULE = StoppingRule()


class Earlier(Strict):
    """A comparison from a base checkpoint no longer in use; its runs are in the tree of ``commit``."""

    env: str
    model: str
    pairs: int = Field(ge=2, description="training seeds that both methods have")
    ours_mean: float
    theirs_mean: float
    spread: float = Field(gt=0, description="standard deviation of the difference over seeds")
    p_value: float = Field(ge=0, le=1, description="before Holm's correction")
    verdict: str = Field(description="as it was given")
    commit: str

    @property
    def effect(self) -> Effect:
        """The paired difference over seeds, with the p-value that was computed from the runs."""
        difference = self.ours_mean - self.theirs_mean
        error = self.spread / self.pairs**0.5
        return Effect(difference, error, self.pairs - 1, self.spread, recorded_p_value=self.p_value)


class Registered(Strict):
    """The preregistered comparison of ``method`` with ``against`` in each of ``envs``.

    Read from configs/registered.yaml. These and the ``earlier`` registered comparisons are corrected together
    by Holm's method. ``sources``: by key, where the values come from.
    """

    tier: str
    method: str
    against: str
    envs: list[str]
    earlier: list[Earlier] = []
    sources: dict[str, str]


def load_registered() -> Registered:
    """Read configs/registered.yaml.

    Raises ConfigError if it is not valid.
    """
    path = CONFIGS / "registered.yaml"
    return validate(Registered, read_yaml(path), str(path))


def of_base_checkpoints(
    runs: pd.DataFrame, plan: Registered, envs: Sequence[str] | None = None
) -> pd.DataFrame:
    """The rows of ``runs`` in ``plan``'s tier, in ``envs``, from the base checkpoints that configs name now.

    ``envs``: by default the plan's. Raises ConfigError for an unknown environment.
    """
    models = {env: default_model(plan.tier, env) for env in envs or plan.envs}
    benches = {(plan.tier, env, model) for env, model in models.items()}
    return runs[[bench in benches for bench in zip(*(runs[key] for key in BENCH), strict=True)]]


@dataclass(frozen=True)
class RegisteredRow:
    """One comparison of the family. ``pairs``: number of common seeds; ``mde``: minimum detectable effect.

    ``ours``, ``theirs``: mean scores; they and ``difference`` are None without common seeds. ``low``,
    ``high``: interval of the difference at the level of the test (97 %); they and ``mde`` are also None
    without a spread over seeds (one seed). ``p_holm``: 1 without a test. ``seeds_due``: how many more seeds
    the stopping rule asks for; until it is 0, ``verdict`` says that they are due. ``earlier``: the comparison
    from a base checkpoint no longer in use, which keeps the verdict that was given.
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
        """The comparison as one flat record for JSON output; an earlier one also has its model and commit."""
        columns: dict[str, Any] = {
            "env": self.env,
            "pairs": self.pairs,
            "seeds_due": self.seeds_due,
            "verdict": str(self.verdict),
            "p_holm": self.p_holm,
            "low": self.low,
            "high": self.high,
            "ours_mean": self.ours,
            "theirs_mean": self.theirs,
            "difference_mean": self.difference,
            "mde": self.mde,
        }
        if self.earlier:
            columns |= {"model": self.earlier.model, "commit": self.earlier.commit}
        return columns


def registered_rows(runs: pd.DataFrame, plan: Registered) -> list[RegisteredRow]:
    """A row for each environment of ``plan``, with or without runs, then one for each earlier comparison.

    All are one family for Holm's correction; an environment without common seeds is ``not begun`` and counts
    with p = 1.
    """
    ran = (runs.method == plan.method).any()
    found = {row.env: row for row in (compare_methods(runs, plan.method, [plan.against]) if ran else [])}

    # The family is what was registered: a comparison without a test counts with p = 1.
    effects = [found[env].effect if env in found else None for env in plan.envs]
    family = compare_effects(
        [*effects, *(one.effect for one in plan.earlier)],
        correction="holm",
        alpha=RULE.alpha,
        tests=len(plan.envs) + len(plan.earlier),
    )

    rows = []
    for env, compared in zip(plan.envs, family, strict=False):
        if compared is None:
            rows.append(RegisteredRow(env, 0, RULE.block, "not begun", 1.0))
            continue
        ours, theirs = (score.mean if score else None for score in (found[env].ours, found[env].theirs))
        due = RULE.seeds_due(compared.effect.deviation, compared.effect.seeds)
        verdict = f"{due} more seeds are due" if due else claim_verdict(compared, RULE.difference)
        rows.append(_row(env, compared, due, verdict, ours, theirs))
    for one, compared in zip(plan.earlier, family[len(plan.envs) :], strict=True):
        assert compared is not None  # every earlier comparison has an effect
        rows.append(_row(one.env, compared, 0, one.verdict, one.ours_mean, one.theirs_mean, one))
    return rows


def _row(
    env: str,
    compared: Comparison,
    due: int,
    verdict: str,
    ours: float | None,
    theirs: float | None,
    earlier: Earlier | None = None,
) -> RegisteredRow:
    effect = compared.effect
    # Without a known spread over seeds there is neither an interval nor an MDE.
    low, high = (None, None) if effect.deviation is None else effect.bounds(1 - RULE.alpha)
    p_holm = 1.0 if compared.p_adjusted is None else compared.p_adjusted
    numbers = (p_holm, ours, theirs, effect.mean, low, high, compared.mde)
    return RegisteredRow(env, effect.seeds, due, verdict, *numbers, earlier=earlier)


def registered_table(rows: Sequence[RegisteredRow], plan: Registered) -> Table:
    """The table of ``rows``, one line each: means, difference, interval, corrected p-value, MDE, verdict."""

    def env(row: RegisteredRow) -> str:
        return env_label(row.env) + (f", from {row.earlier.model}" if row.earlier else "")

    def interval(row: RegisteredRow) -> str | None:
        return None if row.low is None else f"{row.low:+.3f} to {row.high:+.3f}"

    # The test has the level of the stopping rule, stricter than 5 %.
    level = f"{100 * RULE.alpha:g} %"
    columns = [
        Column("env", env),
        Column("seeds", lambda row: row.pairs, "d"),
        Column("method", lambda row: row.ours, ".3f"),
        Column("against", lambda row: row.theirs, ".3f"),
        Column("difference", form="+.3f"),
        Column("interval", interval, right=True),
        Column("p (Holm)", lambda row: p_cell(row.p_holm), right=True),
        Column("MDE", lambda row: row.mde, ".3f"),
        Column("verdict"),
    ]
    return table(
        f"Registered comparisons: {method_label(plan.method)} minus {method_label(plan.against)}, tier "
        f"{plan.tier}",
        columns,
        rows,
        f"docs/preregistration.md: paired t-test over seeds, two-sided {level}, Holm over the {len(rows)} "
        f"comparisons; interval of {100 - 100 * RULE.alpha:g} %; MDE: minimum detectable effect ({level}, "
        f"power {100 * POWER:g} %). supported: ahead; rejected: behind, or the interval excludes an "
        f"advantage of {RULE.difference:g}; else inconclusive. No verdict before the stopping rule is met: "
        f"blocks of {RULE.block} seeds until the MDE is at most {RULE.difference:g}, at most {RULE.most} "
        "seeds",
    )
