"""A table from its config: long rows, the printed table, and the three files of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from r3l.report import layout, measures, published, scores
from r3l.report.published import Published, Reference
from r3l.report.records import Bench, Record, renamed
from r3l.report.render import to_terminal
from r3l.report.rows import Row, write
from r3l.report.table import Table
from r3l.workflow.plan import TableConfig


@dataclass(frozen=True)
class ReportTable:
    """``rows``: the long form, one row a number; ``beside``: the published numbers of the same kind.

    ``empty``: what has no run is printed too.
    """

    config: TableConfig
    rows: list[Row]
    beside: list[Published]
    empty: bool = False

    @cached_property
    def printed(self) -> Table:
        """As papers print it."""
        return layout.printed(self.config.title, self.rows, self.beside, self.config.measures, self.empty)

    def to_terminal(self) -> RenderableType:
        """The printed table, and for scores every row, if there is a run."""
        shown = to_terminal(self.printed)
        detailed = self.config.kind == "scores" and any(row.seeds_done for row in self.rows)
        return Group(shown, "", to_terminal(layout.details(self.rows))) if detailed else shown

    def flat(self) -> list[dict[str, Any]]:
        """The long rows, one number a column."""
        return [row.flat() for row in self.rows]

    def write(self, out: Path) -> None:
        """``out`` as CSV, and beside it .tex and .md."""
        write(self.flat(), self.printed, out)


def build(
    config: TableConfig,
    records: Sequence[Record],
    methods: Sequence[str],
    seeds_planned: int,
    tier: str,
    benches: Sequence[Bench] = (),
) -> ReportTable:
    """The table that ``config`` describes, from whatever runs there are. ``tier``: whose it is where there are none.

    ``benches``: planned beside the records.
    """
    beside = [row for name in config.published for row in published.of_table(name)]
    reference = Reference(beside, config.published_as)
    records = renamed(records, config.benchmarks)
    benches = [(tier, config.benchmarks.get(env, env), model) for tier, env, model in benches]
    if config.kind == "measures":
        rows = measures.measure_rows(records, methods, config.measures, seeds_planned, config.title, reference, benches)
        beside = [row for row in beside if row.metric in config.measures]
    elif config.kind == "published":
        rows = scores.published_rows(records, reference, tier, seeds_planned, config.title, config.reason)
    else:
        rows = scores.score_rows(records, methods, config.baseline, seeds_planned, config.title, reference, benches)
        beside = [row for row in beside if row.metric in published.SCORES]
    return ReportTable(config, rows, beside)
