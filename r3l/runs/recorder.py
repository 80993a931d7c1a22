"""Recording a step, whichever engine trains: a line of metrics.jsonl, the other loggers, the progress shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from r3l.config import Run
from r3l.core.finite import check_finite
from r3l.files.json_files import append_jsonl
from r3l.processes.progress import progress
from r3l.runs.loggers import open_loggers
from r3l.runs.metrics import COLLECT_SECONDS, GENERATED_TOKENS, TRAIN_SUCCESS, step_seconds, with_rounded_times
from r3l.runs.run_dir import METRICS

Record = Callable[[Mapping[str, float]], None]  # takes the metrics of one step; raises NonFiniteError


@contextmanager
def recording(run: Run, run_dir: Path, loggers: Sequence[str], done: int) -> Iterator[Record]:
    """A function that records each step; ``done`` steps are there already."""
    steps = run.train.steps
    label = f"{run.env} {run.method} seed {run.seed}"
    with (
        open_loggers(loggers, run_dir, run.model_dump(mode="json")) as log,
        progress(label, steps, done, lines=steps) as advance,
    ):

        def record(metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                check_finite(f"method {run.method}, step {metrics['step']}: metric {name!r}", value)
            metrics = with_rounded_times(metrics)
            append_jsonl(run_dir / METRICS, metrics)
            log(metrics)
            advance(_note(metrics))

        yield record


def _note(metrics: Mapping[str, float]) -> str:
    tokens_per_s = metrics.get(GENERATED_TOKENS, 0) / max(metrics[COLLECT_SECONDS], 1e-9)
    return f"success {metrics[TRAIN_SUCCESS]:.2f}  {tokens_per_s:.0f} tok/s  {step_seconds(metrics):.1f} s/step"
