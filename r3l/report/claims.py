"""The paper's claims (configs/claims.yaml) and what tests each: scores, what training counted, a probe.

Effects of scores and of training counts have a value a training seed, on the same tasks: their intervals are about
other seeds. Those of a probe are of one fixed model: their intervals are about other tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from r3l.config import Strict, validate
from r3l.evaluation.verdicts import Estimate
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report.probes import Content
from r3l.report.records import Record, pairs, scores_S_T
from r3l.runs.metrics import rates, summed

RATE_NAMES = {*rates({})}


class Score(Strict):
    """Test success of ``method`` minus that of ``against`` on the tasks of ``group``; ``beyond``: minus the same on
    those tasks."""

    method: str
    against: str
    group: str = "all"
    beyond: str | None = None

    def values_S(self, runs: Sequence[Record]) -> list[float]:
        """One a seed that both have; none where the test set lacks a group."""
        ours, theirs = (sorted((r for r in runs if r.method == m), key=_seed) for m in (self.method, self.against))
        ours, theirs = pairs(ours, theirs)
        groups = [self.group, *([self.beyond] if self.beyond else [])]
        if not ours or any(group not in ours[0].groups for group in groups):
            return []
        of_group = [(scores_S_T(ours, g) - scores_S_T(theirs, g)).mean(axis=1) for g in groups]
        return [float(value) for value in of_group[0] - (of_group[1] if self.beyond else 0.0)]


class Training(Strict):
    """A rate of a run's training, minus another or a number; ``change``: that of so many last updates minus that of as
    many first ones."""

    method: str
    rate: str
    minus: str | float = 0.0
    change: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _rates_exist(self) -> Training:
        for name in (self.rate, self.minus):
            if isinstance(name, str) and name not in RATE_NAMES:
                raise ValueError(f"rate {name!r} is none; choose one of {', '.join(sorted(RATE_NAMES))}")
        return self

    def values_S(self, runs: Sequence[Record]) -> list[float]:
        """One a seed in which all of it was counted."""
        seeds = sorted((run for run in runs if run.method == self.method), key=_seed)
        return [value for run in seeds if (value := self._value(run)) is not None]

    def _value(self, run: Record) -> float | None:
        if not self.change:
            return self._effect(run.result["budget"])
        last, first = (self._effect(summed(part)) for part in (run.metrics[-self.change :], run.metrics[: self.change]))
        return None if last is None or first is None else last - first

    def _effect(self, counts: Any) -> float | None:
        of = rates(counts)
        rate, minus = of[self.rate], of[self.minus] if isinstance(self.minus, str) else self.minus
        return None if rate is None or minus is None else rate - minus


class Measured(Strict):
    """A measure of a probe, minus another of the same tasks."""

    measure: str
    minus: str | None = None

    def estimate(self, probe: Content) -> tuple[Estimate, int] | None:
        """With the number of tasks. Errors are added as if independent, which is too much rather than too little."""
        parts = [probe["measures"].get(name) for name in (self.measure, self.minus) if name]
        if any(part is None or part["low"] is None for part in parts):
            return None
        of = [Estimate.of_bounds(part["value"], part["low"], part["high"]) for part in parts]
        mean = of[0].mean - sum(one.mean for one in of[1:])
        return Estimate(mean, float(np.hypot.reduce([one.error for one in of]))), parts[0]["tasks"]


class Paper(Strict):
    """A published number, minus another row's or a number. Rows are named as published tables of ours name them."""

    file: str
    tables: list[str]
    row: str
    metric: str | None = Field(None, description="default: the score, success or reward")
    minus: str | float | None = None
    minus_metric: str | None = Field(None, description="default: metric")


class Claim(Strict):
    """One claim and what tests it; ``says``: what holds if it is right."""

    id: str
    claim: str
    run: str = Field(description="the command that makes its runs again; ENV stands for the environment")
    score: Score | None = None
    training: Training | None = None
    probe: Measured | None = None
    says: Literal["ahead", "equivalent"] = "ahead"
    paper: Paper | None = None
    note: str = ""

    @model_validator(mode="after")
    def _one_test(self) -> Claim:
        if sum(test is not None for test in (self.score, self.training, self.probe)) > 1:
            raise ValueError(f"claim {self.id!r} has several of score, training and probe; keep one")
        return self

    @property
    def has_margin(self) -> bool:
        """The margin is one of shares; successes per 1,000 tokens are none."""
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


def _seed(record: Record) -> int:
    return int(record.seed)
