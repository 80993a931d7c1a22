"""A method against stored baselines: score, paired difference, probability of improvement, budget, verdict.

Pairs are runs of the same seed on the same tasks of one task set. P-values are Holm-corrected over all comparisons of
one call; the probability of improvement is Mann-Whitney's, as rliable has it (Agarwal et al. 2021, section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r3l.config import hashed, variant
from r3l.config.corrections import MEANINGS
from r3l.config.own_code import changed_files, own_code
from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.files.json_files import read_json
from r3l.report.comparison import shown
from r3l.report.feedback import is_taught
from r3l.report.labels import method_label
from r3l.report.records import Record, by_method, groups, scores_S_T
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Row, Table, table
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS

BUDGET = {
    "rollouts": "rollouts",
    "env_steps": "env_steps",
    "generated": GENERATED_TOKENS,
    "trained": TRAINED_TOKENS,
}
SETTINGS = (
    "prompts",
    "samples",
    "train",
    "sampling",
    "evaluation",
    "judge",
    "env_settings",
)  # of a run, beside its method
INTERVAL = ("mean", "low", "high")
WRITERS = {"self": "the model itself", "environment": "the environment's critic"}


def compare(records: Sequence[Record], method: str, against: Sequence[str], group: str = "all") -> list[LongRow]:
    """A row an environment and opponent: ``method`` minus opponent over the seeds that both have.

    ``group``: of the task_set's tasks (easy, hard, all). Raises DataError where there is no run of ``method``, and
    where an environment's task set has no such group.
    """
    rows: list[LongRow] = []
    for bench in sorted({record.bench for record in records if record["method"] == method}):
        runs = by_method([r for r in records if r.bench == bench], [method, *against])
        known = groups(runs[method])
        if group not in known:
            raise DataError(f"--group is {group!r}; the tasks of {bench[1]} are {', '.join(known)}")
        rows += [_row(runs[method], runs[other], other, group) for other in against]
    if not rows:
        raise DataError(
            f"there is no evaluated run of {method!r} in the environments that are compared; choose others (--env), or "
            "train it first (r3l compare does, without --offline)"
        )
    shown.correct(rows)
    for row in rows:
        row["verdict"] = shown.verdict(row)
    return rows


def _row(ours: list[Record], theirs: list[Record], other: str, group: str) -> LongRow:
    first = ours[0]
    by_seed = {record["seed"]: record for record in theirs}
    common = [record for record in ours if record["seed"] in by_seed]
    place = {key: first[key] for key in ("tier", "env", "model", "method")} | {"group": group, "against": other}
    place |= {"label": theirs[0]["method_label"] if theirs else method_label(other), "pairs": 0}
    if not common:
        return place | dict.fromkeys(_EMPTY) | {"verdict": "", "warnings": []}
    paired = [by_seed[record["seed"]] for record in common]
    a, b = scores_S_T(common, group), scores_S_T(paired, group)
    return {
        **place,
        **_numbers("ours", statistics.interval(a)),
        **_numbers("theirs", statistics.interval(b)),
        **_numbers("difference", statistics.paired_difference(a, b)),
        "probability_of_improvement": statistics.probability_of_improvement(a.mean(axis=1), b.mean(axis=1)),
        **shown.tested((a - b).mean(axis=1)),
        **{f"budget_{name}": _ratio(common, paired, key) for name, key in BUDGET.items()},
        "warnings": setting_warnings(common[0], paired[0]),
    }


_EMPTY = (
    *(f"{name}_{part}" for name in ("ours", "theirs", "difference") for part in INTERVAL),
    *("probability_of_improvement", *shown.COLUMNS[1:]),
    *(f"budget_{name}" for name in BUDGET),
)


def setting_warnings(ours: Record, theirs: Record) -> list[str]:
    """Settings beside the method in which the two runs differ (they would be compared too), and what is outdated."""
    a, b = (hashed(read_json(record.path.parent / "manifest.json")["run"]) for record in (ours, theirs))
    texts = [
        f"{section}.{key} is {_of(a, section, key)!r} here and {_of(b, section, key)!r} there"
        for section in SETTINGS
        for key in sorted(_keys(a.get(section)) | _keys(b.get(section)))  # a run may be older than a section
        if _of(a, section, key) != _of(b, section, key)
    ]
    old = [
        f"{record['method']} seed {record['seed']} is outdated until run again ({name}: {MEANINGS[name]})"
        for record in (ours, theirs)
        for name in record.outdated
    ]
    edited = [text for record, run in ((ours, a), (theirs, b)) for text in _code_warnings(record, run)]
    conditions = _player_warnings(ours, theirs) + _teacher_warnings(ours, theirs)
    return [text.replace(".value is", " is") for text in texts] + conditions + old + edited


def _code_warnings(record: Record, run: Mapping[str, Any]) -> list[str]:
    """Where the user's own code is no longer that of a run."""
    recorded = run.get("own_code", {})
    changed = changed_files(recorded, own_code(record["env"], variant(record["method"]).method)) if recorded else []
    return [f"code changed since {record['method']} seed {record['seed']}: {', '.join(changed)}"] if changed else []


