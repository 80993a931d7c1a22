"""Rows of test scores, the long form of a table (its csv file): one for every environment, method and task
group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from r3l.config import TierConfig, load
from r3l.report import published
from r3l.report.frame import (
    ALL,
    CONSTANT_ANSWER,
    TOKENS,
    Bench,
    all_tasks,
    by_bench,
    common_places,
    groups,
    scores_S_T,
)
from r3l.report.labels import backbone, env_label, method_label, planned_feedback_author, written_by
from r3l.report.published import PAPER_COLUMNS, Published, Reference, against, paper_columns
from r3l.stats.comparison import Comparison, Effect, compare_effects
from r3l.stats.intervals import Interval, t_interval

MAIN = ("table1", "llama")  # the published tables of scores of the paper's own settings
CONSTANT_ANSWER_LABEL = "Constant answer"  # printed instead of a method's name
INTERVAL = ("mean", "low", "high", "interval")
PLAYED = ("rollouts", "env_steps")  # counters of training
PLACE = ("tier", "tier_label", "env", "model")
TASK_SET = ("task_set", "task_set_sha256", "warning")
METHOD = ("method", "label", "feedback", "provenance", "measure")
# The columns of a csv file. ``outdated`` is empty: earlier versions named corrections of code there.
SCORES = (
    *("table", "baseline", *PLACE, "group", *TASK_SET, *METHOD, *INTERVAL),
    *("reward_mean", "seeds_done", "seeds_planned", "episodes", *(f"difference_{key}" for key in INTERVAL)),
    *("probability_of_improvement", "pairs", "p_value", "p_holm", "spread"),
    *("mde", "mde_holm", *PAPER_COLUMNS, "parse_failure_rate", "truncation_rate", *PLAYED, *TOKENS),
    *("outdated", "preregistration"),
)
IN_PRINT = ("benchmark", "unit", "points", "difference_points", "comparison")  # not in csv files
EMPTY: dict[str, Any] = dict.fromkeys((*SCORES, *IN_PRINT)) | {
    "group": ALL,
    "provenance": "ours",
    "measure": "success",
    "seeds_done": 0,
    "seeds_planned": 0,
    "episodes": 0,
    "points": (),
    "difference_points": (),
}


def as_rows(rows: Sequence[dict[str, Any]], **same: Any) -> pd.DataFrame:
    """A data frame of ``rows`` with every column; None marks a missing number.

    ``same``: values that all rows get. Five columns are not in csv files: ``benchmark`` (the environment's
    printed name), ``unit`` of a training measure, ``points`` and ``difference_points`` (one value per seed,
    if too few seeds for an interval), and ``comparison``, the tested difference to the baseline.
    """
    full = [EMPTY | row | same for row in rows]
    return pd.DataFrame(full, columns=list(EMPTY), dtype=object)


def score_rows(
    runs: pd.DataFrame,
    methods: Sequence[str],
    baseline: str,
    seeds_planned: int,
    title: str = "Scores",
    reference: Reference | None = None,
    planned_benches: Sequence[Bench] = (),
) -> pd.DataFrame:
    """A row for each (tier, env, model), task group (also ``all``) and method; p-values corrected together.

    Differences are paired with the runs of ``baseline`` that have the same seed. A method without runs has
    rows that say so. The best constant answer, if it was measured, has a row too. ``reference``: the
    published numbers to compare ours with, by default those of MAIN. ``planned_benches`` have rows even
    without runs. ``title``: value of the column ``table``.
    """
    reference = Reference(published.load(MAIN)) if reference is None else reference
    labels = {env: env_label(env) for env in runs.env.unique()}
    of_benches = by_bench(runs.assign(benchmark=runs.env.map(labels)))
    # Of methods without runs: read from the configuration once, not for every row.
    label_of = cache(method_label)
    feedback_author_of = cache(planned_feedback_author)
    rows: list[dict[str, Any]] = []
    for bench in sorted({*planned_benches, *of_benches}):
        here = of_benches.get(bench, runs.iloc[:0])
        place = dict(here.iloc[0][[*PLACE, "benchmark", *TASK_SET]]) if len(here) else place_of(bench)
        cells = dict(iter(here.groupby(["group", "method"], sort=False)))
        for group in groups(here):
            for method in methods:
                seeds = cells.get((group, method))
                others = cells.get((group, baseline))
                if seeds is not None:
                    rows.append(_row(seeds, None if method == baseline else others, seeds_planned, reference))
                    continue
                label = label_of(method)
                number = reference.get(bench[2], place["benchmark"], reference.label(method, label))
                known = {"label": label, "group": group, "feedback": feedback_author_of(method, bench[0])}
                rows.append(missing(method, seeds_planned, "no run", number, **known, **place))
            answered = here[(here.group == group) & here.constant_success.notna()]
            if len(answered):  # the best answer that ignores the problem is a further baseline
                first = answered.iloc[0]
                known = {"method": CONSTANT_ANSWER, "label": CONSTANT_ANSWER_LABEL, "group": group}
                known |= {"provenance": CONSTANT_ANSWER, "mean": first.constant_success, "interval": ""}
                paper = paper_columns("not comparable", f"the answer is always {first.constant_answer}")
                rows.append(place | known | paper)

    # Holm's correction covers every comparison of the table.
    comparisons = compare_effects([row.pop("effect", None) for row in rows])
    for row, comparison in zip(rows, comparisons, strict=True):
        if comparison is not None:
            row |= paired_columns(comparison) | {"comparison": comparison}
    return as_rows(rows, table=title, baseline=baseline)


def _row(
    seeds: pd.DataFrame, baseline: pd.DataFrame | None, planned_seeds: int, reference: Reference
) -> dict[str, Any]:
    """The row of one method on one task group.

    ``seeds``: its rows of the frame, one per training seed, with a column ``benchmark``, the environment's
    printed name. ``effect`` of the row is the difference to ``baseline``; the caller tests the effects of all
    rows together.
    """
    # The cell of a table: the mean over seeds of each seed's mean over tasks, with its interval.
    first = seeds.iloc[0]
    done = len(seeds)
    success_S_T = scores_S_T(seeds)
    success = t_interval(success_S_T.mean(axis=1))

    # Further columns: what was played, who wrote the feedback, what training cost. Lists are added up in a
    # tenth of the time of pandas.
    episodes, invalid, truncated = (
        sum(seeds[name].tolist()) for name in ("episodes", "parse_failures", "truncations")
    )
    warnings = dict.fromkeys(part for warning in seeds.warning for part in warning.split("; ") if part)
    row = {
        **{name: first[name] for name in (*PLACE, "benchmark", *TASK_SET, "group", "method", "label")},
        "warning": "; ".join(warnings),
        "feedback": written_by(first.feedback, seeds),
        **interval_columns(success),
        "reward_mean": float(np.mean(list(seeds.reward))),
        "seeds_done": done,
        "seeds_planned": planned_seeds,
        "episodes": episodes,
        "parse_failure_rate": invalid / episodes,
        "truncation_rate": truncated / episodes,
        **{name: round(sum(count.get(name, 0) for count in seeds.budget) / done) for name in PLAYED},
        **mean_tokens(seeds),
        "preregistration": ", ".join(sorted({text for text in seeds.preregistration if text})) or None,
    }

    # The difference to the baseline, paired by seed and task.
    if baseline is not None:
        ours, theirs = common_places(seeds, baseline)
        both = (success_S_T[ours], scores_S_T(baseline)[theirs])
        row["effect"] = Effect.paired(*both) if ours else None

    # Compared in the published metric, which on WebShop and ScienceWorld is a mean reward, not success.
    label = reference.label(first.method, first.label)
    number = reference.get(first.model, first.benchmark, label) if first.group == ALL else None
    measured = t_interval(scores_S_T(seeds, number.metric).mean(axis=1)) if number else success
    return row | against(number, first.tier, measured, done, planned_seeds)


def published_rows(
    runs: pd.DataFrame, reference: Reference, tier: str, seeds_planned: int, title: str, reason: str
) -> pd.DataFrame:
    """A row for every number of ``reference``, with our runs of its model, benchmark and method if any.

    ``tier`` and ``seeds_planned`` are values of rows without runs, ``reason`` says why there are none, and
    ``title`` is the column ``table`` of all rows. Numbers without a run keep their benchmark's name in
    ``env``.
    """
    ours: dict[tuple[str, str, str], list[pd.DataFrame]] = {}
    for (model, env, method), seeds in all_tasks(runs).groupby(["model", "env", "method"], sort=False):
        published_as = (backbone(model), env_label(env), reference.label(method, seeds.iloc[0].label))
        ours.setdefault(published_as, []).append(seeds.assign(benchmark=env_label(env)))
    rows: list[dict[str, Any]] = []
    for number in reference.rows:
        if by_model := ours.get((number.backbone, number.benchmark, number.label)):
            rows += [_row(seeds, None, seeds_planned, reference) for seeds in by_model]
        else:
            place = {"tier": tier, "env": number.benchmark, "benchmark": number.benchmark}
            place |= {"model": number.backbone, "label": number.label}
            rows.append(missing(number.method, seeds_planned, reason, number, **place))
    return as_rows(rows, table=title)


def mean_tokens(seeds: pd.DataFrame) -> dict[str, int | None]:
    """Means over ``seeds`` of the columns TOKENS; None: some seed did not record them."""
    means: dict[str, int | None] = {}
    for name in TOKENS:
        mean = sum(seeds[name].tolist()) / len(seeds)
        means[name] = None if math.isnan(mean) else round(mean)
    return means


def missing(
    method: str, seeds: int, reason: str, number: Published | None = None, **known: Any
) -> dict[str, Any]:
    """The row of a method that has not run (verdict ``incomplete``), with no measured values.

    ``reason``: why not, as its ``verdict_reason``. ``seeds``: number of training seeds planned. ``number``:
    the published one. ``known``: further values of the row by column, such as tier and env; ``label``
    replaces the method's own.
    """
    label = known.pop("label", None) or method_label(method)
    paper = paper_columns("incomplete", reason, number)
    return {"method": method, "label": label, **known, "seeds_planned": seeds, **paper}


def place_of(bench: Bench) -> dict[str, Any]:
    """The columns PLACE and ``benchmark`` of a bench (tier, env, model), for its row without runs.

    Raises ConfigError for an unknown tier.
    """
    tier, env, model = bench
    tier_label = load("tiers", tier, TierConfig).label
    return {
        "tier": tier,
        "tier_label": tier_label,
        "env": env,
        "benchmark": env_label(env),
        "model": model,
    }


def interval_columns(interval: Interval | None, prefix: str = "") -> dict[str, Any]:
    """The columns of an interval: mean, low, high, interval (its kind), points; {} for None.

    ``prefix``: text before each column's name.
    """
    if interval is None:
        return {}
    values = {"mean": interval.mean, "low": interval.low, "high": interval.high, "interval": interval.kind}
    return {f"{prefix}{key}": value for key, value in (values | {"points": interval.points}).items()}


def paired_columns(comparison: Comparison) -> dict[str, Any]:
    """The columns of a paired comparison: its difference, p-values and minimum detectable effects.

    They are ``difference_*`` (the difference with its interval), probability_of_improvement, pairs (seeds),
    p_value, p_holm, spread, mde, mde_holm (``_holm``: corrected over the table).
    """
    effect = comparison.effect
    return {
        **interval_columns(effect.interval, "difference_"),
        "probability_of_improvement": effect.probability_of_improvement,
        "pairs": effect.seeds,
        "p_value": effect.p_value,
        "p_holm": comparison.p_adjusted,
        "spread": effect.deviation,
        "mde": comparison.mde,
        "mde_holm": comparison.mde_adjusted,
    }
