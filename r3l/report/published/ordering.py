"""Does our order of methods agree with the published one? Kendall's tau-b over the methods that both have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.report.labels import env_label
from r3l.report.published import Published, Reference
from r3l.report.records import Record, by_method
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Row, Table, table

BACKBONE = "Qwen2.5-1.5B-Instruct"  # the smallest model of the paper


def ordering(records: Sequence[Record], reference: Reference, backbone: str = BACKBONE) -> list[LongRow]:
    """One row a (tier, env, model) with at least two methods that ``backbone`` has in ``reference``.

    Ours is the mean over seeds of the published metric: success, or reward where that was published. Raises DataError
    where no environment has two such methods.
    """
    rows = [
        row
        for bench in sorted({record.bench for record in records})
        if (row := _row([record for record in records if record.bench == bench], reference, backbone))
    ]
    if not rows:
        raise DataError(
            f"no environment has two methods with a published score of {backbone}; evaluate more methods, "
            "or name another folder with --results"
        )
    return rows


def _row(records: Sequence[Record], reference: Reference, backbone: str) -> LongRow | None:
    first = records[0]
    benchmark = env_label(first["env"])
    ours: dict[str, list[float]] = {}
    theirs: dict[str, Published] = {}
    for seeds in by_method(records).values():
        label = seeds[0]["method_label"]
        if published := reference.score(backbone, benchmark, label):
            theirs[label] = published
            ours[label] = [float(record["groups"]["all"][published.metric]) for record in seeds]
    if len(ours) < 2:
        return None
    published_scores = [float(row.value) for row in theirs.values()]
    tau = statistics.rank_correlation(list(ours.values()), published_scores, np.random.default_rng(0))
    return {
        **dict(zip(("tier", "env", "model"), first.bench, strict=True)),
        "metric": next(iter(theirs.values())).metric,
        "backbone": backbone,
        "methods": len(ours),
        "seeds_least": min(len(values) for values in ours.values()),
        "seeds_most": max(len(values) for values in ours.values()),
        "our_order": _order({label: float(np.mean(values)) for label, values in ours.items()}),
        "paper_order": _order({label: float(row.value) for label, row in theirs.items()}),
        "tau": round(tau.mean, 3),
        "low": None if tau.low is None else round(tau.low, 3),
        "high": None if tau.high is None else round(tau.high, 3),
        "interval": tau.kind,
    }


def _order(scores: dict[str, float]) -> str:
    """``A 0.900 > B = C 0.800``: the best first."""
    best_first = sorted(scores, key=lambda label: (-round(scores[label], 4), label))
    ranks = [list(same) for _, same in groupby(best_first, key=lambda label: round(scores[label], 4))]
    return " > ".join(f"{' = '.join(same)} {scores[same[0]]:.3f}" for same in ranks)


def ordering_table(rows: Sequence[LongRow]) -> Table:
    """A line an environment."""
    cells = [_cells(row) for row in rows]
    return table(
        f"Order of methods: ours, and the paper's for {rows[0]['backbone']}",
        [Column(name, right=name in ("methods", "tau")) for name in cells[0]],
        cells,
        "tau-b: 1 the same order, 0 none in common, -1 the reverse, over methods that both have; with four "
        "methods even a random order reaches 1 once in 24 times. No model of the nano tier is one of the paper's, and "
        "its tasks are others: agreement supports the method, disagreement need not refute it. Published scores are "
        "single runs (sources: `r3l table published`)",
    )


def _cells(row: LongRow) -> Row:
    texts = {
        "environment": f"{row['tier']}/{row['env']}/{row['model']}, {row['metric']}",
        "methods": str(row["methods"]),
        "seeds": "-".join(map(str, sorted({row["seeds_least"], row["seeds_most"]}))),
        "tau": f"{row['tau']:+.2f}",
        "95 % interval": ("" if row["low"] is None else f"[{row['low']}, {row['high']}] ") + row["interval"],
        "ours": row["our_order"],
        "paper": row["paper_order"],
    }
    return {name: Cell(text) for name, text in texts.items()}
