"""A table from its config: which runs it shows, their rows, the printed table, and the files of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from r3l.config import is_own, variant
from r3l.core.errors import ConfigError
from r3l.report import measures, paper_table, published, scores
from r3l.report.full_table import full_table
from r3l.report.published import Published, Reference
from r3l.report.records import Bench, Record, renamed
from r3l.report.render import to_terminal
from r3l.report.rows import Row, write
from r3l.report.table import Table
from r3l.runs.run_paths import run_dir_of
from r3l.workflow.plan import TableConfig, WorkflowConfig


@dataclass(frozen=True)
class Asked:
    """What a command names: environments, methods, runs (evaluation.json files). None: those of the table."""

    envs: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    runs: Sequence[Path] = ()

    def narrowed(self, records: Sequence[Record]) -> list[Record]:
        """Those of ``records`` whose environment and method are asked for."""
        return [
            record
            for record in records
            if (self.envs is None or record.env in self.envs)
            and (self.methods is None or record.method in self.methods)
        ]


def selected(records: Sequence[Record], table: TableConfig, config: WorkflowConfig, asked: Asked) -> list[Record]:
    """The runs of ``table``. A run that is named is shown whatever it is, unless ``asked`` is narrower.

    An environment of the user's own is in every table that is about no particular ones, a method of the user's own in
    those with the key ``own``.
    """
    if asked.envs is not None and table.kind == "published":
        raise ConfigError(f"--env: {table.table} is about the published numbers; leave the option out")
    if table.kind == "published":
        return list(records)
    envs = list(asked.envs if asked.envs is not None else config.columns(table))
    methods = set(asked.methods if asked.methods is not None else [*table.methods, *config.rows(table)])
    sets = {name for env in envs if env in table.question_sets for name in config.question_sets(table, env).values()}

    def fits(record: Record) -> bool:
        named, env, method = record.path in asked.runs, record.env, record.method
        own_env = not table.envs and _is_own_env(record)
        in_env = env in {*envs, *sets} or (asked.envs is None and (named or own_env))
        own_method = table.own and is_own("methods", variant(method).method)
        return in_env and (method in methods or (asked.methods is None and (named or own_method)))

    return [record for record in records if fits(record)]


def methods_of(records: Sequence[Record], table: TableConfig, config: WorkflowConfig, asked: Asked) -> list[str]:
    """The methods of a table with these runs: those of ``asked``; else the table's own first, then others by name."""
    if asked.methods is not None:
        return list(asked.methods)
    run, planned = {record.method for record in records}, config.rows(table)
    return [*(m for m in table.methods if m in run or m in planned), *sorted(run - {*table.methods})]


def _is_own_env(record: Record) -> bool:
    """Of a score on a question set ``env`` is that set."""
    return run_dir_of(record.path) == record.path.parent and is_own("envs", record.env)


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
        return paper_table.printed(self.config.title, self.rows, self.beside, self.config.measures, self.empty)

    def to_terminal(self) -> RenderableType:
        """The printed table, and for scores every row, if there is a run."""
        shown = to_terminal(self.printed)
        detailed = self.config.kind == "scores" and any(row.seeds_done for row in self.rows)
        return Group(shown, "", to_terminal(full_table(self.rows))) if detailed else shown

    def flat(self) -> list[dict[str, Any]]:
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
