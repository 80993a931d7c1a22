"""The trinity engine: `trinity run` on a Ray of its own, around the same methods; running it again resumes.

A run leaves what a local one leaves (r3l.training, r3l.local.checkpoint); Trinity's own files lie in ``trinity/`` of
its directory. Trinity lives in an environment of its own (`make trinity`) and is talked to through files, and on a
machine without GPUs through a Tinker server that this process offers. Trinity exits with 0 after a crash, so what a
step left decides, and its logs are read for errors.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from r3l import accounting, trajectories
from r3l.config import Run, build_method, find_model, locate
from r3l.core.errors import ConfigError, EngineError
from r3l.local import checkpoint
from r3l.preemption import leaving, time_limit
from r3l.tracking import locked, read_jsonl, rewrite_jsonl, write_json_atomic, write_text_atomic
from r3l.training import METRICS, Record, forget_after, manifest, recording, result, totals_of
from r3l.trinity.config import Place, as_yaml, experiences_per_step, trinity_config
from r3l.trinity.learner import Learner
from r3l.trinity.processes import Environment
from r3l.trinity.server import Server
from r3l.trinity.tasksets import write_tasksets

LOOK = 0.5  # seconds between two looks at what Trinity has left; our choice
FOLDER = "trinity"  # of a run's directory: everything of Trinity's
ROLES = ("explorer", "trainer")
FATAL = (  # in what `trinity run` prints: after any of these nothing good comes any more, though it may go on for hours
    b"Error in Explorer",
    b"Error in Trainer",
    b"Error during explorer preparation",
    b"Explorer or Trainer failed",
    b"WorkflowRunner run task error",
)
LONGEST = max(len(word) for word in FATAL)
GRACE = 5.0  # seconds in which the logs are written to their end; our choice
TAIL = 25  # lines of a log that an error shows


def train(run: Run, run_dir: Path, sinks: Sequence[str] = (), minutes: float | None = None) -> dict[str, Any]:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json.

    After ``minutes``, or told to stop, it ends as Preempted; the newest checkpoint is what the next call goes on from.

    Raises ConfigError where Trinity's environment is missing or the model needs GPUs, EngineError with the end of the
    right log where Trinity fails.
    """
    found = find_model(run.model)
    if found and found.cluster:
        raise ConfigError(
            f"model {run.model!r} is trained on GPUs, which this command does not drive: write a configuration with "
            "`r3l trinity-config --write-tasks --out FILE` and start `trinity run --config FILE` (docs/paper_tier.md)"
        )
    environment, folder = Environment.find(), run_dir / FOLDER
    config = trinity_config(run, Place(folder, folder / "tasks", "tinker"))
    job = folder / config["project"] / config["group"] / config["name"]
    with locked(run_dir):
        if start := checkpoint.latest(run_dir / "checkpoints"):
            checkpoint.read_state(start, run.fingerprint())  # another run's directory stays as it is
        write_json_atomic(run_dir / "manifest.json", manifest(run))
        make_whole(run, run_dir, job)
        with leaving(), time_limit(None if minutes is None else 60 * minutes):
            learner = Learner(run, run_dir)
            if learner.steps_done < run.train.steps:
                _train(run, run_dir, sinks, learner, environment, config, job)
        _collect(folder / trajectories.FILE, run_dir / trajectories.FILE)
        last = checkpoint.latest(run_dir / "checkpoints") or learner.save()
        finished = result(run, run_dir, last, totals_of(read_jsonl(run_dir / METRICS)))
        write_json_atomic(run_dir / "result.json", finished)
        return finished


def _train(
    run: Run,
    run_dir: Path,
    sinks: Sequence[str],
    learner: Learner,
    environment: Environment,
    config: dict[str, Any],
    job: Path,
) -> None:
    done, folder = learner.steps_done, run_dir / FOLDER
    for file in (run_dir / METRICS, folder / trajectories.FILE):
        forget_after(file, done)
    with Server(learner, locate(run.model)) as server:
        config["model"]["tinker"]["base_url"] = server.url
        set_back(job, done, run.train.tasks_per_step)
        write_tasksets(run, folder / "tasks")
        write_text_atomic(folder / "config.yaml", as_yaml(run, config))
        with (
            environment.ray(folder, {"TINKER_API_KEY": "tml-local", "TINKER_BASE_URL": server.url}) as ray,
            recording(run, run_dir, sinks, done) as record,
            ray.trinity(folder / "config.yaml") as trinity,
        ):
            for steps in _follow(job, folder / "trinity.log", trinity):
                done = _record(run, steps, done, record)
            if done < run.train.steps or learner.steps_done < run.train.steps:
                raise EngineError(f"Trinity failed after {done} of {run.train.steps} steps. {_last_words(job, folder)}")


