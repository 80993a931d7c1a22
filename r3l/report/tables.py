"""A table from its config: which runs it shows, their rows, the printed table, and the files of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from r3l.config import is_own, variant
from r3l.core.errors import ConfigError
from r3l.report import published
from r3l.report.frame import Bench
from r3l.report.measures import COLUMNS as MEASURE_COLUMNS
from r3l.report.measures import measure_rows
from r3l.report.paper_table import paper_table
from r3l.report.published import Reference
from r3l.report.scores import SCORES, published_rows, score_rows
from r3l.report.table import Table, as_stored
from r3l.workflow.plan import TableConfig, WorkflowConfig


@dataclass(frozen=True)
class Selection:
    """Environments, methods and runs (their evaluation.json files) that the user names in a command.

    ``envs`` or ``methods`` None: the command names none, so a table shows its default ones.
    """

    envs: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    runs: Sequence[Path] = ()

    def of(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``runs`` in the named environments, by the named methods; all where none is named."""
        in_env = True if self.envs is None else runs.env.isin(self.envs)
        by_method = True if self.methods is None else runs.method.isin(self.methods)
        # All seeds are >= 0: a mask of all rows, where neither is named.
        return runs[(runs.seed >= 0) & in_env & by_method]


def selected(
    runs: pd.DataFrame, table: TableConfig, config: WorkflowConfig, selection: Selection
) -> tuple[pd.DataFrame, list[str]]:
    """The runs that ``table`` shows, and the methods that are its rows.

    Runs are of its environments and methods, or of the ones in ``selection``. A run whose file the command
    names is shown too, unless the command names other environments or methods. The user's own environments
    are added if the table lists none, the user's own methods if its key ``own`` is true. A table of published
    numbers shows all ``runs`` and has no rows of methods; for such a table it raises ConfigError if
    ``selection`` names environments.

    Rows are the methods in ``selection``, if it names any; otherwise the table's methods that are planned or
    have run, in its order, then others in the runs, by name.
    """
    if table.kind == "published":
        if selection.envs is not None:
            raise ConfigError(f"--env: {table.table} is about the published numbers; leave the option out")
        return runs, []
    envs = {*(config.columns(table) if selection.envs is None else selection.envs)}
    sets = [config.question_sets(table, env).values() for env in envs & {*table.question_sets}]
    envs = envs.union(*sets)
    methods = {*table.methods, *(config.methods or [])} if selection.methods is None else selection.methods

    # For a score on a question set `env` is the set, which is no environment of the user's.
    in_env = runs.env.isin(envs)
    by_method = runs.method.isin(methods)
    named = runs.path.isin(selection.runs) if selection.runs else False
    if selection.envs is None:
        in_env |= named
        own = [env for env in {*runs.env} - envs if is_own("envs", env)] if not table.envs else []
        if own:
            in_env |= runs.env.isin(own) & (runs.run_dir == runs.path.map(attrgetter("parent")))
    if selection.methods is None:
        others = {*runs.method} - {*methods} if table.own else set()
        own = [name for name in others if is_own("methods", variant(name).method)]
        by_method |= named | runs.method.isin(own)
    shown = runs[in_env & by_method]
    if selection.methods is not None:
        return shown, list(selection.methods)
    have_run = set(shown.method)
    known = have_run.union(config.rows(table))
    rows = [method for method in table.methods if method in known]
    return shown, [*rows, *sorted(have_run - {*table.methods})]


@dataclass(frozen=True)
class ReportTable:
    """A table that is ready to be printed and written: r3l.report.table.write takes ``flat`` and ``printed``.

    ``rows``: one for each environment, method and task group or measure (r3l.report.scores.as_rows).
    ``flat``: the same as in the csv file.
    """

    rows: pd.DataFrame
    flat: list[dict[str, Any]]
    printed: Table


def build(
    config: TableConfig,
    runs: pd.DataFrame,
    methods: Sequence[str],
    seeds_planned: int,
    tier: str,
    benches: Sequence[Bench] = (),
    empty: bool = False,
) -> ReportTable:
    """Build the table that ``config`` describes from the runs that exist.

    ``methods``: its rows, unless it lists published numbers. ``seeds_planned``: a cell with fewer seeds says
    so. ``tier``: tier of the table if there are no runs. ``benches``: planned (tier, environment, model),
    which get rows even without runs. ``empty``: also print rows and columns without runs. Raises
    ConfigError for an unknown published table or measure.
    """
    rows = table_rows(config, runs, methods, seeds_planned, tier, benches)
    # Only published numbers of the same metrics are printed with the rows.
    numbers = published.load(config.published)
    columns: Sequence[str] = SCORES
    if config.kind == "measures":
        numbers = [number for number in numbers if number.metric in config.measures]
        columns = MEASURE_COLUMNS
    elif config.kind == "scores":
        numbers = [number for number in numbers if number.metric in published.SCORES]
    printed = paper_table(config.title, rows, numbers, config.measures, empty)
    return ReportTable(rows, as_stored(rows, columns), printed)


def table_rows(
    config: TableConfig,
    runs: pd.DataFrame,
    methods: Sequence[str],
    seeds_planned: int,
    tier: str,
    benches: Sequence[Bench] = (),
) -> pd.DataFrame:
    """The rows of the table that ``config`` describes; arguments and errors as in :func:`build`."""
    reference = Reference(published.load(config.published), config.published_as)
    title = config.title
    runs = runs.assign(env=runs.env.replace(config.benchmarks)) if config.benchmarks else runs
    benches = [(tier, config.benchmarks.get(env, env), model) for tier, env, model in benches]
    if config.kind == "measures":
        return measure_rows(runs, methods, config.measures, seeds_planned, title, reference, benches)
    if config.kind == "published":
        return published_rows(runs, reference, tier, seeds_planned, title, config.reason)
    return score_rows(runs, methods, config.baseline, seeds_planned, title, reference, benches)
