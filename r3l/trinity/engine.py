"""The trinity engine: `trinity run` on a Ray cluster, around the same methods; running it again resumes.

A run writes the files of a local run (r3l.runs.steps, r3l.local.checkpoint); Trinity's own files lie in ``trinity/`` of
its directory. Trinity has an environment of its own (`make trinity`), and we communicate through files. It exits with 0
after a crash, so success is judged by what each step wrote, and its logs are read for errors. What differs between a
CPU and GPUs is behind Backend.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from r3l.config import Run, gpu_cluster
from r3l.config.fingerprint_inputs import model_identity
from r3l.core.errors import EngineError
from r3l.endpoint.judge import judge_options
from r3l.files.json_files import rewrite_jsonl
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.local.checkpoint import check_template
from r3l.runs import metrics as run_metrics
from r3l.runs import trajectory_log
from r3l.runs.manifest import manifest
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS, read_metrics
from r3l.runs.preemption import stop_at_once, time_limit
from r3l.runs.result import Result, finished_result, result
from r3l.runs.run_dir import MANIFEST, METRICS, RESULT, check_owner, forget_after, locked
from r3l.runs.steps import RecordStep, recording
from r3l.trinity import job as trinity_job
from r3l.trinity.config import Config, Place, as_yaml, trinity_config, write_inputs
from r3l.trinity.processes import Environment, Ray
from r3l.trinity.tinker import Tinker
from r3l.trinity.verl import Verl

FOLDER = "trinity"  # of a run's directory: everything of Trinity's


class Backend(Protocol):
    """The trainer: r3l.trinity.tinker on a CPU, r3l.trinity.verl on GPUs."""

    def check(self, environment: Environment) -> None:
        """Raises ConfigError, before any work, where the machine lacks something."""

    def steps_done(self) -> int:
        """Steps of the newest checkpoint, from which a run resumes."""

    def finished(self) -> bool:
        """Whether the weights of the last step are kept."""

    def drop_after(self, step: int) -> None:
        """Delete checkpoints of later steps."""

    def reset_to(self, step: int) -> None:
        """What its trainer needs besides r3l.trinity.job.reset_to to resume from ``step``."""

    def cluster(self, environment: Environment, config: Config, folder: Path) -> AbstractContextManager[Ray]:
        """A Ray cluster until the end of the block; ``config`` is completed with addresses."""

    def losses(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Of what its trainer reports of a step: ``loss``, ``grad_norm`` and the parts of the loss."""

    def collect(self) -> Path:
        """The last checkpoint, in Hugging Face layout."""


def train(run: Run, run_dir: Path, loggers: Sequence[str] = (), minutes: float | None = None) -> Result:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json.

    After ``minutes``, or a signal to stop, it raises Preempted; the next call resumes from the newest checkpoint.

    Raises ConfigError where Trinity's environment, GPUs or a judge are missing, EngineError with the end of the
    right log where Trinity fails.
    """
    identity = model_identity(run.model)
    if not run_dir.is_dir() and (identity.get("sha256") or identity["revision"]):  # what is not here Trinity fetches
        check_template(run)
    judge_options(run)
    environment, folder = Environment.find(), run_dir / FOLDER
    planned = gpu_cluster(run)
    place = Place(folder, folder / "tasks", "verl" if planned else "tinker")
    config = trinity_config(run, place)
    job = folder / config["project"] / config["group"] / config["name"]
    backend: Backend = Verl(run, run_dir, job, planned, place.adapter) if planned else Tinker(run, run_dir, job)
    if not backend.finished():
        backend.check(environment)
    with locked(run_dir):
        if done := finished_result(run, run_dir):
            return done
        check_owner(run_dir, run)
        write_json_atomic(run_dir / MANIFEST, manifest(run))
        reconcile(run, run_dir, job, backend)
        with stop_at_once(), time_limit(None if minutes is None else 60 * minutes):
            if not backend.finished():
                _train(run, run_dir, loggers, backend, environment, config, place, job)
        last = backend.collect()
        if (folder / trajectory_log.FILE).is_file():
            shutil.copy(folder / trajectory_log.FILE, run_dir / trajectory_log.FILE)
        finished = result(run, run_dir, last, run_metrics.totals(read_metrics(run_dir)))
        write_json_atomic(run_dir / RESULT, finished)
        return finished


def _train(
    run: Run,
    run_dir: Path,
    loggers: Sequence[str],
    backend: Backend,
    environment: Environment,
    config: Config,
    place: Place,
    job: Path,
) -> None:
    done, folder = backend.steps_done(), place.folder
    for file in (run_dir / METRICS, folder / trajectory_log.FILE):
        forget_after(file, done)
    trinity_job.reset_to(job, done, run.train.tasks_per_step)
    if done:
        backend.reset_to(done)
    write_inputs(run, place)
    with backend.cluster(environment, config, folder) as ray, recording(run, run_dir, loggers, done) as record:
        write_text_atomic(folder / "config.yaml", as_yaml(run, config))
        with ray.trinity(folder / "config.yaml") as trinity:
            for steps in trinity_job.follow(job, folder / "trinity.log", trinity, *ray.heads):
                done = _record(steps, done, record, backend)
            if done < run.train.steps or not backend.finished():
                tail = ray.log_tail() or trinity_job.log_tail(job, folder / "trinity.log")
                raise EngineError(f"Trinity failed after {done} of {run.train.steps} steps. {tail}")


def reconcile(run: Run, run_dir: Path, job: Path, backend: Backend) -> None:
    """Bring the metrics and the checkpoints of a stopped run to the same step.

    Trinity's trainer saves a step before it reports it, and we read reports a moment later. Steps that were reported
    but not read yet are added; checkpoints of steps that nobody reported are dropped, and those steps run again.
    """
    lines, steps = read_metrics(run_dir), trinity_job.reported(job)
    lines += [metrics_of(number, reported, backend) for number, reported in steps.items() if number > len(lines)]
    if lines:
        rewrite_jsonl(run_dir / METRICS, lines)
    backend.drop_after(len(lines))


def _record(steps: Mapping[int, Mapping[str, float]], done: int, record: RecordStep, backend: Backend) -> int:
    for number in sorted(step for step in steps if step > done):
        record(metrics_of(number, steps[number], backend))
        done = number
    return done


def metrics_of(number: int, reported: Mapping[str, float], backend: Backend) -> dict[str, float]:
    """A step's line of metrics.jsonl from what Trinity's explorer and trainer reported.

    The pipeline's metrics are ours (r3l.trinity.advantage); the trainer's are its backend's.
    """
    ours = {
        k.removeprefix("experience_pipeline/"): v for k, v in reported.items() if k.startswith("experience_pipeline/")
    }
    ours = {k: v for k, v in ours.items() if not k.startswith(("experience_pipeline/", "experience_count"))}
    metrics = {
        **ours,
        **backend.losses(reported),
        COLLECT_SECONDS: reported["explorer/time/wait_explore_step"],
        TRAIN_SECONDS: reported["time/train_step"],
        "step": number,
    }
    return run_metrics.with_rates(metrics)
