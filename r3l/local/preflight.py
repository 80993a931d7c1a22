"""``r3l preflight``: collects a step, updates nothing: do sampling and training agree on each token's log-probability?

They compute with the same weights (a learning rate of 0, so to speak), one token at a time against kept caches the
one, whole rows the other. Where they disagree by more than rounding, a mask, a position or a cache is wrong, and
importance ratios, KLs and old log-probs with it.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from r3l.config import Run, build_method, start_of
from r3l.core.batching import rows_of
from r3l.core.errors import EngineError
from r3l.local.engine import collect, trainer_of
from r3l.local.session import open_session

# Largest mean and largest single |training - sampling|, nats. float32: a hundred times what was measured on a CPU
# (docs/smol.md). bfloat16 has 8 bits of mantissa; our choice, to be replaced by what a GPU measures.
LIMITS = {torch.float32: (1e-4, 1e-2), torch.bfloat16: (3e-2, 2.0)}


def preflight(run: Run) -> dict[str, Any]:
    """Collect step 1 of ``run`` and compare; the report. Raises EngineError beyond the limits, or out of memory."""
    with open_session(run, start_of(run), trains=True) as session:
        method = build_method(run)
        trainer = trainer_of(session, method)
        device, dtype = session.model.device, session.model.dtype
        if device.type == "cuda":
            trainer.probe_memory(run.sampling.max_context)
        collected = collect(session, method, session.package.tasks(run.env_settings.train_task_set), 1)
        began = time.perf_counter()
        groups = [group for of_task in [*collected.tasks, *collected.refused] for group in of_task]
        mismatch = trainer.logprob_mismatch(rows_of(method, groups, run.samples))
        mean, most = LIMITS[dtype]
        report = {
            "cell": run.cell,
            "device": str(device),
            "dtype": str(dtype),
            "tokens": mismatch.tokens,
            **mismatch.metrics(),
            "limit/mean": mean,
            "limit/max": most,
            "rollouts": collected.ctx.counters["rollouts"],
            "tokens/generated": collected.ctx.counters["tokens/generated"],
            "seconds/collect": collected.metrics["seconds/collect"],
            "seconds/compare": time.perf_counter() - began,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        }
    if not mismatch.tokens:
        raise EngineError(f"{run.cell}: no sampled token to compare: {report}; raise train.tasks_per_step")
    if mismatch.mean > mean or mismatch.max > most:
        raise EngineError(
            f"{run.cell}: training and sampling disagree on log-probs by {mismatch.mean:.2g} nats in the mean and "
            f"{mismatch.max:.2g} at most over {mismatch.tokens} tokens; allowed are {mean:g} and {most:g} in {dtype}. "
            "Do not train: try device=cpu or compute_dtype=float32, and report it with what r3l doctor shows"
        )
    return report
