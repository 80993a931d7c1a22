"""What a training run explores with, leaves on disk and shows while it runs, whichever engine trains."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from r3l.config import Run
from r3l.core.environment import Dialogue
from r3l.core.policy import PHASES, Policy, Sampling
from r3l.core.pool import EnvironmentPool
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.runs.files import append_jsonl, commit, hardware, read_jsonl, rewrite_jsonl, sha256_of, versions
from r3l.runs.loggers import open_loggers
from r3l.runs.task_sets import describe

METRICS = "metrics.jsonl"
FINAL_WINDOW = 5  # steps averaged in result.json's "final"; our choice
Record = Callable[[Mapping[str, float]], None]  # takes the metrics of one step


def rollout_context(
    run: Run,
    policy: Policy,
    pool: EnvironmentPool,
    dialogue: Dialogue,
    gather: Callable[..., Coroutine[Any, Any, list[Any]]],
    address: Address,
    temperature: float,
) -> RolloutContext:
    """A fresh rollout context (its own budget meter) whose draws are seeded under ``address``."""
    s = run.sampling
    return RolloutContext(
        policy=policy,
        pool=pool,
        dialogue=dialogue,
        sampling=Sampling(temperature, s.max_tokens, stop=dialogue.stop),
        feedback_sampling=Sampling(temperature, s.feedback_max_tokens, phase=PHASES.index("feedback")),
        address=address,
        gather=gather,
    )


def manifest(run: Run) -> dict[str, Any]:
    """Everything needed to name and repeat a run."""
    return {
        "run": run.model_dump(mode="json"),
        "fingerprint": run.fingerprint(),
        "task_set": {
            "train": describe(run.env, run.env_settings.train_task_set),
            "test": describe(run.env, run.env_settings.test_task_set),
        },
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }


@contextmanager
def recording(run: Run, run_dir: Path, loggers: Sequence[str], done: int) -> Iterator[Record]:
    """A function that records each step: a line of metrics.jsonl, the ``loggers``, the progress shown.

    ``done`` steps are there already.
    """
    with open_loggers(loggers, run_dir, run.model_dump(mode="json")) as log, _progress() as progress:
        total = run.train.steps
        bar = progress.add_task(f"{run.method} seed {run.seed}", total=total, completed=done, note="")

        def record(metrics: Mapping[str, float]) -> None:
            append_jsonl(run_dir / METRICS, metrics)
            log(metrics)
            progress.update(bar, advance=1, note=_note(metrics))
            if not progress.console.is_terminal:
                progress.console.print(f"step {int(metrics['step'])}/{total}  {_note(metrics)}")

        yield record


def _note(metrics: Mapping[str, float]) -> str:
    seconds = metrics["seconds/collect"] + metrics["seconds/train"]
    rate = metrics.get("tokens/generated", 0) / max(metrics["seconds/collect"], 1e-9)
    return f"success {metrics['train/success']:.2f}  {rate:.0f} tok/s  {seconds:.1f} s/step"


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def forget_after(path: Path, step: int) -> None:
    """Drop lines of steps that the checkpoint does not contain; they will be run again."""
    if path.is_file():
        rewrite_jsonl(path, [row for row in read_jsonl(path) if row["step"] <= step])


def result(run: Run, run_dir: Path, checkpoint: Path, totals: Mapping[str, float]) -> dict[str, Any]:
    """The content of result.json; ``checkpoint`` is the last one, ``totals`` the run's budget."""
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
        "model": Path(run.model).name,
        "seed": run.seed,
        "fingerprint": run.fingerprint(),
        "steps": len(metrics),
        "checkpoint": f"checkpoints/{checkpoint.name}",
        "checkpoint_sha256": sha256_of(checkpoint),
        "budget": dict(sorted(totals.items())),
        "final": final_scores(metrics),
    }


def final_scores(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means of the training scores over the last steps."""
    window = metrics[-FINAL_WINDOW:]
    keys = sorted({k for row in window for k in row if k.startswith("train/")})
    return {k: sum(row.get(k, 0.0) for row in window) / len(window) for k in keys}