def make_whole(run: Run, run_dir: Path, job: Path) -> None:
    """Bring a stopped run's metrics and checkpoints to one step.

    Trinity's trainer saves a step before it reports it, and we read reports a moment later. Steps that were reported
    but not read yet are added; checkpoints of steps that nobody reported are dropped, and those steps run again.
    """
    lines, steps = read_jsonl(run_dir / METRICS), reported(job / "monitor")
    if not lines and not steps:
        return
    lines += [metrics_of(run, number, found) for number, found in steps.items() if number > len(lines)]
    rewrite_jsonl(run_dir / METRICS, lines)
    for folder in (run_dir / "checkpoints").glob("step-*"):
        if folder.name > checkpoint.name_of(len(lines)):
            shutil.rmtree(folder)


def set_back(job: Path, step: int, tasks_per_step: int) -> None:
    """Make Trinity's state files say that ``step`` steps are done, as our newest checkpoint does.

    Trinity notes the explorer's progress at every step and the trainer's at its checkpoints, so that after a crash
    they would go on from different steps.
    """
    if step == 0:
        shutil.rmtree(job, ignore_errors=True)
        return
    state = {"latest_iteration": step}
    explorer = state | {"taskset_states": [{"current_index": step * tasks_per_step}]}
    write_json_atomic(job / "explorer_meta.json", explorer)
    write_json_atomic(job / "trainer_meta.json", state | {"sample_strategy_state": {"current_index": 0}})
    write_text_atomic(job / "latest_checkpointed_iteration.txt", str(step))
    path = f"tinker://run/weights/{checkpoint.name_of(step)}"
    write_text_atomic(job / f"global_step_{step}" / "remote_checkpoint_path.txt", path)
    (job / "latest_state_dict_iteration.txt").unlink(missing_ok=True)
    for role in ROLES:
        forget_after(job / "monitor" / f"steps-{role}.jsonl", step)
    shutil.rmtree(job / "log", ignore_errors=True)  # errors of the run that this one resumes


def _follow(job: Path, output: Path, trinity: Popen[bytes]) -> Iterator[Mapping[int, Mapping[str, float]]]:
    """What both roles have reported, by step, again and again until Trinity ends or prints that it has failed."""
    with output.open("rb") as printed:
        new = b""
        while True:
            ended = trinity.poll() is not None
            yield reported(job / "monitor")
            if ended:
                return
            new = new[-LONGEST:] + printed.read()  # a word may have been written in two halves
            if any(word in new for word in FATAL):
                time.sleep(GRACE)
                return
            time.sleep(LOOK)


def reported(monitor: Path) -> dict[int, dict[str, float]]:
    """The lines of r3l.trinity.monitor by step, for steps that every role has reported."""
    by_role: list[dict[int, dict[str, float]]] = []
    for role in ROLES:
        steps: dict[int, dict[str, float]] = {}
        for line in read_jsonl(monitor / f"steps-{role}.jsonl"):
            steps.setdefault(int(line.pop("step")), {}).update(line)
        by_role.append(steps)
    whole = set.intersection(*[set(steps) for steps in by_role])
    return {step: {k: v for steps in by_role for k, v in steps[step].items()} for step in sorted(whole)}


def _record(run: Run, steps: Mapping[int, Mapping[str, float]], done: int, record: Record) -> int:
    for number in sorted(step for step in steps if step > done):
        record(metrics_of(run, number, steps[number]))
        done = number
    return done


def metrics_of(run: Run, number: int, found: Mapping[str, float]) -> dict[str, float]:
    """A step's line of metrics.jsonl from what Trinity's explorer and trainer reported.

    The pipeline's metrics are ours (r3l.trinity.advantage). The trainer averages those of the loss over all
    experiences of a step, empty ones included, while ours add up.
    """
    experiences = experiences_per_step(run, build_method(run))
    ours = {k.removeprefix("experience_pipeline/"): v for k, v in found.items() if k.startswith("experience_pipeline/")}
    ours = {k: v for k, v in ours.items() if not k.startswith(("experience_pipeline/", "experience_count"))}
    loss = {k.removeprefix("actor/"): v * experiences for k, v in found.items() if k.startswith("actor/")}
    renamed = {"final_loss": "loss"}
    metrics = {
        **ours,
        **{renamed.get(k, k): v for k, v in loss.items()},
        "grad_norm": found["grad_norm"],
        "seconds/explore": found["explorer/time/wait_explore_step"],
        "seconds/train": found["time/train_step"],
        "step": number,
    }
    return metrics | {f"rate/{k}": v for k, v in accounting.rates(metrics).items() if v is not None}


def _collect(file: Path, to: Path) -> None:
    if file.is_file():
        shutil.copy(file, to)


def _last_words(job: Path, folder: Path) -> str:
    """The end of the log whose last error is the newest, else of what `trinity run` printed."""
    logs = sorted((job / "log").rglob("*.log"), key=lambda log: log.stat().st_mtime)
    failed = [log for log in logs if "ERROR" in log.read_text(errors="replace")]
    log = failed[-1] if failed else folder / "trinity.log"
    lines = log.read_text(errors="replace").replace("\r", "").splitlines()
    return f"The end of {log}:\n" + "\n".join(lines[-TAIL:])
