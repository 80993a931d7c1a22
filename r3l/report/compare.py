"""A method against others, seed by seed: scores, paired difference, budget, and what else differs between the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from r3l.config import hashed, variant
from r3l.config.user_code import changed_files, user_code
from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.report.feedback import is_taught
from r3l.report.labels import method_label
from r3l.report.paired import MDE, MDE_NOTE, Difference, corrected, mde, p_cell, paired, verdict
from r3l.report.records import Record, by_method, groups, pairs, scores_S_T
from r3l.report.rows import interval_columns
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS

BUDGET = {"rollouts": "rollouts", "env_steps": "env_steps", "generated": GENERATED_TOKENS, "trained": TRAINED_TOKENS}
# Of a run, beside its method.
SETTINGS = ("prompts", "samples", "train", "sampling", "evaluation", "judge", "env_settings")
WRITERS = {"self": "the model itself", "environment": "the environment's critic"}


@dataclass(frozen=True)
class Comparison:
    """``method`` and ``against`` in one (tier, env, model), over the seeds that both have; None: they have none.

    ``budget``: what the training of ``method`` spent for each unit that the other spent, by BUDGET. ``warnings``: what
    differs between the runs beside the method.
    """

    tier: str
    env: str
    model: str
    method: str
    group: str
    against: str
    label: str
    ours: Interval | None = None
    theirs: Interval | None = None
    difference: Difference | None = None
    budget: Mapping[str, float | None] | None = None
    warnings: Sequence[str] = ()

    @property
    def pairs(self) -> int:
        """The seeds that both have."""
        return self.difference.pairs if self.difference else 0

    @property
    def verdict(self) -> str:
        return verdict(self.difference)

    def flat(self) -> dict[str, Any]:
        values = vars(self) | interval_columns(self.ours, "ours_") | interval_columns(self.theirs, "theirs_")
        if self.difference:
            values |= interval_columns(self.difference.interval, "difference_") | self.difference.columns()
        values |= {f"budget_{key}": value for key, value in (self.budget or {}).items()}
        columns = {key: values.get(key) for key in (*PLACE, *NUMBERS)}
        return columns | {"pairs": self.pairs, "verdict": self.verdict, "warnings": list(self.warnings)}


PLACE = ("tier", "env", "model", "method", "group", "against", "label")
NUMBERS = (
    *(f"{name}_{part}" for name in ("ours", "theirs", "difference") for part in ("mean", "low", "high")),
    *("probability_of_improvement", "p_value", "p_holm", "spread", "mde", "mde_holm"),
    *(f"budget_{name}" for name in BUDGET),
)


def compare(records: Sequence[Record], method: str, against: Sequence[str], group: str = "all") -> list[Comparison]:
    """A row an environment and opponent: ``method`` minus opponent over the seeds that both have.

    ``group``: of the task_set's tasks (easy, hard, all). Raises DataError where there is no run of ``method``, and
    where an environment's task set has no such group.
    """
    rows: list[Comparison] = []
    for bench in sorted({record.bench for record in records if record.method == method}):
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
    differences = corrected(row.difference for row in rows)
    return [replace(row, difference=difference) for row, difference in zip(rows, differences, strict=True)]


def _row(ours: list[Record], theirs: list[Record], other: str, group: str) -> Comparison:
    common, twins = pairs(ours, theirs)
    label = theirs[0].method_label if theirs else method_label(other)
    place = Comparison(*ours[0].bench, ours[0].method, group, other, label)
    if not common:
        return place
    a, b = scores_S_T(common, group), scores_S_T(twins, group)
    return replace(
        place,
        ours=statistics.interval(a),
        theirs=statistics.interval(b),
        difference=paired(a, b),
        budget={name: _ratio(common, twins, key) for name, key in BUDGET.items()},
        warnings=setting_warnings(common[0], twins[0]),
    )


def setting_warnings(ours: Record, theirs: Record) -> list[str]:
    """Settings beside the method in which the two runs differ (they would be compared too)."""
    a, b = (hashed(record.manifest["run"]) for record in (ours, theirs))
    texts = [
        f"{section}.{key} is {_of(a, section, key)!r} here and {_of(b, section, key)!r} there"
        for section in SETTINGS
        for key in sorted(_keys(a.get(section)) | _keys(b.get(section)))  # a run may be older than a section
        if _of(a, section, key) != _of(b, section, key)
    ]
    edited = [text for record, run in ((ours, a), (theirs, b)) for text in _code_warnings(record, run)]
    conditions = _player_warnings(ours, theirs) + _teacher_warnings(ours, theirs)
    return [text.replace(".value is", " is") for text in texts] + conditions + edited


def _code_warnings(record: Record, run: Mapping[str, Any]) -> list[str]:
    """Where the user's own code is no longer that of a run."""
    recorded = run.get("own_code", {})
    changed = changed_files(recorded, user_code(record.env, variant(record.method).method)) if recorded else []
    return [f"code changed since {record.method} seed {record.seed}: {', '.join(changed)}"] if changed else []


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


def _ratio(ours: Sequence[Record], theirs: Sequence[Record], key: str) -> float | None:
    """What ours spent in training for each unit of theirs; None where theirs spent nothing."""
    spent = [sum(record.result["budget"].get(key, 0) for record in seeds) for seeds in (ours, theirs)]
    return spent[0] / spent[1] if spent[1] else None


def comparison_table(rows: Sequence[Comparison]) -> Table:
    """A line an environment and opponent; the verdict is bold where a difference is significant."""
    tasks = "" if rows[0].group == "all" else f", {rows[0].group} tasks"
    columns = [
        Column("env"),
        Column("against", lambda row: row.label),
        Column("seeds", lambda row: row.pairs, "d"),
        Column("ours", lambda row: _bounds(row.ours), right=True),
        Column("theirs", lambda row: _bounds(row.theirs), right=True),
        Column("difference", lambda row: _bounds(row.difference and row.difference.interval, "+"), right=True),
        Column(
            "P(>)", lambda row: _short(row.difference and row.difference.probability_of_improvement), right=True, drop=3
        ),
        Column("p", lambda row: p_cell(row.difference and row.difference.p_holm), right=True, drop=1),
        Column("rollouts x", lambda row: _short(row.budget and row.budget["rollouts"]), right=True, drop=5),
        Column("tokens x", lambda row: _short(row.budget and row.budget["generated"]), right=True, drop=4),
        Column(MDE, lambda row: mde(row.difference), right=True, drop=2),
        Column("verdict", _verdict),
    ]
    return table(
        f"{rows[0].method} against stored runs, tier {rows[0].tier}{tasks}",
        columns,
        rows,
        "test success of the last checkpoint, 95 % intervals over common seeds; difference: paired by seed and "
        "task; P(>): probability that a seed of ours scores above one of theirs; p: paired t-test over seeds, "
        f"Holm-corrected over this table; {MDE_NOTE}; x: what training spent, ours / theirs",
    )


def _verdict(row: Comparison) -> Cell:
    """Without the number of seeds, which has a column."""
    return Cell(row.verdict.partition(" (")[0], bold=bool(row.difference and row.difference.significant))


def _bounds(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return "no run"
    if interval.low is None:
        return f"{interval.mean:{sign}.3f}"
    return f"{interval.mean:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
