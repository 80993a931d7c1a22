"""The typed row of every table of scores: what one method scores in one environment. CSV files hold it flat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.files.writing import writable, write_text_atomic
from r3l.report.paired import paired_columns
from r3l.report.published import PublishedComparison
from r3l.report.render import to_csv, to_latex, to_markdown
from r3l.report.table import Table
from r3l.stats.comparison import Comparison, Effect
from r3l.stats.intervals import Interval

DIGITS = 4
CONSTANT_ANSWER, CONSTANT_ANSWER_LABEL = "constant_answer_baseline", "Constant answer"  # in place of a method
INTERVAL = ("mean", "low", "high", "interval")
PLACE = ("tier", "tier_label", "env", "model")
METHOD = ("method", "label", "feedback", "provenance", "measure")
# The columns of a table. ``outdated`` is empty: earlier versions named corrections of code there.
SCORES = (
    *("table", "baseline", *PLACE, "group", "task_set", "task_set_sha256", "warning", *METHOD, *INTERVAL),
    *("reward_mean", "seeds_done", "seeds_planned", "episodes", *(f"difference_{key}" for key in INTERVAL)),
    *("probability_of_improvement", "pairs", "p_value", "p_holm", "spread"),
    *("mde", "mde_holm", *PublishedComparison.COLUMNS, "parse_failure_rate", "truncation_rate"),
    *("rollouts", "env_steps", "generated_tokens", "trained_tokens", "outdated", "preregistration"),
)
MEASURES = (
    "table",
    *PLACE,
    *METHOD,
    "unit",
    *INTERVAL,
    "seeds_done",
    "seeds_planned",
    *PublishedComparison.COLUMNS,
    "outdated",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A number of one method in one environment, over its seeds; None: what does not exist.

    ``score``: of ``measure``, which is test success, or what training counted in ``unit``; None where nobody has run it
    or there was nothing to count. ``effect``: the paired difference to the table's ``baseline``, ``difference``:
    the same, judged among all of the table. ``paper``: the published number.
    ``group``: the test tasks it is over. Budgets are means of the training runs. ``preregistration``: the
    texts that they were made under. ``warning``: what a reader
    must know of the task set and the base checkpoint.
    """

    table: str = ""
    baseline: str | None = None
    tier: str
    tier_label: str | None = None
    env: str
    model: str
    group: str = "all"
    task_set: str | None = None
    task_set_sha256: str | None = None
    warning: str | None = None
    method: str
    label: str
    feedback: str | None = None
    provenance: str = "ours"
    measure: str = "success"
    unit: str | None = None
    score: Interval | None = None
    reward_mean: float | None = None
    seeds_done: int = 0
    seeds_planned: int = 0
    episodes: int = 0
    effect: Effect | None = None
    difference: Comparison | None = None
    paper: PublishedComparison
    parse_failure_rate: float | None = None
    truncation_rate: float | None = None
    rollouts: int | None = None
    env_steps: int | None = None
    generated_tokens: int | None = None
    trained_tokens: int | None = None
    preregistration: str | None = None

    @property
    def constant(self) -> bool:
        """Whether this is the best constant answer, and no method."""
        return self.method == CONSTANT_ANSWER

    def flat(self) -> dict[str, Any]:
        """One number a column, rounded."""
        values = vars(self) | interval_columns(self.score) | self.paper.columns()
        if self.difference is not None:
            values |= interval_columns(self.difference.effect.interval, "difference_")
            values |= paired_columns(self.difference)
        return {name: rounded(values.get(name)) for name in (SCORES if self.unit is None else MEASURES)}


def interval_columns(interval: Interval | None, prefix: str = "") -> dict[str, Any]:
    """The columns INTERVAL of an interval; none of no interval."""
    if interval is None:
        return {}
    values = (interval.mean, interval.low, interval.high, interval.kind)
    return {f"{prefix}{key}": value for key, value in zip(INTERVAL, values, strict=True)}


def rounded(value: Any) -> Any:
    """As tables store numbers."""
    return round(float(value), DIGITS) if isinstance(value, float) else value


def write_csv(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Atomic; raises RunDirectoryError naming the file where it cannot be written."""
    write_text(to_csv(rows), out)


def write_text(text: str, out: Path) -> None:
    """Atomic; raises RunDirectoryError naming the file where it cannot be written."""
    with writable(out):
        write_text_atomic(out, text)


def write(rows: Sequence[Mapping[str, Any]], table: Table, out: Path) -> None:
    """``out`` as CSV (the long form), and beside it .tex and .md (the printed table)."""
    write_csv(rows, out)
    write_text(to_latex(table), out.with_suffix(".tex"))
    write_text(to_markdown(table), out.with_suffix(".md"))
