"""Tables of scores: a row per environment, method and task group, with interval, budget, provenance and verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from r3l.config import EnvConfig, TierConfig, load, load_method, model_label, variant
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.report import published, verdict
from r3l.report.published import Published, Reference
from r3l.report.records import Bench, Record, by_method, groups, scores_S_T
from r3l.runs.files import writable, write_text_atomic
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
DIGITS = 4
CONSTANT, CONSTANT_LABEL = "constant", "Constant answer"  # in place of a method
PLACE = ("tier", "tier_label", "env", "model", "group", "task_set", "task_set_sha256", "warning")
INTERVAL = ("mean", "low", "high", "interval")
COLUMNS = (
    *("table", "baseline", *PLACE, "method", "label", "provenance", "measure", *INTERVAL, "reward_mean"),
    *("seeds_done", "seeds_planned", "episodes", *(f"difference_{key}" for key in INTERVAL)),
    *("probability_of_improvement", "p_value", "p_holm", *verdict.COLUMNS, "parse_failure_rate", "truncation_rate"),
    *BUDGET,
)
Row = dict[str, Any]


def main_results() -> Reference:
    """The paper's main results: Table 1 and its appendix."""
    return Reference([row for row in published.load() if row.table in MAIN])


def scores_table(
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
    that say so. ``reference``: the published numbers to hold ours against, by default the main results.
    ``benches``: what is planned beside the records, and has rows even where nobody has run anything.
    """
    reference = reference or main_results()
    rows: list[Row] = []
    for bench in sorted({*benches, *(record.bench for record in records)}):
        chosen = [record for record in records if record.bench == bench]
        runs = by_method(chosen, methods)
        for group in groups(chosen):
            for method, seeds in runs.items():
                if seeds:
                    rows.append(_row(seeds, runs.get(baseline, []), group, seeds_planned, reference))
                else:
                    place = _place(chosen[0], group) if chosen else nowhere(bench, group)
                    beside = reference.score(
                        bench[2], benchmark_of(bench[1]), reference.label(method, label_of(method))
                    )
                    rows.append(missing(place, method, label_of(method), seeds_planned, "no run", beside))
            if chosen and "constant_answer_baseline" in chosen[0]["task_set"]:
                rows.append(_constant(chosen[0], group))
    _correct(rows)
    return [row | {"table": title, "baseline": baseline} for row in rows]


def published_table(
    records: Sequence[Record], reference: Reference, tier: str, seeds_planned: int, title: str, reason: str
) -> list[Row]:
    """A row for every number of ``reference``, with our runs of its model, benchmark and method where there are any.

    ``reason``: why there are none. Numbers without a run keep their benchmark's name in ``env``.
    """
    runs: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        label = reference.label(record["method"], record["method_label"])
        runs.setdefault((model_label(record["model"]), benchmark_of(record["env"]), label), []).append(record)
    rows = []
    for row in reference.rows:
        if seeds := runs.get((row.backbone, row.benchmark, row.label)):
            rows.append(_row(seeds, [], "all", seeds_planned, reference))
        else:
            place = {"tier": tier, "env": row.benchmark, "model": row.backbone, "group": "all"}
            rows.append(missing(place, row.method, row.label, seeds_planned, reason, row))
    return [row | {"table": title} for row in rows]


def benchmark_of(env: str) -> str:
    """What an environment is called in print."""
    return load("envs", env, EnvConfig).label


def label_of(method: str) -> str:
    """What a method or variant is called in print, as its runs would be."""
    name, changes = variant(method)
    return load_method(name).label + (f" ({', '.join(changes)})" if changes else "")


def missing(place: Row, method: str, label: str, planned: int, reason: str, beside: Published | None = None) -> Row:
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


def _constant(record: Record, group: str) -> Row:
    """What the best answer scores that looks at no problem: a method means something only beside it."""
    known = record["task_set"]["constant_answer_baseline"]
    return dict.fromkeys(COLUMNS) | {
        **_place(record, group),
        "method": CONSTANT,
        "label": CONSTANT_LABEL,
        "provenance": "constant",
        "measure": "success",
        "mean": rounded(known["success"][group]),
        "seeds_done": 0,
        "seeds_planned": 0,
        "episodes": 0,
        **verdict.not_comparable(f"the answer is always {known['answer']}"),
    }


def _place(record: Record, group: str) -> Row:
    task_set = record["task_set"]
    task_set_columns = (task_set["name"], task_set["sha256"], task_set.get("warning", ""))
    values = (record["tier"], record["label"], record["env"], record["model"], group, *task_set_columns)
    return dict(zip(PLACE, values, strict=True))


def nowhere(bench: Bench, group: str = "all") -> Row:
    """The place of runs that nobody has made."""
    tier, env, model = bench
    label = load("tiers", tier, TierConfig).label
    return dict.fromkeys(PLACE) | {"tier": tier, "tier_label": label, "env": env, "model": model, "group": group}


def _row(seeds: list[Record], baseline: list[Record], group: str, planned: int, reference: Reference) -> Row:
    first = seeds[0]
    episodes = [e for record in seeds for e in record.episodes if group in ("all", e["group"])]
    return dict.fromkeys(COLUMNS) | {
        **_place(first, group),
        "method": first["method"],
        "label": first["method_label"],
        "provenance": "ours",
        "measure": "success",
        **_interval("", _measured(seeds, group, "success")),
        "reward_mean": rounded(np.mean([record["groups"][group]["reward"] for record in seeds])),
        "seeds_done": len(seeds),
        "seeds_planned": planned,
        "episodes": len(episodes),
        **_difference(seeds, baseline, group),
        **_against_paper(seeds, group, planned, reference),
        "parse_failure_rate": _share(episodes, PARSE_FAILURES),
        "truncation_rate": _share(episodes, TRUNCATIONS),
        **{column: _mean_budget(seeds, key) for column, key in BUDGET.items()},
    }


def _measured(seeds: Sequence[Record], group: str, metric: str) -> Interval:
    return statistics.interval(scores_S_T(seeds, group, metric))


def _interval(prefix: str, found: Interval) -> Row:
    return {
        f"{prefix}mean": rounded(found.mean),
        f"{prefix}low": rounded(found.low),
        f"{prefix}high": rounded(found.high),
        f"{prefix}interval": found.kind,
    }


def _difference(seeds: list[Record], baseline: list[Record], group: str) -> Row:
    """Paired with the baseline's runs of the same seeds; empty for the baseline itself and where none match."""
    theirs = {record["seed"]: record for record in baseline}
    ours = [record for record in seeds if record["seed"] in theirs]
    if not ours or ours[0] is baseline[0]:
        return {}
    a = scores_S_T(ours, group)
    b = scores_S_T([theirs[record["seed"]] for record in ours], group)
    return {
        **_interval("difference_", statistics.paired_difference(a, b)),
        "probability_of_improvement": rounded(statistics.probability_of_improvement(a.mean(axis=1), b.mean(axis=1))),
        "p_value": statistics.paired_p_value((a - b).mean(axis=1)),
    }


def _correct(rows: list[Row]) -> None:
    tested = [row for row in rows if row["p_value"] is not None]
    for row, adjusted in zip(tested, statistics.holm([row["p_value"] for row in tested]), strict=True):
        row["p_value"], row["p_holm"] = rounded(row["p_value"]), rounded(adjusted)


def _against_paper(seeds: Sequence[Record], group: str, planned: int, reference: Reference) -> Row:
    """Held against the published metric, which on WebShop and ScienceWorld is a mean reward, not success."""
    first = seeds[0]
    if reason := verdict.other_tier(first["tier"]):
        return verdict.not_comparable(reason)
    label = reference.label(first["method"], first["method_label"])
    found = reference.score(first["model"], benchmark_of(first["env"]), label)
    if found is None or group != "all":
        return verdict.not_comparable("the paper has no such number")
    return verdict.compare(found, _measured(seeds, group, found.metric), len(seeds), planned)


def _share(episodes: Sequence[dict[str, Any]], reasons: tuple[str, ...]) -> float | None:
    return rounded(sum(e["stop_reason"] in reasons for e in episodes) / len(episodes))


def _mean_budget(seeds: Sequence[Record], key: str) -> int:
    """Training only, averaged over seeds."""
    total = sum(float(record.result["budget"].get(key, 0)) for record in seeds)
    return round(total / len(seeds))


def rounded(value: float | None) -> float | None:
    """As tables store numbers."""
    return None if value is None else round(float(value), DIGITS)


def write_csv(rows: Sequence[Row], out: Path) -> None:
    """Atomic; empty cells are what does not exist."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_out(text.getvalue(), out)


def write_out(text: str, out: Path) -> None:
    """Atomic. Raises RunDirectoryError naming the file where it cannot be written."""
    with writable(out):
        write_text_atomic(out, text)
