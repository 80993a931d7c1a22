"""Out of GPU memory: the error names the setting to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from r3l.core.errors import EngineError

SAMPLING_REMEDY = "lower sampling.tokens_per_batch; if that does not help, train.tasks_per_step or sampling.max_context"
TRAINING_REMEDY = "lower train.tokens_per_microbatch, or set train.gradient_checkpointing=true"


@contextmanager
def out_of_memory_explained(doing: str, remedy: str) -> Iterator[None]:
    """Turns torch's out-of-memory error into an EngineError that says what to set."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(".")[0]
        raise EngineError(
            f"out of GPU memory {doing} ({reason}); {remedy} (--set KEY=VALUE). `r3l doctor` prints the memory plan"
        ) from error