def _player_warnings(ours: Record, theirs: Record) -> list[str]:
    """Where a server has sampled the episodes of one of them, or other servers those of both."""
    a, b = (_player(record) for record in (ours, theirs))
    return [] if a == b else [f"test episodes were sampled by {a} here and by {b} there"]


def _teacher_warnings(ours: Record, theirs: Record) -> list[str]:
    """Where somebody else than the model wrote the feedback that one of them learnt with."""
    a, b = (record.feedback for record in (ours, theirs))
    if a == b or not (is_taught(a) or is_taught(b)):
        return []
    here, there = (f"written by {WRITERS.get(label, label)}" if label else "not read" for label in (a, b))
    return [f"feedback in training was {here} here and {there} there"]


def _player(record: Record) -> str:
    agent = record.evaluation.get("agent")
    return f"a server ({agent['model']}, {agent['dialog']})" if agent else "the local policy"


def _keys(section: Any) -> set[str]:
    return set(section) if isinstance(section, dict) else {"value"}


def _of(run: dict[str, Any], section: str, key: str) -> Any:
    value = run.get(section)
    return value.get(key) if isinstance(value, dict) else value


def _numbers(name: str, interval: statistics.Interval) -> LongRow:
    return {f"{name}_mean": interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _ratio(ours: Sequence[Record], theirs: Sequence[Record], key: str) -> float | None:
    """What ours spent in training for each unit of theirs; None where theirs spent nothing."""
    spent = [sum(record.result["budget"].get(key, 0) for record in seeds) for seeds in (ours, theirs)]
    return spent[0] / spent[1] if spent[1] else None


def comparison_table(rows: Sequence[LongRow]) -> Table:
    """A line an environment and opponent; bold where a difference is shown."""
    tasks = "" if rows[0]["group"] == "all" else f", {rows[0]['group']} tasks"
    cells = [_cells(row) for row in rows]
    return table(
        f"{rows[0]['method']} against stored runs, tier {rows[0]['tier']}{tasks}",
        [Column(name, right=name not in ("env", "against", "verdict")) for name in cells[0]],
        cells,
        "test success of the last checkpoint, 95 % intervals over common seeds; difference: paired by seed and "
        "task; P(>): probability that a seed of ours scores above one of theirs; p: paired t-test over seeds, "
        f"Holm-corrected over this table; {shown.NOTE}; x: what training spent, ours / theirs",
    )


def _cells(row: LongRow) -> Row:
    texts = {
        "env": row["env"],
        "against": row["label"],
        "seeds": str(row["pairs"]),
        "ours": _bounds(row, "ours"),
        "theirs": _bounds(row, "theirs"),
        "difference": _bounds(row, "difference", "+"),
        "P(>)": _short(row["probability_of_improvement"]),
        "p": _short(row["p_holm"]),
        "rollouts x": _short(row["budget_rollouts"]),
        "tokens x": _short(row["budget_generated"]),
        shown.WOULD_SHOW: shown.would_show(row),
        "verdict": shown.verdict(row),
    }
    return {name: Cell(text, bold=shown.is_shown(row)) for name, text in texts.items()}


def _bounds(row: LongRow, name: str, sign: str = "") -> str:
    mean, low, high = (row[f"{name}_{part}"] for part in INTERVAL)
    if mean is None:
        return "no run"
    if low is None:
        return f"{mean:{sign}.3f}"
    return f"{mean:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}" if 0 < value < 0.01 else f"{value:.2f}"
