"""result.json: summary of a finished run. It holds no times and no date, so that it repeats byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import TypedDict

from r3l.config import Run
from r3l.config.fingerprint_inputs import base_weights
from r3l.core.errors import DataError
from r3l.files.digests import digest_with_names
from r3l.files.json_files import Number, read_json
from r3l.runs.run_dir import CHECKPOINTS, RESULT
from r3l.runs.step_metrics import read_metrics

SCHEMA = 2  # of result.json; :func:`final_scores` has what changed
FINAL_WINDOW = 5  # steps averaged in "final"; our choice
# Training success this far below the best steps has fallen. Our choice: so are 51 of 1,373 stored runs, while
# steps of few tasks differ by half of it.
FALL = 0.3


class RunIdentity(TypedDict):
    """The keys of a result or an evaluation that say which run it is of.

    ``cell``: tier/env/model/method. ``label``, ``method_label``: printed names of tier and method.
    """

    schema: int
    cell: str
    tier: str
    label: str
    env: str
    method: str
    method_label: str
    model: str
    seed: int
    fingerprint: str


class Result(RunIdentity):
    """result.json of a finished run.

    ``budget``: totals over all steps. ``final``: mean training scores of the last 5 steps, by the rule of
    the ``schema`` (:func:`final_scores`). ``checkpoint`` is None if nothing was trained;
    ``checkpoint_sha256`` is then the digest of the base checkpoint, which is not copied, or None for a model
    at a server.
    """

    profile: str
    steps: int
    checkpoint: str | None
    checkpoint_sha256: str | None
    budget: dict[str, Number]
    final: dict[str, Number]


def result(run: Run, run_dir: Path, checkpoint: Path | None, totals: Mapping[str, float]) -> Result:
    """The result of a finished run, from its metrics.jsonl and arguments; nothing is written.

    ``checkpoint``: folder of the last one, which is hashed; None if nothing was trained. ``totals``: sums of
    counts over all steps. Raises DataError if metrics.jsonl is damaged.
    """
    weights = None if run.served else base_weights(run.inputs())
    metrics = read_metrics(run_dir)
    return {
        "schema": SCHEMA,
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
        "checkpoint": f"{CHECKPOINTS}/{checkpoint.name}" if checkpoint else None,
        "checkpoint_sha256": digest_with_names(checkpoint) if checkpoint else weights,
        "budget": dict(sorted(totals.items())),
        "final": final_scores(metrics),
    }


def finished_result(run: Run, run_dir: Path) -> Result | None:
    """The result of ``run`` if ``run_dir`` holds it finished, with an intact checkpoint; else None.

    A missing or damaged result.json, and the result of another run, give None too.
    """
    # The fingerprint decides whether it is this run; the checkpoint's digest, whether its weights are intact.
    try:
        content = read_json(run_dir / RESULT, Result)
    except DataError:  # missing, or damaged and to be written again
        return None
    if content["fingerprint"] != run.fingerprint():
        return None
    if content["checkpoint"] is None:
        return content if content["checkpoint_sha256"] == base_weights(run.inputs()) else None
    checkpoint = run_dir / content["checkpoint"]
    return (
        content
        if checkpoint.is_dir() and digest_with_names(checkpoint) == content["checkpoint_sha256"]
        else None
    )


def final_scores(metrics: Sequence[Mapping[str, float]], schema: int = SCHEMA) -> dict[str, float]:
    """The mean of each ``train/`` metric over the last FINAL_WINDOW (5) steps, without steps that lack it.

    Every step has the same weight. Success in a task group is missing in a step without rollouts of that
    group; schema 1 of result.json counted it as 0, so that the group's mean was too low. ``metrics``: the
    metrics of each step, in order. {} without steps. Raises ValueError for a ``schema`` that is neither 1 nor
    SCHEMA.
    """
    if schema not in (1, SCHEMA):
        raise ValueError(f"schema {schema} is not 1 or {SCHEMA}")
    window = metrics[-FINAL_WINDOW:]
    final: dict[str, float] = {}
    for key in sorted({k for row in window for k in row if k.startswith("train/")}):
        values = [row[key] for row in window if key in row]
        final[key] = sum(values) / (len(window) if schema == 1 else len(values))
    return final


def best_before_fall(metrics: Sequence[Mapping[str, float]]) -> tuple[float, int] | None:
    """Highest mean training success of FINAL_WINDOW (5) steps in a row, and the last of them.

    None unless the mean of the last five is at least FALL (0.3) below it. ``metrics``: the metrics of each
    step, in order.
    """
    success = [(row["train/success"], int(row["step"])) for row in metrics if "train/success" in row]
    windows = [success[end - FINAL_WINDOW : end] for end in range(FINAL_WINDOW, len(success) + 1)]
    means = [(sum(value for value, _ in window) / FINAL_WINDOW, window[-1][1]) for window in windows]
    if not means:
        return None
    best = max(means)
    return best if means[-1][0] <= best[0] - FALL else None
