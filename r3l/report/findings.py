"""What the stored runs and probes say of each claim of the paper: an effect with its interval, and a verdict.

One correction is over all effects that have an interval: of Benjamini and Hochberg, since a table of over a hundred
effects is read for what it finds, and 5 % of that may be wrong. The registered comparisons (registered.py) keep Holm's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from r3l.config import resolve
from r3l.core.errors import check_known
from r3l.evaluation.power import ALPHA, Goal
from r3l.evaluation.statistics import FEWEST, benjamini_hochberg
from r3l.evaluation.verdicts import AHEAD, Estimate, verdict
from r3l.report import published
from r3l.report.claims import Claim, Claims, Paper
from r3l.report.labels import bench_label, env_label
from r3l.report.probes import Content
from r3l.report.records import Bench, Record
from r3l.report.registered import load_registered
from r3l.report.rows import rounded

NOT_TESTED = "not tested"


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
    probed = [(_bench(probe), probe) for probe in probes]
    seen = {record.bench for record in records} | {bench for bench, _ in probed}
    others = sorted(bench for bench in seen if bench[0] != tier)
    everywhere = [*planned, *others]
    rows = [
        row
        for claim in of.claims
        for bench in everywhere
        if (row := _finding(claim, bench, planned if bench in planned else everywhere, records, probed, of)).count
        or bench in planned
    ]
    return _judged(rows, of.margin)


def _bench(probe: Content) -> Bench:
    """That of the runs which begin from the probed model: SFT's recipe is no part of its name there."""
    recipe = resolve(probe["tier"], probe["env"], load_registered().against, 0).env_settings.sft
    return probe["tier"], probe["env"], probe["model"]["name"].removesuffix(f"-{recipe}")


def _finding(
    claim: Claim,
    bench: Bench,
    among: Sequence[Bench],
    records: Sequence[Record],
    probed: Sequence[tuple[Bench, Content]],
    of: Claims,
) -> Finding:
    """Before the verdict."""
    row = Finding(claim, bench, bench_label(bench, among))
    if claim.paper:
        row = replace(row, **_published(claim.paper, bench[1], of))
    if claim.probe:
        found = [one for at, probe in probed if at == bench and (one := claim.probe.estimate(probe))]
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
