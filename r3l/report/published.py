"""Published results as data, and ours compared with them.

They are in results/stored/published/*.csv, one file per family of tables. A quantity is what a number
measures: (backbone, benchmark, method, setting, metric). ``setting`` is empty for the paper's default (alpha
3, N = 8, S = 1, one retry, answers in <answer> tags). Where it changes one of our settings it uses our
words, so that ``R3L`` with ``alpha=5`` is our ``r3l@alpha=5``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from r3l.core.errors import DataError, check_known
from r3l.files.csv_files import read_csv
from r3l.files.paths import PUBLISHED
from r3l.report.labels import backbone
from r3l.stats.comparison import Verdict, interval_verdict
from r3l.stats.intervals import Interval

SCORES = ("success", "reward")  # a share of solved tasks; a mean of rewards in [0, 1] with partial credit
Quantity = tuple[str, str, str, str, str]


class Published(BaseModel):
    """One published number, with the digits it was printed with."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    table: str = Field(min_length=1)
    backbone: str = Field(min_length=1)
    benchmark: str = Field(min_length=1)
    method: str = Field(min_length=1)
    setting: str
    metric: str = Field(min_length=1)
    unit: Literal["share", "turns", "tokens", "s", "points"]
    value: Decimal = Field(ge=0)
    n: Annotated[int | None, BeforeValidator(lambda text: text or None)] = Field(
        ge=1, description="stated size of the test set; empty: unknown, or not what is counted"
    )
    source: str = Field(min_length=1)
    source_kind: Literal["paper", "author response", "rebuttal", "third party"]
    note: str

    @model_validator(mode="after")
    def _check_share(self) -> Published:
        if self.unit == "share" and self.value > 1:
            raise ValueError(f"value {self.value} is above 1; write shares as fractions")
        return self

    @property
    def quantity(self) -> Quantity:
        """The identity of what is measured; several sources may give it different values."""
        return self.backbone, self.benchmark, self.method, self.setting, self.metric

    @property
    def label(self) -> str:
        """Method and setting, as our own tables name a variant."""
        return f"{self.method} ({self.setting})" if self.setting else self.method


def load(folder: Path = PUBLISHED) -> list[Published]:
    """Read every published number. Raises DataError naming file, line, column, value and fix."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise DataError(f"no published results under {folder}; restore its csv files from git")
    seen: dict[tuple[str, Quantity], str] = {}
    rows = []
    for path in files:
        for where, row in read_csv(path, Published):
            key = (row.table, row.quantity)
            if key in seen:
                quantity = "/".join(row.quantity)
                raise DataError(f"{where}: {row.table} has {quantity} already in {seen[key]}; keep one")
            seen[key] = where
            rows.append(row)
    return rows


def in_file(name: str, folder: Path = PUBLISHED) -> Sequence[tuple[str, Published]]:
    """The numbers of one file, each with its file and line (``main.csv, line 3``).

    Raises DataError if there is no such file.
    """
    path = folder / name
    if not path.is_file():
        names = ", ".join(sorted(file.name for file in folder.glob("*.csv")))
        raise DataError(f"{path} is not a file; name one of {names}")
    return [(where.removeprefix(f"{folder}/"), row) for where, row in read_csv(path, Published)]


def of_table(name: str, rows: Sequence[Published] | None = None) -> list[Published]:
    """The numbers of one published table. Raises ConfigError if there is no table of this name."""
    rows = load() if rows is None else rows
    of_name = [row for row in rows if row.table == name]
    if not of_name:
        check_known("published table", name, {row.table for row in rows})
    return of_name


class Reference:
    """Published numbers to compare a table of ours with, looked up by model, benchmark and label.

    ``names`` maps a method of ours to its published name, if that is not our label. A variant keeps its
    setting: ``grpo_amplified@train.sync_interval=5`` is looked up as ``GRPO+Positive
    (train.sync_interval=5)``, unless it has a name of its own.
    """

    def __init__(self, rows: Sequence[Published] = (), names: Mapping[str, str] | None = None) -> None:
        self.rows = list(rows)
        self.names = dict(names or {})
        self._by_label = {(row.backbone, row.benchmark, row.label, row.metric): row for row in rows}

    def label(self, method: str, label: str) -> str:
        """The published name of our ``method``, whose label is ``label``."""
        name, _, changes = method.partition("@")
        if method in self.names:
            return self.names[method]
        return f"{self.names[name]} ({changes.replace(',', ', ')})" if name in self.names else label

    def get(self, model: str, benchmark: str, label: str, *metrics: str) -> Published | None:
        """The published number of the first of ``metrics`` that has one, or None.

        ``label``: published name of the method, with its setting in brackets (:meth:`label`). Default
        metrics: the score, which is success, or reward with partial credit.
        """
        keys = ((backbone(model), benchmark, label, metric) for metric in metrics or SCORES)
        return next((self._by_label[key] for key in keys if key in self._by_label), None)


PaperVerdict = Literal["within interval", "outside", "not comparable", "incomplete"]
PAPER_COLUMNS = ("paper", "paper_metric", "paper_difference", "verdict", "verdict_reason")


def paper_columns(
    verdict: PaperVerdict, reason: str, number: Published | None = None, difference: float | None = None
) -> dict[str, Any]:
    """The columns PAPER_COLUMNS of a row: the published ``number``, our ``difference`` to it, and the verdict.

    ``difference``: our mean minus the published number, None if they are not compared. ``reason``: the kind
    of interval, or why there is no verdict.
    """
    value, metric = (float(number.value), number.metric) if number else (None, None)
    return dict(zip(PAPER_COLUMNS, (value, metric, difference, verdict, reason), strict=True))


def against(
    number: Published | None, tier: str, measured: Interval, done: int, planned: int
) -> dict[str, Any]:
    """Compare our interval, in the published metric, with the published number, over ``done`` seeds.

    "within interval" and "outside" are what tables print for a number that our interval contains
    (:attr:`Verdict.INCONCLUSIVE`) or does not (ahead or behind).
    """
    if tier != "paper":
        return paper_columns("not comparable", f"{tier} tier: neither the paper's models nor its games")
    if number is None:
        return paper_columns("not comparable", "the paper has no such number")
    difference = measured.mean - float(number.value)
    if done < planned:
        return paper_columns("incomplete", f"{done} of {planned} seeds", number, difference)
    match interval_verdict(measured, float(number.value)):
        case Verdict.INCOMPLETE:
            reason = "under three seeds there is no interval"
            return paper_columns("incomplete", reason, number, difference)
        case Verdict.INCONCLUSIVE:
            return paper_columns("within interval", measured.kind, number, difference)
        case _:
            return paper_columns("outside", measured.kind, number, difference)
