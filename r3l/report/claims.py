"""The paper's claims (configs/claims.yaml), each with the verdict of the stored runs and probes.

Effects of scores and of training counts have a value a training seed, on the same tasks: their intervals are about
other seeds. Those of a probe are of one fixed model: their intervals are about other tasks. One correction is over all
effects of the table that have an interval: of Benjamini and Hochberg, since a table of over a hundred effects is read
for what it finds, and 5 % of that may be wrong. The registered comparisons (registered.py) keep Holm's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from r3l.config import Strict, resolve, validate
from r3l.core.errors import check_known
from r3l.evaluation.power import ALPHA, Goal
from r3l.evaluation.statistics import FEWEST, benjamini_hochberg
from r3l.evaluation.verdicts import AHEAD, EQUIVALENT, INCONCLUSIVE, Estimate, verdict
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.report import published
from r3l.report.labels import bench_label, env_label
from r3l.report.probes import Content
from r3l.report.records import Bench, Record, pairs, scores_S_T
from r3l.report.registered import load_registered
from r3l.report.rows import rounded
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.metrics import rates, summed

NOT_TESTED = "not tested"
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


@dataclass(frozen=True)
class Finding:
    """One claim in one environment. ``count``: of ``over``, seeds or tasks; ``points``: the values of fewer seeds than
    an interval takes. ``power``: of showing the paper's effect. ``paper_source``: file and lines of the published
    numbers."""

    claim: Claim
    bench: Bench
    label: str
    over: str = "seeds"
    count: int = 0
    effect: float | None = None
    points: tuple[float, ...] = ()
    estimate: Estimate | None = None
    p_fdr: float | None = None
    mde: float | None = None
    power: float | None = None
    verdict: str = NOT_TESTED
    paper: float | None = None
    paper_metric: str | None = None
    paper_source: str = ""

    @property
    def run(self) -> str:
        """The command, for this environment."""
        return self.claim.run.replace("ENV", self.bench[1])

    @property
    def as_claimed(self) -> bool:
        """Whether the verdict is what the claim says."""
        return self.verdict == self.claim.says

    def flat(self, margin: float) -> dict[str, Any]:
        """One value a column."""
        tier, env, model = self.bench
        bounds = self.estimate.bounds() if self.estimate else (None, None)
        narrow = self.estimate.bounds(0.9) if self.estimate else (None, None)
        columns: dict[str, Any] = {"id": self.claim.id, "claim": self.claim.claim, "says": self.claim.says}
        columns |= {"tier": tier, "env": env, "model": model, "verdict": self.verdict, "effect": self.effect}
        columns |= dict(zip(("low", "high", "low_90", "high_90"), (*bounds, *narrow), strict=True))
        columns |= {"points": " ".join(f"{point:.4f}" for point in self.points), "over": self.over, "n": self.count}
        columns |= {"margin": margin if self.claim.has_margin else None}
        columns |= {"p_value": self.estimate.p_value if self.estimate else None, "p_fdr": self.p_fdr}
        columns |= {"mde": self.mde, "power": self.power}
        columns |= {"paper": self.paper, "paper_metric": self.paper_metric, "paper_source": self.paper_source}
        return {key: rounded(value) for key, value in columns.items()} | {"run": self.run, "note": self.claim.note}


def findings(records: Sequence[Record], probes: Sequence[Content], of: Claims) -> list[Finding]:
    """A row a claim and environment, from today's base checkpoints, whether there is evidence or not; and one for each
    bench of another tier with evidence."""
    tier, method = load_registered().tier, load_registered().against
    planned: list[Bench] = [(tier, env, resolve(tier, env, method, 0).model_name()) for env in of.envs]
    seen = {record.bench for record in records} | {_bench(probe) for probe in probes}
    others = sorted(bench for bench in seen if bench[0] != tier)
    everywhere = [*planned, *others]
    rows = [
        row
        for claim in of.claims
        for bench in everywhere
        if (row := _finding(claim, bench, everywhere, records, probes, of)).count or bench in planned
    ]
    return _judged(rows, of.margin)


def _bench(probe: Content) -> Bench:
    return probe["tier"], probe["env"], probe["model"]["name"]


def _seed(record: Record) -> int:
    return int(record.seed)


def _finding(
    claim: Claim,
    bench: Bench,
    among: Sequence[Bench],
    records: Sequence[Record],
    probes: Sequence[Content],
    of: Claims,
) -> Finding:
    """Before the verdict."""
    row = Finding(claim, bench, bench_label(bench, among))
    if claim.paper:
        row = replace(row, **_published(claim.paper, bench[1], of))
    if claim.probe:
        found = [one for probe in probes if _bench(probe) == bench and (one := claim.probe.estimate(probe))]
        if not found:
            return replace(row, over="tasks")
        estimate, tasks = found[0]
        return replace(row, over="tasks", count=tasks, effect=estimate.mean, estimate=estimate)
    test = claim.score or claim.training
    values = test.values_S([record for record in records if record.bench == bench]) if test else []
    if not values:
        return row
    row = replace(row, count=len(values), effect=float(np.mean(values)))
    if len(values) < FEWEST:
        few = "1 seed" if len(values) == 1 else f"{len(values)} seeds"
        return replace(row, points=tuple(values), verdict=f"too few ({few})")
    return replace(row, estimate=Estimate.of_seeds(values))


def _judged(rows: Sequence[Finding], margin: float) -> list[Finding]:
    """With one correction over all that have an interval. MDE and power are of a test at the level that it ends at."""
    p_values = {k: row.estimate.p_value for k, row in enumerate(rows) if row.estimate}
    corrected = dict(zip(p_values, benjamini_hochberg(list(p_values.values())), strict=True))
    found = sum(p < ALPHA for p in corrected.values())
    goal = Goal(alpha=ALPHA * max(found, 1) / max(len(p_values), 1))

    def one_of(k: int, row: Finding) -> Finding:
        if row.estimate is None:
            return row
        says = verdict(row.estimate, corrected[k], margin if row.claim.has_margin else None)
        power = row.estimate.power(row.paper, goal) if row.claim.says == AHEAD and row.paper is not None else None
        return replace(row, p_fdr=corrected[k], mde=row.estimate.mde(goal), power=power, verdict=says)

    return [one_of(k, row) for k, row in enumerate(rows)]


def _published(paper: Paper, env: str, of: Claims) -> dict[str, Any]:
    """Number, metric and place of the published effect in ``env``; nothing where it has none. Raises DataError for a
    row that no environment has."""
    rows = [(where, number) for where, number in published.in_file(paper.file) if number.table in paper.tables]
    named = {paper.row, *([paper.minus] if isinstance(paper.minus, str) else [])}
    for name in named:
        check_known(f"row of {paper.file} ({', '.join(paper.tables)})", name, {number.label for _, number in rows})
    benchmark = of.benchmarks.get(env, env_label(env))

    def find(label: str, metric: str | None) -> tuple[str, published.Published] | None:
        metrics = (metric,) if metric else published.SCORES
        return next(
            (
                (where, number)
                for where, number in rows
                if (number.backbone, number.benchmark, number.label) == (of.backbone, benchmark, label)
                and number.metric in metrics
            ),
            None,
        )

    first = find(paper.row, paper.metric)
    minus = paper.minus
    second = find(minus, paper.minus_metric or paper.metric) if isinstance(minus, str) else None
    if first is None or (isinstance(minus, str) and second is None):
        return {}
    less = float(second[1].value) if second else float(minus or 0)
    source = " minus ".join(where for where, _ in filter(None, (first, second)))
    return {"paper": float(first[1].value) - less, "paper_metric": first[1].metric, "paper_source": source}


def claims_table(rows: Sequence[Finding], of: Claims) -> Table:
    """A section a claim, a line an environment; those in which it is not tested share one."""
    tested = sum(row.estimate is not None for row in rows)
    columns = [
        Column("env", partial(_where, everywhere=len(of.envs))),
        Column("effect", lambda line: _effect(line[0]), right=True, no_wrap=True),
        Column("95 % interval", lambda line: _interval(line[0]), right=True, no_wrap=True),
        Column("over", lambda line: over(line[0]), right=True, no_wrap=True),
        Column("MDE", lambda line: _mde(line[0]), right=True, no_wrap=True),
        Column("power", lambda line: None if line[0].power is None else f"{line[0].power:.2f}", right=True),
        Column("verdict", lambda line: Cell(line[0].verdict, bold=line[0].as_claimed), no_wrap=True),
        Column("paper", _papers, right=True),
    ]
    notes = dict.fromkeys(row.claim.note for row in rows if row.claim.note)
    shown = table(
        "Claims of the paper",
        columns,
        _lines(rows),
        "ahead, behind: the effect is shown to be above or below 0 (two-sided; at most 5 % of the effects so called "
        f"are false on average: Benjamini-Hochberg over the {tested} with an interval); equivalent: within "
        f"{of.margin:g} on either side of 0 (two one-sided tests at 5 % each, so the 90 % interval lies inside), "
        "whatever else is shown; inconclusive: neither; too "
        f"few: fewer than {FEWEST} seeds, whose values stand in place of an effect; not tested: nothing is stored. "
        "Bold: as claimed. Intervals are not corrected.",
        "over seeds: t-interval over training seeds, on the same test tasks; over tasks: one fixed model, bootstrap.",
        "MDE: minimum detectable effect (power 80 %); power: of showing the paper's effect, with the spread measured "
        "here; both at the level that the correction ends at.",
        f"paper: {of.backbone}; its effects on WebShop and ScienceWorld are of rewards, ours of success; beside "
        "Mathematics stands GSM8K. Lines of results/stored/published, and commands with their environment: the csv.",
        *(f"{note[0].upper()}{note[1:]}." for note in notes),
        by=lambda line: f"{sentence(line[0].claim)} [{line[0].claim.run}]",
    )
    return replace(shown, by="claim")


def sentence(claim: Claim) -> str:
    """The claim, and what it claims where that is not an effect above 0."""
    return claim.claim + ("" if claim.says == AHEAD else f" (claimed: {EQUIVALENT})")


def in_short(row: Finding) -> str:
    """``behind -0.161``; ``-0.002 (0.04)`` with the MDE where inconclusive; of one or two seeds their values."""
    if row.points or row.effect is None:
        return (_effect(row) or Cell(NOT_TESTED)).text + (f" ({over(row)})" if row.points else "")
    digits = 3 if row.claim.has_margin else 1
    effect = f"{row.effect:+.{digits}f}"
    if row.verdict != INCONCLUSIVE:
        return f"{row.verdict} {effect}"
    return effect if row.mde is None else f"{effect} ({row.mde:.{digits - 1}f})"


def over(row: Finding) -> str | None:
    """``20 seeds``; None where nothing is stored."""
    return f"{row.count} {row.over}" if row.count else None


def _lines(rows: Sequence[Finding]) -> list[list[Finding]]:
    lines: list[list[Finding]] = []
    for _, group in groupby(rows, key=lambda row: row.claim.id):
        of_claim = list(group)
        untested = [row for row in of_claim if not row.count]
        lines += [[row] for row in of_claim if row.count] + ([untested] if untested else [])
    return lines


def _where(line: Sequence[Finding], everywhere: int) -> str:
    return "every environment" if len(line) == everywhere > 1 else ", ".join(row.label for row in line)


def _papers(line: Sequence[Finding]) -> str | None:
    if all(row.paper is None for row in line):
        return None
    return ", ".join("none" if row.paper is None else f"{row.paper:+.3f}" for row in line)


def _effect(row: Finding) -> Cell | None:
    if row.effect is None:
        return None
    return Cell(", ".join(f"{value:+.3f}" for value in row.points or (row.effect,)), row.effect)


def _interval(row: Finding) -> str | None:
    return "{:+.3f} to {:+.3f}".format(*row.estimate.bounds()) if row.estimate else None


def _mde(row: Finding) -> str | None:
    if row.estimate is None:
        return None
    return "no spread" if row.mde is None else f"{row.mde:.3f}"
