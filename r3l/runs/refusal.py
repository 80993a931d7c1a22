"""A step with a number that is not finite ends its run; the rows that it was to train on are kept for inspection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from r3l.config import Run
from r3l.core.batching import TrajectoryRow
from r3l.core.errors import NonFiniteError
from r3l.core.finite import check_finite
from r3l.files.json_files import rewrite_jsonl

BATCH = "refused_batch.jsonl.gz"  # in a run's directory: a line a row


@contextmanager
def keeping_batch(run: Run, step: int, folder: Path, rows: Sequence[TrajectoryRow]) -> Iterator[None]:
    """Update with ``rows`` in the block. They are checked first; refused, there or later, they are kept in ``folder``.

    Raises NonFiniteError naming method and step too.
    """
    try:
        for number, row in enumerate(rows):
            check_row(number, row)
        yield
    except NonFiniteError as error:
        file = folder / BATCH
        rewrite_jsonl(file, [_line(number, row) for number, row in enumerate(rows)])
        raise NonFiniteError(
            f"method {run.method}, step {step}: {error}. The step's rows are kept in {file}; checkpoints are those of "
            "earlier steps. Look there for the cause, then run again with a lower train.lr or a corrected method"
        ) from error


def check_row(number: int, row: TrajectoryRow) -> None:
    """Raises NonFiniteError naming row and task."""
    numbers = {
        "reward": row.trajectory.reward,
        "advantage": row.advantage,
        "token weight": row.weight,
        "log-prob of sampling": row.old_logprobs,
    }
    for name, values in numbers.items():
        check_finite(f"{name} of row {number} ({row.name})", values)


def _line(number: int, row: TrajectoryRow) -> dict[str, Any]:
    t = row.trajectory
    return {
        "row": number,
        "task": t.task.id,
        "kind": t.kind,
        "member": t.member,
        "attempt": t.attempt,
        "reward": t.reward,
        "advantage": np.asarray(row.advantage).tolist(),
        "ids": row.ids.tolist(),
        "mask": row.mask.tolist(),
        "weight": row.weight.tolist(),
        "old_logprobs": row.old_logprobs.tolist(),
    }
