"""Verdicts of the stored runs and probes on each claim: an effect with its interval.

The claims of the paper, the same from replaced base checkpoints, the registered ones and the exploratory ones
are families of their own. Within each, Benjamini and Hochberg's correction covers all effects that have an
interval: a table of over a hundred effects is read for what it finds, and 5 % of that may be wrong. The
registered comparisons (registered.py) keep Holm's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from r3l.config import default_model, resolve
from r3l.core.errors import ConfigError, check_known
from r3l.report import published
from r3l.report.claim_learning import BenchRuns
from r3l.report.claim_rows import ClaimVerdict
from r3l.report.claims import REGISTERED, Claim, Claims, Family, PublishedEffect
from r3l.report.frame import BENCH, Bench, by_bench, with_further
from r3l.report.labels import bench_label, env_label
from r3l.report.probes import Content, name_of
from r3l.report.registered import load_registered
from r3l.stats.comparison import Comparison, Effect, compare_effects

log = logging.getLogger(__name__)

COLUMNS = [*BENCH, "group", "method", "seed", "path", "steps", "rate", "budget", "tasks", "task_success"]
COLUMNS += ["success"]
# Settings in which probes of one model in one environment can differ; then they are part of its name.
PROBE_CONDITIONS = (
    "reflection_schema",
    "task_set",
    "prompts",
    "temperature",
    "max_tokens",
    "max_turns",
    "seed",
    "commit",
)


def claim_verdicts(
    runs: pd.DataFrame, probes: Sequence[Content], claims_file: Claims, curves: pd.DataFrame | None = None
) -> list[ClaimVerdict]:
    """A row for each claim and environment (for each probe, if there are several); families are judged apart.

    The environments ``claims_file.envs`` (registered tier, base checkpoints that configs name now) have rows
    with or without runs; other environments, tiers and models only with runs or probes, and in the registered
    tier only rows of exploratory claims, and from the replaced base checkpoints (``earlier`` in
    configs/registered.yaml) the paper's claims as a family of their own. A claim with registered seeds has
    rows only in the environments of these seeds. ``curves``: runs of the registered entries, scored during
    training. Claims with registered seeds prefer ``curves`` to ``runs``; claims of the paper take from
    ``curves`` what ``runs`` lack; exploratory claims read only ``runs``. Raises ConfigError for a published
    row that the tables lack.
    """
    # Only the columns that tests read: tests choose rows hundreds of times.
    runs = runs[COLUMNS]

    def of_benches(rows: pd.DataFrame) -> dict[Bench, BenchRuns]:
        return {bench: BenchRuns(here) for bench, here in by_bench(rows).items()}

    registered = of_paper = exploratory = of_benches(runs)
    if curves is not None:
        further = curves[COLUMNS]
        registered = of_benches(with_further(further, runs))
        of_paper = of_benches(with_further(runs, further))
    nothing = BenchRuns(runs.iloc[:0])
    plan = load_registered()
    models = {env: default_model(plan.tier, env) for env in claims_file.envs}
    planned: list[Bench] = [(plan.tier, env, model) for env, model in models.items()]
    replaced: list[Bench] = [(plan.tier, one.env, one.model) for one in plan.earlier]
    probed = probes_by_bench(probes, plan.against)
    seen = sorted({*exploratory, *probed} - {*planned})
    everywhere = [*planned, *seen]

    rows = []
    for claim in claims_file.claims:
        if claim.seeds:
            evidence = registered
            shown = [
                (plan.tier, env, claim.models.get(env, models[env]))
                for env in claims_file.envs
                if env in claim.seeds
            ]
        elif claim.family is Family.EXPLORATORY:
            evidence = exploratory
            shown = everywhere
        else:
            evidence = of_paper
            shown = [*planned, *(bench for bench in seen if bench in replaced or bench[0] != plan.tier)]
        for bench in shown:
            judged_claim = claim
            if claim.family is Family.PAPER and bench in replaced:
                judged_claim = claim.model_copy(update={"family": Family.REPLACED})
            measured = _measured(
                judged_claim, bench, evidence.get(bench, nothing), probed.get(bench, {}), claims_file
            )
            label = bench_label(bench, planned if bench in planned else [*planned, *shown])
            rows += [
                replace(row, label=", ".join(filter(None, [label, row.probe])))
                for row in measured
                if row.count or bench in planned or claim.seeds
            ]

    judged: dict[int, Comparison | None] = {}
    for family in Family:
        of_family = [k for k, row in enumerate(rows) if row.claim.family is family]
        comparisons = compare_effects(
            [rows[k].effect if not rows[k].points and not rows[k].seeds_due else None for k in of_family],
            correction="benjamini-hochberg",
            margin=[rows[k].margin for k in of_family],
            # All tests of a registered family count from the beginning; tests that are due have p = 1.
            tests=len(of_family) if family in REGISTERED else None,
        )
        judged |= dict(zip(of_family, comparisons, strict=True))
    return [replace(row, comparison=judged[k]) for k, row in enumerate(rows)]


def probes_by_bench(probes: Sequence[Content], baseline: str) -> dict[Bench, dict[str, Content]]:
    """Probes by (tier, environment, model) of the runs that start from the probed model, then by name.

    The name is what differs between probes of one model, such as the reflection schema; empty for one probe;
    probes of equal conditions are numbered. A copy in a second folder counts once. A probe of an unknown
    environment or tier is left out with a warning. ``baseline``: a method of these runs, whose settings name
    the SFT recipe.
    """
    found: dict[Bench, list[Content]] = {}
    for probe in probes:
        # Runs name their model without the recipe of its SFT.
        try:
            recipe = resolve(probe["tier"], probe["env"], baseline, 0).env_settings.sft
        except ConfigError as error:
            log.warning("a probe is left out: %s in %s: %s", name_of(probe), probe["env"], error)
            continue
        bench = (probe["tier"], probe["env"], probe["model"]["name"].removesuffix(f"-{recipe}"))
        same_bench = found.setdefault(bench, [])
        if probe not in same_bench:  # a copy in a second folder
            same_bench.append(probe)

    named: dict[Bench, dict[str, Content]] = {}
    for bench, same_bench in found.items():
        # Probes of earlier versions do not name their schema, which was strict.
        conditions = [
            {key: str(probe.get(key, "")) for key in PROBE_CONDITIONS}
            | {
                "task_set": probe["task_set"]["name"],
                "reflection_schema": probe.get("reflection_schema", "strict"),
            }
            for probe in same_bench
        ]
        differing = [key for key in PROBE_CONDITIONS if len({each[key] for each in conditions}) > 1]
        names = [
            ", ".join(f"{key.replace('_', ' ')} {each[key]}" for key in differing) for each in conditions
        ]
        if len(names) > 1 and len({*names}) < len(names):
            # Some were made under the same conditions.
            ordinals = [f"{k} of {len(names)}" for k in range(1, len(names) + 1)]
            names = [", ".join(filter(None, parts)) for parts in zip(names, ordinals, strict=True)]
        named[bench] = dict(zip(names, same_bench, strict=True))
    return named


def _measured(
    claim: Claim, bench: Bench, runs: BenchRuns, probes: Mapping[str, Content], claims_file: Claims
) -> list[ClaimVerdict]:
    """The rows of a claim before they are judged, from the runs and probes of one bench."""
    row = ClaimVerdict(claim, bench, "", margin=claims_file.margin if claim.has_margin else None)
    if claim.paper:
        row = replace(row, **_published(claim.paper, bench[1], claims_file))
    if claim.probe:
        rows = []
        for name, probe in probes.items():
            if found := claim.probe.effect(probe):
                effect, tasks = found
                rows.append(replace(row, probe=name, over="tasks", count=tasks, effect=effect))
        return rows or [replace(row, over="tasks")]
    values = claim.of_seeds.values_S(runs) if claim.of_seeds else []
    if not values:
        return [row]
    if claim.score and (equal_values := claim.score.at_equal_rates(runs)) is not None:
        # A comparison at unequal rates holds only where one at equal rates says the same.
        row = replace(
            row,
            learning_rates=claim.score.learning_rates(runs),
            at_equal_rates=Effect.of_seeds(equal_values) if equal_values else None,
        )
    return [replace(row, count=len(values), effect=Effect.of_seeds(values))]


def _published(paper: PublishedEffect, env: str, claims_file: Claims) -> dict[str, Any]:
    """The published effect in ``env``: its number, metric and place; {} if it has none there.

    Raises ConfigError for a row that the published tables have in no environment.
    """
    rows = [row for row in published.in_file(paper.file) if row[1].table in paper.tables]
    known = {number.label for _, number in rows}
    for name in (paper.row, paper.minus):
        if isinstance(name, str):
            check_known(f"row of {paper.file} ({', '.join(paper.tables)})", name, known)
    # The number of a row in this environment, by the first metric that the tables have.
    benchmark = claims_file.benchmarks.get(env, env_label(env))

    def find(label: str, metric: str | None) -> tuple[str, published.Published] | None:
        metrics = (metric,) if metric else published.SCORES
        wanted = [(claims_file.backbone, benchmark, label, name) for name in metrics]
        for where, number in rows:
            if (number.backbone, number.benchmark, number.label, number.metric) in wanted:
                return where, number
        return None

    # The row's number, less the number that it is compared with, less another such effect.
    first = find(paper.row, paper.metric)
    if first is None:
        return {}
    where, number = first
    effect = float(number.value)
    if isinstance(paper.minus, str):
        second = find(paper.minus, paper.minus_metric or paper.metric)
        if second is None:
            return {}
        where += f" minus {second[0]}"
        effect -= float(second[1].value)
    elif paper.minus is not None:
        effect -= paper.minus
    if paper.beyond:
        beyond = _published(paper.beyond, env, claims_file)
        if not beyond:
            return {}
        where += f", beyond {beyond['paper_source']}"
        effect -= beyond["paper"]
    return {"paper": effect, "paper_metric": number.metric, "paper_source": where}
