"""result.json: what a finished run amounts to. It holds no time and no date, so that it repeats byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.config import Run
from r3l.config.fingerprint_inputs import base_weights
from r3l.core.errors import DataError
from r3l.files.digests import sha256_of
from r3l.files.json_files import read_json, read_jsonl
from r3l.runs.run_dir import METRICS, RESULT

FINAL_WINDOW = 5  # steps averaged in "final"; our choice


def result(run: Run, run_dir: Path, checkpoint: Path | None, totals: Mapping[str, float]) -> dict[str, Any]:
    """The content of result.json; ``checkpoint`` is the last one, ``totals`` the run's budget.

    No checkpoint: nothing was trained, and the digest is that of the base checkpoint, which stays where it lies; None
    where a server has the model.
    """
    weights = None if run.served else base_weights(run.inputs())
    metrics = read_jsonl(run_dir / METRICS)
    return {
        "schema": 1,
        "cell": run.cell,
        "tier": run.tier,
        "label": run.label,
        "env": run.env,
        "method": run.method,
        "method_label": run.method_label,
        "profile": run.profile,
        "model": run.model_name(),
        "seed": run.seed,
        "fingerprint": run.fingerprint(),
        "steps": len(metrics),
        "checkpoint": checkpoint and f"checkpoints/{checkpoint.name}",
        "checkpoint_sha256": sha256_of(checkpoint) if checkpoint else weights,
        "budget": dict(sorted(totals.items())),
        "final": final_scores(metrics),
    }


def finished_result(run: Run, run_dir: Path) -> dict[str, Any] | None:
    """The result of ``run`` where it is there and so is the very checkpoint that it names; else None: there is work."""
    try:
        content: dict[str, Any] = read_json(run_dir / RESULT)
    except DataError:  # missing, or damaged and written again
        return None
    if content.get("fingerprint") != run.fingerprint():
        return None
    if content.get("checkpoint") is None:
        return content if content["checkpoint_sha256"] == base_weights(run.inputs()) else None
    checkpoint = run_dir / str(content.get("checkpoint"))
    return content if checkpoint.is_dir() and sha256_of(checkpoint) == content["checkpoint_sha256"] else None


def final_scores(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means of the training scores over the last steps."""
    window = metrics[-FINAL_WINDOW:]
    keys = sorted({k for row in window for k in row if k.startswith("train/")})
    return {k: sum(row.get(k, 0.0) for row in window) / len(window) for k in keys}
