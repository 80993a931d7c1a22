"""``r3l doctor step``: one step without an update; do sampling and training agree on log-probs?

Both compute with the same weights: sampling token by token against its caches, training on complete rows.
Where they disagree by more than rounding, a mask, a position or a cache is wrong, and so are importance
ratios, KLs and old log-probs. A sampler with its own copy of the weights (vLLM) is then given other weights
and checked again: a stale copy is refused.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import rows_of
from r3l.core.errors import EngineError
from r3l.local.engine import collect, score, trainer_of
from r3l.local.model.precision import LIMITS
from r3l.local.session import open_session
from r3l.runs.gpu_locks import reserved_gpu


def preflight(run: Run) -> dict[str, Any]:
    """Sample step 1 of ``run`` from its base checkpoint, without an update, and compare log-probs.

    Returns a report: tokens compared, their mean and largest mismatch (nats), the limits, seconds, peak GPU
    memory (GiB; None on a CPU). Writes no file; weights are changed and sent to the sampler, as a test.
    Waits for a GPU, unless device is cpu. Raises EngineError if a limit (r3l.local.model.precision:LIMITS) is
    exceeded, if no token was sampled, or out of GPU memory.
    """
    with (
        reserved_gpu(run.device),
        open_session(run, base_checkpoint_of(run), trains=True) as session,
    ):
        method = build_method(run)
        trainer = trainer_of(session, method)
        device = session.model.device
        dtype = session.model.dtype
        if device.type == "cuda":
            trainer.probe_memory(run.sampling.max_context)

        # Sample step 1 and score its rows by the forward pass that trains, refused groups too.
        collected = collect(session, method, session.package.tasks(run.env_settings.train_task_set), 1)
        session.policy.release()
        began = time.perf_counter()
        groups = [group for of_task in [*collected.tasks, *collected.refused] for group in of_task]
        score(session, trainer, groups)
        mismatch = trainer.logprob_mismatch(rows_of(method, groups, run.samples))
        seconds = time.perf_counter() - began

        # Change all weights and sync them. A sampler that shares the weights has nothing to report; vLLM
        # compares its log-probs with the model's, and raises if it still has the old weights.
        with torch.no_grad():
            for parameter in session.policy.model.parameters():
                parameter.mul_(1.1)
        synced = session.policy.sync_weights()

        mean_limit, max_limit = LIMITS[dtype]
        report = {
            "cell": run.cell,
            "device": str(device),
            "dtype": str(dtype),
            "tokens": mismatch.tokens,
            **mismatch.metrics(),
            "limit/mean": mean_limit,
            "limit/max": max_limit,
            "rollouts": collected.ctx.counters["rollouts"],
            "tokens/generated": collected.ctx.counters["tokens/generated"],
            "seconds/collect": collected.metrics["seconds/collect"],
            "seconds/compare": seconds,
            **synced,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        }
    if not mismatch.tokens:
        raise EngineError(f"{run.cell}: no sampled token to compare: {report}; raise train.tasks_per_step")
    if mismatch.mean > mean_limit or mismatch.max > max_limit:
        raise EngineError(
            f"{run.cell}: training and sampling disagree on log-probs by {mismatch.mean:.2g} nats in the "
            f"mean and {mismatch.max:.2g} at most over {mismatch.tokens} tokens; allowed are {mean_limit:g} "
            f"and {max_limit:g} in {dtype}. Do not train: try device=cpu or compute_dtype=float32, and "
            "report it with what r3l doctor shows"
        )
    return report
