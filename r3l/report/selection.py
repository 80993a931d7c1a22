"""Which runs a table or a figure shows, and in which order, of all that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r3l.config import is_own, variant
from r3l.core.errors import ConfigError
from r3l.report.records import Record
from r3l.runs.places import run_dir_of
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


def rows(records: Sequence[Record], table: TableConfig, config: WorkflowConfig, asked: Asked) -> list[str]:
    """The methods of a table with these runs: those of ``asked``; else the table's own first, then others by name."""
    if asked.methods is not None:
        return list(asked.methods)
    run, planned = {record.method for record in records}, config.rows(table)
    return [*(m for m in table.methods if m in run or m in planned), *sorted(run - {*table.methods})]


def _is_own_env(record: Record) -> bool:
    """Of a score on a question set ``env`` is that set."""
    return run_dir_of(record.path) == record.path.parent and is_own("envs", record.env)
