"""Tables of scores: a row per environment, method and task group, with interval, budget, provenance and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from r3l.config import TierConfig, load, model_label
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.report import published
from r3l.report.comparison import shown
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import planned
from r3l.report.labels import env_label, method_label
from r3l.report.published import Published, Reference, verdict
from r3l.report.records import Bench, Record, by_method, feedback, groups, outdated, preregistration, scores_S_T
from r3l.report.rows import CONSTANT_ANSWER, CONSTANT_ANSWER_LABEL, INTERVAL, LongRow, interval_columns, rounded
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS

MAIN = ("table1", "llama")  # the published tables of scores of the paper's own settings
PARSE_FAILURES = ("format", "inadmissible", "truncated")
TRUNCATIONS = ("truncated", "context")  # a response, or the whole dialog, outgrew its limit
BUDGET = {  # column: key of result.json's budget
    "rollouts": "rollouts",
    "env_steps": "env_steps",
    "generated_tokens": GENERATED_TOKENS,
    "trained_tokens": TRAINED_TOKENS,
}
PLACE = ("tier", "tier_label", "env", "model", "group", "task_set", "task_set_sha256", "warning")
COLUMNS = (
    *("table", "baseline", *PLACE, "method", "label", FEEDBACK, "provenance", "measure", *INTERVAL, "reward_mean"),
    *("seeds_done", "seeds_planned", "episodes", *(f"difference_{key}" for key in INTERVAL)),
    *("probability_of_improvement", *shown.COLUMNS, *verdict.COLUMNS, "parse_failure_rate", "truncation_rate"),
    *BUDGET,
    "outdated",
    "preregistration",
)


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
) -> list[LongRow]:
    """The rows of ``methods`` for every (tier, env, model) of ``records``; p-values are corrected together.

    Differences are paired with the runs of ``baseline`` that have the same seed. A method without runs has rows
    that say so. ``reference``: the published numbers to hold ours against, by default the main results.
    ``benches``: what is planned beside the records, and has rows even where nobody has run anything.
    """
    reference = reference or main_results()
    rows: list[LongRow] = []
    for bench in sorted({*benches, *(record.bench for record in records)}):
        of_bench = [record for record in records if record.bench == bench]
        runs = by_method(of_bench, methods)
        for group in groups(of_bench):
            for method, seeds in runs.items():
                if seeds:
                    rows.append(_row(seeds, runs.get(baseline, []), group, seeds_planned, reference))
                else:
                    place = _place(of_bench[0], group) if of_bench else nowhere(bench, group)
                    label = method_label(method)
                    beside = reference.score(bench[2], env_label(bench[1]), reference.label(method, label))
                    nothing = missing(place, method, label, seeds_planned, "no run", beside)
                    rows.append(nothing | {FEEDBACK: planned(method, bench[0])})
            if of_bench and CONSTANT_ANSWER in of_bench[0]["task_set"]:
                rows.append(_constant_answer(of_bench[0], group))
    _correct(rows)
    return [row | {"table": title, "baseline": baseline} for row in rows]


def published_rows(
    records: Sequence[Record], reference: Reference, tier: str, seeds_planned: int, title: str, reason: str
) -> list[LongRow]:
    """A row for every number of ``reference``, with our runs of its model, benchmark and method where there are any.

    ``reason``: why there are none. Numbers without a run keep their benchmark's name in ``env``.
    """
    runs: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        label = reference.label(record["method"], record["method_label"])
        runs.setdefault((model_label(record["model"]), env_label(record["env"]), label), []).append(record)
    rows = []
    for row in reference.rows:
        if seeds := runs.get((row.backbone, row.benchmark, row.label)):
            rows.append(_row(seeds, [], "all", seeds_planned, reference))
        else:
            place = {"tier": tier, "env": row.benchmark, "model": row.backbone, "group": "all"}
            rows.append(missing(place, row.method, row.label, seeds_planned, reason, row))
    return [row | {"table": title} for row in rows]


def missing(
    place: LongRow, method: str, label: str, planned: int, reason: str, beside: Published | None = None
) -> LongRow:
    """What nobody has run: nothing is blank that is known, nothing is invented."""
    return dict.fromkeys(COLUMNS) | {
        **place,
        "method": method,
        "label": label,
        "provenance": "ours",
        "measure": "success",
        "seeds_done": 0,
        "seeds_planned": planned,
        "episodes": 0,
        **verdict.incomplete(beside, reason),
    }


def _constant_answer(record: Record, group: str) -> LongRow:
    """What the best answer scores that looks at no problem: a method means something only beside it."""
    baseline = record["task_set"][CONSTANT_ANSWER]
    return dict.fromkeys(COLUMNS) | {
        **_place(record, group),
        "method": CONSTANT_ANSWER,
        "label": CONSTANT_ANSWER_LABEL,
        "provenance": CONSTANT_ANSWER,
        "measure": "success",
        "mean": rounded(baseline["success"][group]),
        "seeds_done": 0,
        "seeds_planned": 0,
        "episodes": 0,
        **verdict.not_comparable(f"the answer is always {baseline['answer']}"),
    }


def _place(record: Record, group: str) -> LongRow:
    task_set = record["task_set"]
    task_set_columns = (task_set["name"], task_set["sha256"], record.warnings)
    values = (record["tier"], record["label"], record["env"], record["model"], group, *task_set_columns)
    return dict(zip(PLACE, values, strict=True))


def nowhere(bench: Bench, group: str = "all") -> LongRow:
    """The place of runs that nobody has made."""
    tier, env, model = bench
    label = load("tiers", tier, TierConfig).label
    return dict.fromkeys(PLACE) | {"tier": tier, "tier_label": label, "env": env, "model": model, "group": group}


def _row(seeds: list[Record], baseline: list[Record], group: str, planned: int, reference: Reference) -> LongRow:
    first = seeds[0]
    episodes = [e for record in seeds for e in record.episodes if group in ("all", e["group"])]
    return dict.fromkeys(COLUMNS) | {
        **_place(first, group),
        "method": first["method"],
        "label": first["method_label"],
        **feedback(seeds),
        "provenance": "ours",
        "measure": "success",
        **interval_columns(_measured(seeds, group, "success")),
        "reward_mean": rounded(np.mean([record["groups"][group]["reward"] for record in seeds])),
        "seeds_done": len(seeds),
        "seeds_planned": planned,
        "episodes": len(episodes),
        **_difference(seeds, baseline, group),
        **_against_paper(seeds, group, planned, reference),
        "parse_failure_rate": _share(episodes, PARSE_FAILURES),
        "truncation_rate": _share(episodes, TRUNCATIONS),
        **{column: _mean_budget(seeds, key) for column, key in BUDGET.items()},
        **outdated(seeds),
        **preregistration(seeds),
    }


def _measured(seeds: Sequence[Record], group: str, metric: str) -> Interval:
    return statistics.interval(scores_S_T(seeds, group, metric))


def _difference(seeds: list[Record], baseline: list[Record], group: str) -> LongRow:
    """Paired with the baseline's runs of the same seeds; empty for the baseline itself and where none match."""
    theirs = {record["seed"]: record for record in baseline}
    ours = [record for record in seeds if record["seed"] in theirs]
    if not ours or ours[0] is baseline[0]:
        return {}
    a = scores_S_T(ours, group)
    b = scores_S_T([theirs[record["seed"]] for record in ours], group)
    return {
        **interval_columns(statistics.paired_difference(a, b), "difference_"),
        "probability_of_improvement": rounded(statistics.probability_of_improvement(a.mean(axis=1), b.mean(axis=1))),
        **shown.tested((a - b).mean(axis=1)),
    }


def _correct(rows: list[LongRow]) -> None:
    shown.correct(rows)
    for row in rows:
        row |= {key: rounded(row[key]) for key in shown.COLUMNS[1:]}


def _against_paper(seeds: Sequence[Record], group: str, planned: int, reference: Reference) -> LongRow:
    """Held against the published metric, which on WebShop and ScienceWorld is a mean reward, not success."""
    first = seeds[0]
    if reason := verdict.other_tier(first["tier"]):
        return verdict.not_comparable(reason)
    label = reference.label(first["method"], first["method_label"])
    number = reference.score(first["model"], env_label(first["env"]), label)
    if number is None or group != "all":
        return verdict.not_comparable("the paper has no such number")
    return verdict.compare(number, _measured(seeds, group, number.metric), len(seeds), planned)


def _share(episodes: Sequence[dict[str, Any]], reasons: tuple[str, ...]) -> float | None:
    return rounded(sum(e["stop_reason"] in reasons for e in episodes) / len(episodes))


def _mean_budget(seeds: Sequence[Record], key: str) -> int:
    """Training only, averaged over seeds."""
    total = sum(float(record.result["budget"].get(key, 0)) for record in seeds)
    return round(total / len(seeds))
