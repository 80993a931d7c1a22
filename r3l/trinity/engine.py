"""The trinity engine: trains a method by `trinity run` on a Ray cluster. Re-run to resume.

A run writes the files of a local run (r3l.runs.steps, r3l.local.checkpoint); Trinity's own files are in
``trinity/`` of the run directory. Trinity has its own virtual environment (`make trinity`), and we
communicate through files. It exits with 0 after a crash, so a run is judged by its steps' reports, and
its logs are searched for errors. Backend hides the differences between CPUs and GPUs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from r3l.config import Run, gpu_cluster, model_identity
from r3l.core.errors import EngineError
from r3l.endpoint.judge import judge_options
from r3l.files.json_files import rewrite_jsonl
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.local.checkpoint import check_start
from r3l.runs import step_metrics, trajectory_log
from r3l.runs.loggers import Log
from r3l.runs.manifest import manifest
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS
from r3l.runs.preemption import stop_at_once, time_limit
from r3l.runs.result import Result, finished_result, result
from r3l.runs.run_dir import MANIFEST, METRICS, RESULT, check_owner, forget_after, locked
from r3l.runs.step_metrics import read_metrics
from r3l.runs.steps import recording
from r3l.trinity import job as trinity_job
from r3l.trinity.config import FLASH, Config, Place, as_yaml, trinity_config, write_inputs
from r3l.trinity.processes import Ray, TrinityEnvironment
from r3l.trinity.tinker import Tinker
from r3l.trinity.verl import Verl

FOLDER = "trinity"  # in a run directory: all files of Trinity


class Backend(Protocol):
    """A trainer of Trinity and its checkpoints: r3l.trinity.tinker on a CPU, r3l.trinity.verl on GPUs."""

    def check(self, environment: TrinityEnvironment) -> None:
        """Raise ConfigError if the machine lacks what the trainer needs; called before any work."""

    def steps_done(self) -> int:
        """Number of training steps in the newest checkpoint, from which a run resumes; 0 without one."""

    def finished(self) -> bool:
        """True if the weights of the run's last step are saved."""

    def drop_after(self, step: int) -> None:
        """Delete checkpoints of steps after ``step``."""

    def reset_to(self, step: int) -> None:
        """Prepare the trainer's own files to resume from ``step``, after r3l.trinity.job.reset_to."""

    def cluster(
        self, environment: TrinityEnvironment, config: Config, folder: Path
    ) -> AbstractContextManager[Ray]:
        """A Ray cluster for the block, started or joined; ``folder``: for its logs.

        Changes ``config``: addresses, and the newest adapter if a LoRA run resumes.
        """

    def losses(self, reported: Mapping[str, float]) -> dict[str, float]:
        """The local engine's loss metrics (``loss``, ``grad_norm``, parts) from what the trainer reported."""

    def check_saves(self) -> None:
        """Raise EngineError if the newest save lost the weights that it should have.

        Only verl's LoRA adapters can lack them and are checked; for all other runs nothing is done.
        """

    def collect(self) -> Path:
        """Bring the last checkpoint into the run directory, unless it is there, and return its folder.

        It is in Hugging Face layout. The verl backend moves the weights that Trinity exported, and deletes
        Trinity's own checkpoints.
        """


def train(run: Run, run_dir: Path, loggers: Sequence[str | Log] = (), minutes: float | None = None) -> Result:
    """Train ``run`` on Trinity-RFT in ``run_dir``, or resume it; writes and returns result.json's content.

    A run that is finished already is returned at once. ``loggers``: services that get a copy of the metrics.
    Raises Preempted after ``minutes`` (None: no limit) or at a signal to stop; the next call resumes from the
    newest checkpoint. Raises ConfigError for a method that Trinity cannot train, a chat template that fails,
    and if Trinity's environment, GPUs or a judge are missing; DataError or CheckpointError for damaged files
    or files of another run; RunDirectoryError if ``run_dir`` is in use or cannot be written; EngineError,
    with the end of the relevant log, if Trinity fails.
    """
    # Check everything that can be wrong before the run directory is created. The chat template can be
    # checked only if the model is on this machine; otherwise Trinity downloads it. A run with a manifest has
    # passed this check.
    identity = model_identity(run.model)
    if not (run_dir / MANIFEST).is_file() and (identity.get("sha256") or identity["revision"]):
        check_start(run)
    judge_options(run)
    environment = TrinityEnvironment.find()
    folder = run_dir / FOLDER
    planned = gpu_cluster(run)
    attention = FLASH if environment.has("flash_attn") else "sdpa"
    place = Place(folder, folder / "tasks", "verl" if planned else "tinker", attention=attention)
    config = trinity_config(run, place)
    job = folder / config["project"] / config["group"] / config["name"]
    backend: Backend
    if planned:
        backend = Verl(run, run_dir, job, planned, place.adapter)
    else:
        backend = Tinker(run, run_dir, job)
    if not backend.finished():
        backend.check(environment)

    done = finished_result(run, run_dir)  # once for a finished run: it reads all weights
    if done is None:
        check_owner(run_dir, run)  # a stored run, or another one, stays as it is
    with locked(run_dir):
        if done := done or finished_result(run, run_dir):
            return done
        check_owner(run_dir, run)
        write_json_atomic(run_dir / MANIFEST, manifest(run))
        # A stopped run's metrics and checkpoints may be of different steps.
        reconcile(run_dir, job, backend)
        with stop_at_once(), time_limit(None if minutes is None else 60 * minutes):
            if not backend.finished():
                _run_trinity(run, run_dir, loggers, backend, environment, config, place, job)

        # Leave the files of a local run: checkpoint, trajectories, result.
        last = backend.collect()
        if (folder / trajectory_log.FILE).is_file():
            shutil.copy(folder / trajectory_log.FILE, run_dir / trajectory_log.FILE)
        finished = result(run, run_dir, last, step_metrics.totals(read_metrics(run_dir)))
        write_json_atomic(run_dir / RESULT, finished)
        return finished


