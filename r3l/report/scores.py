"""Rows of test scores: one for every environment, method and task group, with budget, provenance and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from r3l.config import TierConfig, backbone, load
from r3l.report import published
from r3l.report.feedback import planned
from r3l.report.labels import env_label, method_label
from r3l.report.published import Published, PublishedComparison, Reference
from r3l.report.records import Bench, Record, by_method, feedback, groups, pairs, preregistration, scores_S_T
from r3l.report.rows import CONSTANT_ANSWER, CONSTANT_ANSWER_LABEL, Row
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS
from r3l.stats.comparison import Effect, compare
from r3l.stats.intervals import Interval, seed_interval

MAIN = ("table1", "llama")  # the published tables of scores of the paper's own settings
PARSE_FAILURES = ("format", "inadmissible", "truncated")
TRUNCATIONS = ("truncated", "context")  # a response, or the whole dialog, outgrew its limit


def main_results() -> Reference:
    """The paper's main results: Table 1 and its appendix."""
    return Reference([row for row in published.load() if row.table in MAIN])


def score_rows(
    records: Sequence[Record],
    methods: Sequence[str],
    baseline: str,
    seeds_planned: int,
    title: str = "Scores",
    reference: Reference | None = None,
    benches: Sequence[Bench] = (),
) -> list[Row]:
    """The rows of ``methods`` for every (tier, env, model) of ``records``; p-values are corrected together.

    Differences are paired with the runs of ``baseline`` that have the same seed. A method without runs has rows
    that say so. ``reference``: the published numbers to compare ours with, by default the main results.
    ``benches``: what is planned beside the records, and has rows even where nobody has run anything.
    """
    reference = reference or main_results()
    rows: list[Row] = []
    for bench in sorted({*benches, *(record.bench for record in records)}):
        of_bench = [record for record in records if record.bench == bench]
        runs = by_method(of_bench, methods)
        for group in groups(of_bench):
            for method, seeds in runs.items():
                if seeds:
                    rows.append(_row(seeds, runs.get(baseline, []), group, seeds_planned, reference))
                else:
                    beside = reference.score(
                        bench[2], env_label(bench[1]), reference.label(method, method_label(method))
                    )
                    place = _place(of_bench[0]) if of_bench else nowhere(bench)
                    teacher = planned(method, bench[0])
                    rows.append(
                        missing(method, seeds_planned, "no run", beside, group=group, feedback=teacher, **place)
                    )
            if of_bench and CONSTANT_ANSWER in of_bench[0].task_set:
                rows.append(_constant_answer(of_bench[0], group))
    differences = compare([row.effect for row in rows])
    return [
        replace(row, table=title, baseline=baseline, difference=difference)
        for row, difference in zip(rows, differences, strict=True)
    ]


def published_rows(
    records: Sequence[Record], reference: Reference, tier: str, seeds_planned: int, title: str, reason: str
) -> list[Row]:
    """A row for every number of ``reference``, with our runs of its model, benchmark and method where there are any.

    ``reason``: why there are none. Numbers without a run keep their benchmark's name in ``env``.
    """
    runs: dict[tuple[str, str, str], dict[str, list[Record]]] = {}
    for record in records:
        label = reference.label(record.method, record.method_label)
        of_model = runs.setdefault((backbone(record.model), env_label(record.env), label), {})
        of_model.setdefault(record.model, []).append(record)
    rows = []
    for number in reference.rows:
        if by_model := runs.get((number.backbone, number.benchmark, number.label)):
            rows += [_row(seeds, [], "all", seeds_planned, reference) for seeds in by_model.values()]
        else:
            place = {"tier": tier, "env": number.benchmark, "model": number.backbone, "label": number.label}
            rows.append(missing(number.method, seeds_planned, reason, number, **place))
    return [replace(row, table=title) for row in rows]


