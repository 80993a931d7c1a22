"""What a figure shows: the runs of one tier by environment and method, in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from r3l.core.errors import DataError
from r3l.report.labels import env_label
from r3l.report.records import Record, by_method
from r3l.workflow.plan import TableConfig


@dataclass(frozen=True)
class Bench:
    """The runs of one environment: methods in the order of the figure, seeds in order."""

    env: str
    label: str
    runs: dict[str, list[Record]]

    def records(self) -> list[Record]:
        return [record for seeds in self.runs.values() for record in seeds]

    def labels(self) -> dict[str, str]:
        return {method: seeds[0].method_label for method, seeds in self.runs.items()}


@dataclass(frozen=True)
class Shown:
    """The environments of a figure, by name, and the table whose runs they are."""

    benches: list[Bench]
    table: TableConfig

    def records(self) -> Iterator[Record]:
        return (record for bench in self.benches for record in bench.records())

    def labels(self) -> dict[str, str]:
        """The label of each method, in the order of the figure."""
        labels = {record.method: record.method_label for record in self.records()}
        return {method: labels[method] for method in _order(list(labels), self.table)}

    def only(self, keep: Callable[[Record], bool]) -> Shown:
        """The runs that ``keep`` accepts, without methods and environments that have none left."""
        benches = [
            replace(bench, runs={m: left for m, seeds in bench.runs.items() if (left := [*filter(keep, seeds)])})
            for bench in self.benches
        ]
        return replace(self, benches=[bench for bench in benches if bench.runs])


def select(records: Sequence[Record], table: TableConfig) -> Shown:
    """Runs by environment and method; those of ``table`` in its order, others after them by name.

    Raises DataError where there is no run, or where an environment has two tiers or models.
    """
    if not records:
        raise DataError(f"no run to draw; figures of {table.table} show {', '.join(table.methods)}: train some of them")
    by_bench: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        by_bench.setdefault(record.bench, []).append(record)
    if len({bench[0] for bench in by_bench}) > 1 or len({bench[1] for bench in by_bench}) < len(by_bench):
        listed = ", ".join("/".join(bench) for bench in sorted(by_bench))
        raise DataError(
            f"a figure shows one tier, and one model an environment; found {listed}; name the evaluation.json files"
        )
    return Shown([_bench(env, by_bench[tier, env, model], table) for tier, env, model in sorted(by_bench)], table)


def _bench(env: str, records: list[Record], table: TableConfig) -> Bench:
    methods = _order(list({record.method for record in records}), table)
    return Bench(env, env_label(env), by_method(records, methods))


def _order(methods: Sequence[str], table: TableConfig) -> list[str]:
    first = [method for method in table.methods if method in methods]
    return [*first, *sorted(set(methods) - set(first))]
