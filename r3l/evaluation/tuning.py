"""Equal tuning: the same three learning rates, seeds and tasks for every method, and one rule to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from r3l.config import Run
from r3l.core.errors import DataError
from r3l.evaluation.episodes import Evaluation
from r3l.evaluation.verification import verify_further
from r3l.files.json_files import Number, read_json
from r3l.runs.manifest import Manifest, TaskSetSummary
from r3l.runs.metrics import GENERATED_TOKENS, TRAINED_TOKENS
from r3l.runs.result import Result
from r3l.runs.run_dir import MANIFEST, RESULT
from r3l.runs.run_paths import validation_evaluation
from r3l.runs.step_metrics import base_success, read_metrics, step_seconds
from r3l.stats.comparison import Effect

RULE = (
    "the lowest rate that no higher one is shown to beat: success on the validation task set, last "
    "checkpoint; a higher rate beats a lower one if the 95 % t-interval of their difference, paired by seed, "
    "lies above 0"
)


class TriedRun(TypedDict):
    """A run of a tuning: its success on the validation task set, its cost, and its training curve.

    ``generated``, ``trained``: tokens. ``groups``: the success by task group. ``curve``: success rate of each
    step's base rollouts (retries do not count); None for a step without base rollouts.
    """

    seed: int
    success: Number
    commit: str | None
    rollouts: Number
    generated: Number
    trained: Number
    seconds: Number
    groups: NotRequired[dict[str, Number]]
    model: NotRequired[str]
    fingerprint: NotRequired[str]
    preregistration_sha256: NotRequired[str | None]
    curve: NotRequired[list[Number | None]]


class TriedRate(TypedDict):
    """A learning rate of a tuning, its runs, one per seed, and their mean success."""

    lr: Number
    success: Number
    runs: list[TriedRun]


class TuningResult(TypedDict):
    """The content of results/tuning/TIER/ENV/METHOD.json: the rates that were tried, and the ``chosen`` one.

    ``rule``: the rule of choice, in words. ``task_set``: the validation task set that scored the rates.
    ``standard_error``: standard error of a rate's mean success over seeds.
    """

    tier: str
    env: str
    method: str
    chosen: Number
    rule: str
    standard_error: Number
    task_set: TaskSetSummary
    rates: Annotated[list[TriedRate], Field(min_length=3, max_length=3)]


def choose(scores: Mapping[float, Sequence[float]]) -> tuple[float, float]:
    """Choose the lowest learning rate that no higher one is shown to beat, as RULE says.

    ``scores``: by rate, one success per seed; the seeds have the same order for all rates. Returns the rate
    and the standard error of a rate's mean success, from the variance over seeds averaged over the rates.
    Raises ValueError for a single seed.
    """
    if min(map(len, scores.values())) < 2:
        raise ValueError("an interval needs two seeds")
    error = float(np.sqrt(np.mean([np.var(values, ddof=1) / len(values) for values in scores.values()])))

    def is_beaten(rate: float) -> bool:
        """True if some higher rate is shown to be better."""
        higher = [np.subtract(values, scores[rate]) for other, values in scores.items() if other > rate]
        return any(Effect.of_seeds(difference_S).bounds()[0] > 0 for difference_S in higher)

    chosen = next(rate for rate in sorted(scores) if not is_beaten(rate))
    return chosen, error


def tuning(method: str, tried: Mapping[str, Mapping[Path, Run]]) -> TuningResult:
    """The content of a tuning's file, from finished runs; nothing is trained.

    ``tried``: for each rate, its planned runs by their directories. Their validation scores are verified (and
    signed, if they are not). Raises DataError for a run that is not finished, does not pass, or has another
    configuration than planned.
    """
    rates: list[TriedRate] = []
    for rate, runs in tried.items():
        of_rate = [_run(run_dir, run) for run_dir, run in runs.items()]
        success = float(np.mean([run["success"] for run in of_rate]))
        rates.append({"lr": float(rate), "runs": of_rate, "success": success})
    scores = {rate["lr"]: [run["success"] for run in rate["runs"]] for rate in rates}
    chosen, error = choose(scores)
    first_dir, first = next(iter(next(iter(tried.values())).items()))
    return {
        "tier": first.tier,
        "env": first.env,
        "method": method,
        "chosen": chosen,
        "rule": RULE,
        "standard_error": error,
        "task_set": read_json(validation_evaluation(first_dir, first), Evaluation)["task_set"],
        "rates": rates,
    }


def _run(run_dir: Path, run: Run) -> TriedRun:
    """A finished run's entry: validation scores, where its code and plan came from, curve and cost."""
    # Only a verified evaluation of the planned configuration counts.
    path = validation_evaluation(run_dir, run)
    if not path.is_file():
        raise DataError(
            f"{run_dir} is not trained, or not scored on the validation task set: r3l tune does both"
        )
    verify_further(path.parent, run_dir)
    evaluation = read_json(path, Evaluation)
    result = read_json(run_dir / RESULT, Result)
    manifest = read_json(run_dir / MANIFEST, Manifest)
    if evaluation["fingerprint"] != run.fingerprint():
        raise DataError(
            f"{run_dir} is a run of another configuration; r3l tune sets it aside and trains again"
        )

    # The training curve, then the entry.
    metrics = read_metrics(run_dir)
    curve: list[Number | None] = []
    for line in metrics:
        success = base_success(line)
        curve.append(None if success is None else round(success, 4))
    return {
        "seed": run.seed,
        "success": evaluation["groups"]["all"]["success"],
        "groups": {group: scores["success"] for group, scores in evaluation["groups"].items()},
        "model": evaluation["model"],
        "fingerprint": evaluation["fingerprint"],
        "commit": manifest["commit"],
        "preregistration_sha256": manifest.get("preregistration_sha256"),
        "curve": curve,
        "seconds": round(sum(map(step_seconds, metrics)), 1),
        "rollouts": result["budget"].get("rollouts", 0),
        "generated": result["budget"].get(GENERATED_TOKENS, 0),
        "trained": result["budget"].get(TRAINED_TOKENS, 0),
    }