def _run_trinity(
    run: Run,
    run_dir: Path,
    loggers: Sequence[str | Log],
    backend: Backend,
    environment: TrinityEnvironment,
    config: Config,
    place: Place,
    job: Path,
) -> None:
    """Run Trinity from the newest checkpoint to the last step, and record each reported step."""
    # Set our files and Trinity's back to the newest checkpoint: later steps run again, as if for the
    # first time.
    done = backend.steps_done()
    folder = place.folder
    for file in (run_dir / METRICS, folder / trajectory_log.FILE):
        forget_after(file, done)
    trinity_job.reset_to(job, done, run.train.tasks_per_step)
    if done:
        backend.reset_to(done)

    write_inputs(run, place)
    with (
        backend.cluster(environment, config, folder) as ray,
        recording(run, run_dir, loggers, done) as record,
    ):
        # Only now, since the cluster has written its addresses into the configuration.
        write_text_atomic(folder / "config.yaml", as_yaml(run, config))
        with ray.trinity(folder / "config.yaml") as trinity:
            for steps in trinity_job.follow(job, folder / "trinity.log", trinity, *ray.heads):
                for number in sorted(step for step in steps if step > done):
                    record(metrics_of(number, steps[number], backend))
                    done = number
                    backend.check_saves()  # once a step: each poll would read the files again
            # The exit code says nothing: Trinity exits with 0 after a crash. A run has succeeded if every
            # step was reported and the last weights are saved. Else a dead Ray is the cause, or the
            # newest error in a log.
            if done < run.train.steps or not backend.finished():
                tail = ray.log_tail() or trinity_job.log_tail(job, folder / "trinity.log")
                raise EngineError(f"Trinity failed after {done} of {run.train.steps} steps. {tail}")


def reconcile(run_dir: Path, job: Path, backend: Backend) -> None:
    """Bring metrics.jsonl and the checkpoints of a stopped run to the same step.

    Adds the lines of reported steps to metrics.jsonl, and deletes checkpoints of steps that were not
    reported. ``job``: Trinity's folder of the run.
    """
    # Trinity's trainer saves a checkpoint before it reports the step, and we read reports a moment later. So
    # a run may stop between any two of the three.
    # Add the steps that were reported but not read.
    lines = read_metrics(run_dir)
    steps = trinity_job.reported(job)
    read = len(lines)
    lines += [metrics_of(number, report, backend) for number, report in steps.items() if number > read]
    if lines:
        rewrite_jsonl(run_dir / METRICS, lines)
    # A checkpoint that was saved but not reported has no metrics: delete it and train that step again.
    backend.drop_after(len(lines))


def metrics_of(number: int, reported: Mapping[str, float], backend: Backend) -> dict[str, float]:
    """The line of metrics.jsonl for step ``number``, from what Trinity's explorer and trainer ``reported``.

    It has the metrics of r3l.trinity.advantage, the trainer's metrics as ``backend`` translates them, seconds
    and rates.
    """
    pipeline = "experience_pipeline/"
    ours = {k.removeprefix(pipeline): v for k, v in reported.items() if k.startswith(pipeline)}
    # Trinity adds its own metrics under the same prefix.
    ours = {k: v for k, v in ours.items() if not k.startswith((pipeline, "experience_count"))}
    metrics = {
        **ours,
        **backend.losses(reported),
        COLLECT_SECONDS: reported["explorer/time/wait_explore_step"],
        TRAIN_SECONDS: reported["time/train_step"],
        "step": number,
    }
    return step_metrics.with_rates(metrics)