def missing(method: str, planned: int, reason: str, beside: Published | None = None, **known: Any) -> Row:
    """What nobody has run: nothing is blank that is known, nothing is invented."""
    label = known.pop("label", None) or method_label(method)
    return Row(method=method, label=label, **known, seeds_planned=planned, paper=published.incomplete(beside, reason))


def _constant_answer(record: Record, group: str) -> Row:
    """What the best answer scores that looks at no problem: a method means something only beside it."""
    baseline = record.task_set[CONSTANT_ANSWER]
    return Row(
        **_place(record),
        group=group,
        method=CONSTANT_ANSWER,
        label=CONSTANT_ANSWER_LABEL,
        provenance=CONSTANT_ANSWER,
        score=Interval(baseline["success"][group], None, None, 0, ""),
        paper=published.not_comparable(f"the answer is always {baseline['answer']}"),
    )


def _place(record: Record) -> dict[str, Any]:
    task_set = {"task_set": record.task_set["name"], "task_set_sha256": record.task_set["sha256"]}
    place = {key: getattr(record, key) for key in ("tier", "tier_label", "env", "model")}
    return place | task_set | {"warning": record.warnings}


def nowhere(bench: Bench) -> dict[str, Any]:
    """The place of runs that nobody has made."""
    tier, env, model = bench
    return {"tier": tier, "tier_label": load("tiers", tier, TierConfig).label, "env": env, "model": model}


def _row(seeds: list[Record], baseline: list[Record], group: str, planned: int, reference: Reference) -> Row:
    first = seeds[0]
    episodes = [e for record in seeds for e in record.episodes if group in ("all", e["group"])]
    return Row(
        **_place(first),
        group=group,
        method=first.method,
        label=first.method_label,
        feedback=feedback(seeds),
        score=seed_interval(scores_S_T(seeds, group)),
        reward_mean=float(np.mean([record.groups[group]["reward"] for record in seeds])),
        seeds_done=len(seeds),
        seeds_planned=planned,
        episodes=len(episodes),
        effect=_effect(seeds, baseline, group),
        paper=_against_paper(seeds, group, planned, reference),
        parse_failure_rate=_share(episodes, PARSE_FAILURES),
        truncation_rate=_share(episodes, TRUNCATIONS),
        rollouts=_mean_budget(seeds, "rollouts"),
        env_steps=_mean_budget(seeds, "env_steps"),
        generated_tokens=_mean_budget(seeds, GENERATED_TOKENS),
        trained_tokens=_mean_budget(seeds, TRAINED_TOKENS),
        preregistration=preregistration(seeds),
    )


def _effect(seeds: list[Record], baseline: list[Record], group: str) -> Effect | None:
    """Paired with the baseline's runs of the same seeds; None for the baseline itself and where none match."""
    if baseline and seeds[0] is baseline[0]:
        return None
    ours, theirs = pairs(seeds, baseline)
    return Effect.paired(scores_S_T(ours, group), scores_S_T(theirs, group)) if ours else None


def _against_paper(seeds: Sequence[Record], group: str, planned: int, reference: Reference) -> PublishedComparison:
    """In the published metric, which on WebShop and ScienceWorld is a mean reward, not success."""
    first = seeds[0]
    if reason := published.other_tier(first.tier):
        return published.not_comparable(reason)
    label = reference.label(first.method, first.method_label)
    number = reference.score(first.model, env_label(first.env), label)
    if number is None or group != "all":
        return published.not_comparable("the paper has no such number")
    measured = seed_interval(scores_S_T(seeds, group, number.metric))
    return published.against(number, measured, len(seeds), planned)


def _share(episodes: Sequence[dict[str, Any]], reasons: tuple[str, ...]) -> float:
    return sum(episode["stop_reason"] in reasons for episode in episodes) / len(episodes)


def _mean_budget(seeds: Sequence[Record], key: str) -> int:
    """Training only, averaged over seeds."""
    return round(sum(float(record.result["budget"].get(key, 0)) for record in seeds) / len(seeds))
