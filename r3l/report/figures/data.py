"""The runs that a figure shows: of one tier, by environment and method, in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from r3l.core.errors import DataError
from r3l.report.frame import all_tasks, by_bench, by_method
from r3l.report.labels import env_label
from r3l.workflow.plan import TableConfig


@dataclass(frozen=True)
class Bench:
    """The runs of one environment in a figure.

    ``label``: the environment's printed name. ``rows``: one for each run and task group (r3l.report.frame).
    ``order``: the figure's methods, in order.
    """

    env: str
    label: str
    rows: pd.DataFrame
    order: Sequence[str]

    @cached_property
    def runs(self) -> dict[str, pd.DataFrame]:
        """The runs on all test tasks, by method in the figure's order: a frame with a row for each seed."""
        present = set(self.rows.method)
        return by_method(all_tasks(self.rows), [method for method in self.order if method in present])

    def labels(self) -> dict[str, str]:
        """The printed name of each method that has runs here, in the figure's order."""
        return {method: seeds.iloc[0].label for method, seeds in self.runs.items()}


@dataclass(frozen=True)
class Shown:
    """The content of a figure: runs by environment, and the table that gives their order."""

    benches: list[Bench]
    table: TableConfig

    @cached_property
    def runs(self) -> pd.DataFrame:
        """All runs of the figure on all test tasks, one row each."""
        return pd.concat([seeds for bench in self.benches for seeds in bench.runs.values()])

    def labels(self) -> dict[str, str]:
        """The printed name of each method, in the order of the figure."""
        labels = {method: label for bench in self.benches for method, label in bench.labels().items()}
        order = self.benches[0].order if self.benches else []
        return {method: labels[method] for method in order if method in labels}

    def only(self, keep: Callable[[Any], bool]) -> Shown:
        """The figure with only the rows that ``keep`` accepts; drops empty methods and environments.

        ``keep`` gets a row's env, method, seed, steps and path.
        """
        benches = []
        for bench in self.benches:
            named = bench.rows[["env", "method", "seed", "steps", "path"]]  # of all columns it takes seconds
            benches.append(replace(bench, rows=bench.rows[[keep(row) for row in named.itertuples()]]))
        return replace(self, benches=[bench for bench in benches if len(bench.rows)])


def select(runs: pd.DataFrame, table: TableConfig) -> Shown:
    """The content of a figure of ``runs`` (r3l.report.frame), by environment and method.

    Methods of ``table`` come first, in its order; others follow by name. Raises DataError if there is no
    run, if the runs are of several tiers, or if those of one environment are of several models.
    """
    if not len(runs):
        raise DataError(
            f"no run to draw; figures of {table.table} show {', '.join(table.methods)}: train some of them"
        )
    of_benches = by_bench(runs)
    if len({tier for tier, _, _ in of_benches}) > 1 or len({env for _, env, _ in of_benches}) < len(
        of_benches
    ):
        listed = ", ".join("/".join(bench) for bench in of_benches)
        raise DataError(
            f"a figure shows one tier, and one model an environment; found {listed}; name the "
            "evaluation.json files"
        )
    present = set(runs.method)
    order = [method for method in table.methods if method in present]
    order += sorted(present - {*order})
    return Shown([Bench(env, env_label(env), rows, order) for (_, env, _), rows in of_benches.items()], table)
