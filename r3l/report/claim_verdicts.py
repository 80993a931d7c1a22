"""Verdicts of the stored runs and probes on each claim: an effect with its interval.

The claims of the paper, the same from replaced base checkpoints, the registered ones and the exploratory ones
are families of their own. Within each, Benjamini and Hochberg's correction covers all effects that have an
interval: a table of over a hundred effects is read for what it finds, and 5 % of that may be wrong. The
registered comparisons (registered.py) keep Holm's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd

from r3l.config import default_model, names, resolve
from r3l.core.errors import ConfigError, check_known
from r3l.report import published
from r3l.report.claim_learning import RATE_OF, BenchRuns
from r3l.report.claims import REGISTERED, Claim, Claims, Family, PublishedEffect, short_rate
from r3l.report.frame import BENCH, Bench, by_bench, with_further
from r3l.report.labels import base_and_recipe, bench_label, env_label, usual_model
from r3l.report.probes import Content, name_of
from r3l.report.registered import load_registered
from r3l.report.table import rounded
from r3l.stats.comparison import Comparison, Effect, Verdict, compare_effects
from r3l.stats.intervals import MIN_SEEDS

log = logging.getLogger(__name__)

NOT_TESTED = "not tested"
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


@dataclass(frozen=True)
class ClaimVerdict:
    """The test of one claim in one environment, or by one probe if a model was probed several times in it.

    ``label``: printed name of the environment (with model or tier, if several are shown), then ``probe``.
    ``probe``: what distinguishes this probe from the others, such as its reflection schema; empty for a
    single one.
    ``effect`` is over ``count`` seeds or tasks (``over``); None without stored runs. ``comparison``: the
    effect judged with all others of its family; None below MIN_SEEDS (3) seeds, or while registered seeds are
    missing. ``paper``: the published effect, in ``paper_metric``, from the file and lines ``paper_source``.
    ``learning_rates``: the rates of both methods if they differ; ``at_equal_rates``: the effect with the
    first method at the second one's rate, None if that has not run. ``margin``: largest difference that
    counts as equivalent; None: equivalence is not tested.
    """

    claim: Claim
    bench: Bench
    label: str
    probe: str = ""
    over: str = "seeds"
    count: int = 0
    effect: Effect | None = None
    comparison: Comparison | None = None
    paper: float | None = None
    paper_metric: str | None = None
    paper_source: str = ""
    learning_rates: tuple[float, float] | None = None
    at_equal_rates: Effect | None = None
    margin: float | None = None

    @property
    def points(self) -> tuple[float, ...]:
        """One value per seed if there are fewer than MIN_SEEDS, too few for an interval; else empty."""
        return self.effect.values_S if self.effect and self.count < MIN_SEEDS else ()

    @property
    def verdict(self) -> str:
        """The verdict as printed.

        It is ``too few (2 seeds)``, ``not tested``, ``not tested: 5 of 10 seeds`` (registered seeds are
        missing), ``inconclusive`` if unequal learning rates may explain the difference, or else the verdict of
        :func:`r3l.stats.comparison.compare_effects`: ``ahead``, ``behind``, ``equivalent`` or
        ``inconclusive``.
        """
        if self.seeds_due:
            return f"{NOT_TESTED}: {self.count} of {self.seeds_planned} seeds"
        if self.comparison:
            return Verdict.INCONCLUSIVE if self.rates_decide else self.comparison.verdict
        return f"too few ({self.count} seed{'' if self.count == 1 else 's'})" if self.count else NOT_TESTED

    @property
    def seeds_planned(self) -> int:
        """Number of training seeds registered for this claim in this environment; 0 if none were."""
        return self.claim.seeds.get(self.bench[1], 0)

    @property
    def seeds_due(self) -> int:
        """Number of registered seeds that have not run; there is no verdict before it is 0."""
        return max(0, self.seeds_planned - self.count)

    @property
    def rates_decide(self) -> bool:
        """True if unequal learning rates may explain the difference.

        That is so unless at least MIN_SEEDS (3) seeds at equal rates give the same verdict. False for equal
        rates and without a comparison.
        """
        if self.learning_rates is None or self.comparison is None:
            return False
        if self.at_equal_rates is None or self.at_equal_rates.seeds < MIN_SEEDS:
            return True
        (alone,) = compare_effects([self.at_equal_rates], margin=self.margin)
        return alone is None or alone.verdict != self.comparison.verdict

    @property
    def rates_note(self) -> str:
        """Note on unequal learning rates: both rates, and the effect of runs at equal rates if any exist.

        Empty if the rates are equal.
        """
        if self.learning_rates is None:
            return ""
        ours, theirs = map(short_rate, self.learning_rates)
        equal = self.at_equal_rates
        found = (
            f"{equal.mean:+.3f} at equal rates ({equal.seeds} seeds)" if equal else "not run at equal rates"
        )
        return f"learning rates differ ({ours}, {theirs}): {found}"

    @property
    def run(self) -> str:
        """The commands that make the runs, or the probe, of this row: its environment, tier and model.

        They name GRPO's learning rate there only if it is not the method's own.
        """
        options = start_options(self.bench)
        commands = self.claim.run.replace("ENV", self.bench[1]).split(" && ")
        return " && ".join(" ".join([with_rate(command, self.bench), *options]) for command in commands)

    @property
    def as_claimed(self) -> bool:
        """True if the verdict is the one that confirms the claim (``Claim.says``)."""
        return self.verdict == self.claim.says

    @property
    def power(self) -> float | None:
        """Probability that the test shows a difference if the true difference is the paper's effect.

        The test's level is the one that the correction leaves; its spread over seeds is the measured one.
        None without a test or a published effect, and for claims of equivalence.
        """
        if self.comparison is None or self.claim.says != "ahead" or self.paper is None:
            return None
        return self.comparison.effect.power(self.paper, self.comparison.level)

    def flat(self) -> dict[str, Any]:
        """One record for the CSV file, a value per column, numbers rounded to 4 digits, unknown ones None."""
        # Fewer seeds than MIN_SEEDS have neither an interval nor a p-value: their values are in ``points``.
        tier, env, model = self.bench
        compared = self.comparison
        tested = self.effect if self.count >= MIN_SEEDS else None
        low, high = tested.bounds() if tested else (None, None)
        low_90, high_90 = tested.bounds(0.9) if tested else (None, None)
        columns: dict[str, Any] = {
            "id": self.claim.id,
            "claim": self.claim.claim,
            "family": str(self.claim.family),
            "says": self.claim.says,
            "predicted": self.claim.predicted.get(env, ""),
            "tier": tier,
            "env": env,
            "model": model,
            "probe": self.probe,
            "verdict": str(self.verdict),
            "effect": self.effect.mean if self.effect else None,
            "low": low,
            "high": high,
            "low_90": low_90,
            "high_90": high_90,
            "points": " ".join(f"{point:.4f}" for point in self.points),
            "over": self.over,
            "n": self.count,
            "seeds_planned": self.seeds_planned or None,
            "margin": self.margin,
            "p_value": tested.p_value if tested else None,
            "p_fdr": compared.p_adjusted if compared else None,
            "mde": compared.mde_adjusted if compared else None,
            "power": self.power,
            "paper": self.paper,
            "paper_metric": self.paper_metric,
            "paper_source": self.paper_source,
            "run": self.run,
            "note": "; ".join(filter(None, [self.claim.note, self.rates_note])),
        }
        return {key: rounded(value) for key, value in columns.items()}


@cache
def start_options(bench: Bench) -> tuple[str, ...]:
    """The options of `r3l train`, `r3l compare` and `r3l probe` that name tier and model of ``bench``.

    Only what differs from the defaults: the tier nano, and the tier's model in this environment. A model of
    `r3l sft` is named by its base checkpoint and its recipe, as --set.
    """
    tier, env, model = bench
    options = [] if tier == "nano" else ["--tier", tier]
    model, recipe = base_and_recipe(model)
    if recipe:
        options += ["--set", f"env_settings.sft={recipe}"]
    return (*options, *([] if model == usual_model(tier, env) else ["--model", model]))


@cache
def with_rate(command: str, bench: Bench) -> str:
    """``command`` with GRPO's learning rate in ``bench`` for the word RATE.

    The setting is left out if that is the own rate of the command's method. RATE stays in an environment
    whose file is gone.
    """
    tier, env, model = bench
    if "RATE" not in command or env not in names("envs"):
        return command
    words = command.split()
    named = words[words.index("--method") + 1] if "--method" in words else words[2]  # r3l compare METHOD
    methods = (named.removesuffix("@train.lr=RATE"), RATE_OF)
    own, rate = (resolve(tier, env, method, 0, model).train.lr for method in methods)
    if own == rate:
        return command.replace(" --set train.lr=RATE", "").replace("@train.lr=RATE", "")
    return command.replace("RATE", f"{rate:g}")


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
