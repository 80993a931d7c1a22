"""``r3l doctor step``: collects one step without updating: do sampling and training log-probabilities agree?

A sampler with a copy of the weights (vLLM) then gets other ones, and is compared again: a stale copy is refused.

They compute with the same weights (a learning rate of 0, so to speak), one token at a time against kept caches the
one, whole rows the other. Where they disagree by more than rounding, a mask, a position or a cache is wrong, and
importance ratios, KLs and old log-probs with it.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import rows_of
from r3l.core.errors import EngineError
from r3l.local.engine import collect, trainer_of
from r3l.local.model.precision import LIMITS
from r3l.local.session import Session, open_session


def preflight(run: Run) -> dict[str, Any]:
    """Collect step 1 of ``run`` and compare; the report. Raises EngineError beyond the limits, or out of memory."""
    with open_session(run, base_checkpoint_of(run), trains=True) as session:
        method = build_method(run)
        trainer = trainer_of(session, method)
        device, dtype = session.model.device, session.model.dtype
        if device.type == "cuda":
            trainer.probe_memory(run.sampling.max_context)
        collected = collect(session, method, session.package.tasks(run.env_settings.train_task_set), 1)
        session.policy.release()
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
            **_synced(session),
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


def _synced(session: Session) -> dict[str, float]:
    """What syncing weights that are all a tenth larger leaves between the two; {} where they share theirs."""
    with torch.no_grad():
        for parameter in session.policy.model.parameters():
            parameter.mul_(1.1)
    return session.policy.sync_weights()
