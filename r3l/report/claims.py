"""The paper's claims (configs/claims.yaml) and what tests each: test scores, training counts, or a probe.

Effects on scores and training counts have one value per training seed, on the same tasks, so their intervals
are about other seeds. Effects in a probe are of one fixed model, so their intervals are about other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd
from pydantic import Field, model_validator

from r3l.config import Strict, validate
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.frame import budgets, common_seeds, scores_S_T, updates, whole
from r3l.report.probes import Content
from r3l.runs.metrics import rates, summed
from r3l.stats.comparison import Effect

RATE_NAMES = {*rates({})}


def short_rate(rate: float) -> str:
    """A learning rate in print, as in 3e-4."""
    return f"{rate:.0e}".replace("e-0", "e-")


class ScoreTest(Strict):
    """Test success of ``method`` minus that of ``against`` on the tasks of ``group``.

    ``beyond``: a group of tasks whose difference is subtracted, as in "more on hard tasks than on easy ones".
    """

    method: str
    against: str
    group: str = "all"
    beyond: str | None = None

    def learning_rates(self, runs: pd.DataFrame) -> tuple[float, float] | None:
        """The rates that the runs of ``method`` and of ``against`` were trained with; None if either has no
        one rate, as a method that trains nothing."""
        rates = []
        for name in (self.method, self.against):
            of_method = runs[(runs.method == name) & (runs.steps > 0)]
            known = {manifest["run"].get("train", {}).get("lr") for manifest in of_method.manifest}
            rates.append(known - {None})  # a manifest may be older than the key
        return (min(rates[0]), min(rates[1])) if len(rates[0]) == len(rates[1]) == 1 else None

    def at_equal_rates(self, runs: pd.DataFrame) -> ScoreTest | None:
        """The same test with ``method`` at the rate of ``against``; None if their rates are equal already."""
        rates = self.learning_rates(runs)
        if rates is None or rates[0] == rates[1]:
            return None
        return self.model_copy(update={"method": f"{self.method}@train.lr={rates[1]:g}"})

    def values_S(self, runs: pd.DataFrame) -> list[float]:
        """One value per seed that both methods have, of the runs of one bench; empty if it lacks a group."""
        values = []
        for group in [self.group, *([self.beyond] if self.beyond else [])]:
            of_group = runs[runs.group == group]
            ours, theirs = (of_group[of_group.method == name] for name in (self.method, self.against))
            ours, theirs = common_seeds(ours, theirs)
            if not len(ours):
                return []
            values.append((scores_S_T(ours) - scores_S_T(theirs)).mean(axis=1))
        return [float(value) for value in values[0] - (values[1] if self.beyond else 0.0)]


class TrainingTest(Strict):
    """A rate of a run's training, minus another rate or a number.

    ``change``: k compares the mean of the last k updates with that of the first k; 0: the rate over all
    updates.
    """

    method: str
    rate: str
    minus: str | float = 0.0
    change: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _rates_exist(self) -> TrainingTest:
        for name in (self.rate, self.minus):
            if isinstance(name, str) and name not in RATE_NAMES:
                raise ValueError(f"rate {name!r} is unknown; choose one of {', '.join(sorted(RATE_NAMES))}")
        return self

    def values_S(self, runs: pd.DataFrame) -> list[float]:
        """One value per seed whose training counted all that the rates need."""

        def effect(counts: Mapping[str, Any]) -> float | None:
            known = rates(counts)
            rate, minus = known[self.rate], known[self.minus] if isinstance(self.minus, str) else self.minus
            return None if rate is None or minus is None else rate - minus

        values = []
        seeds = whole(runs[runs.method == self.method])
        for path, budget in zip(seeds.path, budgets(seeds), strict=True):
            if self.change:
                metrics = updates(path)
                first, last = effect(summed(metrics[: self.change])), effect(summed(metrics[-self.change :]))
                value = None if last is None or first is None else last - first
            else:
                value = effect(budget)
            if value is not None:
                values.append(value)
        return values


class ProbeTest(Strict):
    """A measure of a probe, minus another one of the same tasks."""

    measure: str
    minus: str | None = None

    def effect(self, probe: Content) -> tuple[Effect, int] | None:
        """The effect and its number of tasks; None if a measure or its interval is missing.

        Standard errors are added as if the two measures were independent. They share tasks, so this
        overstates the error rather than understating it.
        """
        parts = [probe["measures"].get(name) for name in (self.measure, self.minus) if name]
        if any(part is None or part["low"] is None for part in parts):
            return None
        of = [Effect.of_bounds(part["value"], part["low"], part["high"]) for part in parts]
        mean = of[0].mean - sum(one.mean for one in of[1:])
        return Effect(mean, math.hypot(*(one.error for one in of))), parts[0]["tasks"]


class PublishedEffect(Strict):
    """A published number, minus another row's or a number.

    Rows have their names in results/stored/published.
    """

    file: str
    tables: list[str]
    row: str
    metric: str | None = Field(None, description="default: the score, success or reward")
    minus: str | float | None = None
    minus_metric: str | None = Field(None, description="default: metric")


class Claim(Strict):
    """One claim and its test; ``says``: the verdict that confirms it."""

    id: str
    claim: str
    run: str = Field(description="the command that makes its runs again; ENV stands for the environment")
    score: ScoreTest | None = None
    training: TrainingTest | None = None
    probe: ProbeTest | None = None
    says: Literal["ahead", "equivalent"] = "ahead"
    paper: PublishedEffect | None = None
    note: str = ""

    @model_validator(mode="after")
    def _one_test(self) -> Claim:
        if sum(test is not None for test in (self.score, self.training, self.probe)) > 1:
            raise ValueError(f"claim {self.id!r} has several of score, training and probe; keep one")
        return self

    @property
    def has_margin(self) -> bool:
        """True if the margin applies: it is one of shares, which successes per 1,000 tokens are not."""
        return not (self.probe and self.probe.measure.endswith("_per_1000"))


class Claims(Strict):
    """configs/claims.yaml."""

    margin: float = Field(gt=0, lt=1)
    envs: list[str]
    backbone: str
    benchmarks: dict[str, str] = {}
    claims: list[Claim]
    sources: dict[str, str]


def load_claims() -> Claims:
    """Read configs/claims.yaml."""
    path = CONFIGS / "claims.yaml"
    return validate(Claims, read_yaml(path), str(path))
