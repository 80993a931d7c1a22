"""A table from its config: long rows, the printed layout, and the three files of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from r3l.report import benchmarks as benchmarks
from r3l.report import details, layout, measures, published, tables
from r3l.report.published import Reference
from r3l.report.records import Bench, Record
from r3l.workflow.plan import TableConfig

Row = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """``rows``: the long form, one row a number; ``printed``: the paper's layout."""

    config: TableConfig
    rows: list[Row]
    printed: layout.Layout

    def render(self) -> RenderableType:
        """For a terminal: the layout, and for scores every row, if there is a run."""
        shown = layout.to_terminal(self.printed)
        detailed = self.config.kind == "scores" and any(row["seeds_done"] for row in self.rows)
        return Group(shown, "", details.render(self.rows)) if detailed else shown

    def write(self, out: Path) -> None:
        """``out`` in its three forms (see :func:`write`)."""
        write(self.rows, self.printed, out)


def write(rows: Sequence[Row], printed: layout.Layout, out: Path) -> None:
    """``out`` as CSV (the long form), and beside it .tex and .md (the layout)."""
    tables.write_csv(rows, out)
    tables.write_out(layout.to_latex(printed), out.with_suffix(".tex"))
    tables.write_out(layout.to_markdown(printed), out.with_suffix(".md"))


def make(
    config: TableConfig,
    records: Sequence[Record],
    methods: Sequence[str],
    seeds_planned: int,
    tier: str,
    evaluations: Sequence[Path] = (),
    benches: Sequence[Bench] = (),
) -> Made:
    """The table that ``config`` describes, from whatever runs there are. ``tier``: whose it is where there are none.

    ``evaluations``: those of question sets, for tables of kind ``benchmarks``. ``benches``: planned beside the records.
    """
    beside = [row for name in config.published for row in published.of_table(name)]
    reference = Reference(beside, config.published_as)
    if config.kind == "measures":
        rows = measures.table(records, methods, config.measures, seeds_planned, config.title, reference, benches)
        beside = [row for row in beside if row.metric in config.measures]
    elif config.kind == "benchmarks":
        rows = benchmarks.table(evaluations, reference, config.sets, tier, config.title, config.reason)
    elif config.kind == "published":
        rows = tables.published_table(records, reference, tier, seeds_planned, config.title, config.reason)
    else:
        rows = tables.scores_table(records, methods, config.baseline, seeds_planned, config.title, reference, benches)
        beside = [row for row in beside if row.metric in published.SCORES]
    return Made(config, rows, layout.lay_out(config.title, rows, beside, config.measures))
