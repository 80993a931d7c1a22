"""Tables of test success at the last checkpoint: registered comparisons, and the arms on ALFWorld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from docs.site.pipe_table import Rows, pipe_table
from r3l.files.paths import STORED
from r3l.report import claims, scores
from r3l.report.claim_learning import BenchRuns
from r3l.report.figures.bars import ending_shares
from r3l.report.frame import ALL, all_tasks, common_seeds
from r3l.report.labels import MDE, env_label, method_label, plus_minus
from r3l.report.published import Reference
from r3l.report.reading import read_runs
from r3l.report.registered import RULE, Registered, registered_rows, registered_table
from r3l.report.table import rounded
from r3l.report.updates import at_rate, learning_rate, updates
from r3l.runs.run_paths import HINT_GAP, find_runs
from r3l.stats.comparison import Effect, claim_verdict, compare_effects
from r3l.stats.intervals import MIN_SEEDS

ARMS = ("grpo", "r3l", "r3l@min_logprob=-5", "r3l_is", "r3l_no_reflection", "r3l_no_amplification")
ARMS_RATE = 3e-4  # the learning rate of all arms
SEEDS = 5  # of each arm
OF_STEPS = {
    "distilled/hint_gap": ("R3L: hint gap in training", ".2f"),
    "distilled/unlikely": ("R3L: share of tokens below -5", ".3f"),
}


def core(runs: pd.DataFrame, with_curves: pd.DataFrame, of_plan: Registered) -> str:
    """Base checkpoint and both methods of the primary comparisons, and what `r3l compare registered` says of them.

    ``with_curves``: ``runs`` and those of the learning curves, some of which are at equal learning rates.
    """
    rows = _scores(runs, ["zero_shot", of_plan.against, of_plan.method])
    difference = f"{method_label(of_plan.method)} minus {method_label(of_plan.against)}, paired by seed"
    names = {difference: "difference", "97 % interval": "interval"}
    names |= {"minimum detectable effect": MDE, "verdict": "verdict"}
    compared = [row for row in registered_rows(runs, of_plan) if row.pairs and not row.earlier]
    for cells in registered_table(compared, of_plan).sections[0].rows if compared else ():
        for name, column in names.items():
            rows.setdefault(name, {})[cells["env"].text] = cells[column].text
    labels = f"{method_label(of_plan.against)}, {method_label(of_plan.method)}"
    for row in compared:
        equal = _at_equal_rates(with_curves[with_curves.env == row.env], of_plan, row.verdict)
        rows.setdefault(f"learning rates ({labels})", {})[env_label(row.env)] = equal.rates
        rows.setdefault("at equal rates, 95 % interval", {})[env_label(row.env)] = equal.text
        if not row.seeds_due and equal.verdict != row.verdict:
            rows["verdict"][env_label(row.env)] = f"inconclusive ({equal.reason})"
    rows["verdict"] = rows.pop("verdict", {})  # the last row but for the budgets
    for method in (of_plan.against, of_plan.method):
        name = f"{method_label(method)}: thousand tokens sampled, scored, trained"
        for env, seeds in all_tasks(runs[runs.method == method]).groupby("env"):
            counts = scores.mean_tokens(seeds).values()
            if None not in counts:
                rows.setdefault(name, {})[env_label(env)] = ", ".join(f"{n / 1000:.0f}" for n in counts)
    return pipe_table({name: cells for name, cells in rows.items() if cells})


def summary(runs: pd.DataFrame, of_plan: Registered) -> str:
    """Test success of the base checkpoint and both methods, all at one learning rate, a row per environment.

    Means over the seeds that both methods have, in brackets, and their difference with its 95 % interval.
    """
    labels = {name: method_label(name) for name in (of_plan.against, of_plan.method)}
    base = _scores(runs, ["zero_shot"])
    starts = next(iter(base.values()), {})
    rows: Rows = {}
    for env in of_plan.envs:
        of_env = runs[(runs.env == env) & (runs.group == ALL)]
        rate = learning_rate(of_env, of_plan.against)
        if rate is None:
            continue
        theirs, ours = common_seeds(*(at_rate(of_env, name, rate) for name in labels))
        values = claims.ScoreTest(method=of_plan.method, against=of_plan.against).values_S(
            BenchRuns(of_env), rate
        )
        if len(values) < MIN_SEEDS:
            continue
        label = env_label(env)
        low, high = Effect.of_seeds(values).bounds()
        rows[f"{label} ({len(values)} seeds)"] = {
            "base checkpoint": starts.get(label, "").partition(" ")[0],
            **{
                text: f"{rounded(float(np.mean(seeds.success))):.3f}"
                for text, seeds in zip(labels.values(), (theirs, ours), strict=True)
            },
            "difference, 95 % interval": f"{np.mean(values):+.3f} ({low:+.3f} to {high:+.3f})",
        }
    return pipe_table(rows)


class EqualRates(NamedTuple):
    """The comparison at equal learning rates: both rates now, how it is shown, its verdict, and why that differs
    from the tuned one."""

    rates: str
    text: str
    verdict: str
    reason: str = ""


def _at_equal_rates(runs: pd.DataFrame, of_plan: Registered, tuned: str) -> EqualRates:
    """Judge the method at the rate of its opponent, in one environment. A comparison at unequal rates holds only
    where this one agrees. ``tuned``: the verdict at the rates that were used."""
    test = claims.ScoreTest(method=of_plan.method, against=of_plan.against)
    of_bench = BenchRuns(runs)
    rates = test.learning_rates(of_bench)
    if rates is None:
        return EqualRates("several", "not run", "", "rates differ")
    ours, theirs = map(claims.short_rate, rates)
    values = test.at_equal_rates(of_bench)
    if values is None:
        return EqualRates(f"{theirs}, {ours}", "the same", tuned)
    if len(values) < MIN_SEEDS:
        return EqualRates(f"{theirs}, {ours}", "not run", "", "rates differ")
    (compared,) = compare_effects([Effect.of_seeds(values)], alpha=RULE.alpha)
    assert compared is not None
    low, high = compared.effect.bounds()
    text = f"{compared.effect.mean:+.3f} ({low:+.3f} to {high:+.3f}; {len(values)} seeds)"
    planned = next(claim for claim in claims.load_claims().claims if claim.id == "learns_60_grpo").seeds
    if len(values) < (wanted := planned.get(runs.iloc[0].env, 0)):
        return EqualRates(f"{theirs}, {ours}", text, "", f"{len(values)} of {wanted} seeds at equal rates")
    verdict = claim_verdict(compared, RULE.difference)
    return EqualRates(f"{theirs}, {ours}", text, verdict, "the rates disagree")


def _scores(runs: pd.DataFrame, methods: Sequence[str]) -> Rows:
    """Over all tasks."""
    texts: Rows = {}
    rows = scores.score_rows(runs, methods, "zero_shot", 0, reference=Reference([]))
    for row in rows[rows.group == "all"].itertuples():
        if row.mean is not None:
            text = plus_minus(row.mean, row.low, row.high, row.points, row.unit)
            seeds = f" ({row.seeds_done})" if row.seeds_done else ""
            texts.setdefault(row.label, {})[env_label(row.env)] = text + seeds
    return texts


def arms(runs: pd.DataFrame, of_plan: Registered) -> str:
    """The arms of the registered experiment on ALFWorld minus GRPO, and what R3L's training showed, a column
    a base checkpoint."""
    runs = pd.concat([runs, read_runs(find_runs(STORED / HINT_GAP, may_be_none=True))])
    runs = runs[(runs.tier == of_plan.tier) & (runs.env == "alfworld")]
    models = dict(iter(runs.groupby("model")))
    rows: Rows = {}
    for method in ARMS:
        for model, of_model in models.items():
            seeds = all_tasks(at_rate(of_model, method, ARMS_RATE))
            if len(seeds):
                cells = rows.setdefault(method_label(method), {})
                cells[f"`{model}`"] = _arm(method, seeds, of_model, of_plan.against)
    for model, of_model in models.items():
        ours = all_tasks(at_rate(of_model, of_plan.method, ARMS_RATE))
        for label, text in _in_training(ours).items():
            rows.setdefault(label, {})[f"`{model}`"] = text
    return pipe_table(rows)


def _arm(method: str, seeds: pd.DataFrame, of_bench: pd.DataFrame, against: str) -> str:
    """GRPO's mean success; for others the paired difference to it, or its values if seeds are few."""
    count = "" if len(seeds) == SEEDS else f" ({len(seeds)} seeds)"
    if method == against:
        return f"{rounded(float(np.mean(seeds.success))):.3f}{count}"
    values = claims.ScoreTest(method=method, against=against).values_S(BenchRuns(of_bench), ARMS_RATE)
    if len(values) < MIN_SEEDS or np.ptp(values) == 0:
        return ", ".join(f"{value:+.3f}" for value in values)
    low, high = Effect.of_seeds(values).bounds()
    return f"{np.mean(values):+.3f} ({low:+.3f} to {high:+.3f}){count}"


def _in_training(seeds: pd.DataFrame) -> dict[str, str]:
    """Means over R3L's updates, and how many of its test episodes an impossible action ended."""
    shown = {}
    for name, (label, form) in OF_STEPS.items():
        if steps := [step[name] for path in seeds.path for step in updates(path) if name in step]:
            shown[label] = format(float(np.mean(steps)), form)
    return shown | {
        "R3L: ended by an impossible action": f"{ending_shares(seeds).get('inadmissible', 0.0):.3f}"
    }
