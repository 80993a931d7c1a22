"""The real thing, small: train on the real ALFWorld engine, be killed, resume, evaluate."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from program import Program

from r3l.config import build_method, resolve
from r3l.core.errors import CheckpointError, DataError
from r3l.evaluation.evaluate import evaluate_run
from r3l.evaluation.publishing import publish
from r3l.evaluation.verification import verify
from r3l.files.digests import write_digests
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.paths import STORED_MODELS
from r3l.local.engine import collect, train
from r3l.local.session import open_session
from r3l.processes.pool import WorkerProcess
from r3l.runs import trajectory_log
from r3l.runs.step_metrics import base_success

STEPPING = ["train.tasks_per_step=2", "train.save_every=2", "threads=1", "method_settings.group_size=4"]
STOPPABLE = [*STEPPING, "env_settings.max_turns=4"]
SMALL = [*STEPPING, "workers=0"]
SHORT = [*SMALL, "env_settings.max_turns=6"]
STEPS = 4  # of a run that is stopped: short steps, so that the stop comes before the last


def small(method="r3l"):
    return resolve("nano", "alfworld", method, 0, overrides=[*SHORT, "train.steps=2"])


def stoppable(workers=0):
    """On templated mathematics, whose steps are short."""
    return resolve(
        "nano", "math", "r3l", 0, overrides=[*STOPPABLE, f"workers={workers}", f"train.steps={STEPS}"]
    )


def started(run_dir):
    """The command that makes the run of ``stoppable()``."""
    settings = [part for setting in [*STOPPABLE, "workers=1"] for part in ("--set", setting)]
    return Program(
        "r3l.cli", "train", "--env", "math", "--set", f"train.steps={STEPS}", "--run-dir", run_dir, *settings
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two steps on the real ALFWorld engine."""
    run_dir = tmp_path_factory.mktemp("finished")
    return run_dir, train(small(), run_dir)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The folder of the run that others are stopped in."""
    run_dir = tmp_path_factory.mktemp("uninterrupted")
    train(stoppable(), run_dir)
    return run_dir


@pytest.fixture(scope="module")
def evaluated(uninterrupted, tmp_path_factory):
    """A copy of that run, evaluated; its result."""
    run_dir = shutil.copytree(uninterrupted, tmp_path_factory.mktemp("evaluated"), dirs_exist_ok=True)
    return run_dir, evaluate_run(run_dir)


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGKILL, -9, ""),
        (signal.SIGTERM, 75, "\nstopped by SIGTERM; re-run to resume\n"),
        (signal.SIGINT, 130, "\nstopped by Ctrl-C; re-run to resume\n"),
    ],
)
def test_a_stop_and_resume_gives_the_same_bytes(uninterrupted, tmp_path, sent, code, said):
    """Sent to the process group, as by schedulers and terminals; but for SIGKILL it leaves a checkpoint of the
    last complete step."""
    program = started(tmp_path)
    while len(read_jsonl(tmp_path / "metrics.jsonl")) < 1 and program.process.is_alive():
        time.sleep(0.02)
    os.killpg(program.process.pid, sent)
    ended, _, stderr = program.wait()
    assert ended == code and stderr.endswith(said) and "Traceback" not in stderr
    assert not (tmp_path / "result.json").exists() and not (tmp_path / "failed.json").exists()
    if sent != signal.SIGKILL:
        steps = len(read_jsonl(tmp_path / "metrics.jsonl"))
        assert steps < STEPS and (tmp_path / "checkpoints" / f"step-{steps:06d}").is_dir()
    train(stoppable(), tmp_path)
    for name in ("result.json", trajectory_log.FILE):
        assert (tmp_path / name).read_bytes() == (uninterrupted / name).read_bytes()


def killing(monkeypatch, calls):
    """Kill the environment worker at these calls of it; how many there were, as the only item."""
    counted, call = [0], WorkerProcess.call

    async def disturbed(worker, *arguments):
        counted[0] += 1
        if counted[0] in calls:
            worker.process.kill()
        return await call(worker, *arguments)

    monkeypatch.setattr(WorkerProcess, "call", disturbed)
    return counted


@pytest.mark.filterwarnings("ignore:.*an episode is played again")
def test_a_lost_worker_leaves_no_trace(evaluated, tmp_path, monkeypatch):
    """In training and in evaluation; what was lost is counted in metrics.jsonl alone."""
    calls = {3, 50, 51}
    counted = killing(monkeypatch, calls)
    train(stoppable(workers=1), tmp_path)
    assert sum(row["dropped/workers"] for row in read_jsonl(tmp_path / "metrics.jsonl")) >= 2
    calls.clear()
    calls.add(counted[0] + 100)
    evaluate_run(tmp_path)
    assert counted[0] > max(calls)
    for name in ("result.json", trajectory_log.FILE, "evaluation.json", "episodes.jsonl"):
        assert (tmp_path / name).read_bytes() == (evaluated[0] / name).read_bytes()


def test_a_repeated_step_leaves_its_trajectories_once(uninterrupted, tmp_path):
    """Killed after the last step was written, before its checkpoint was: it is run again from the one
    before."""
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "checkpoints" / f"step-{STEPS:06d}")
    with (tmp_path / trajectory_log.FILE).open("ab") as file:
        file.write((uninterrupted / trajectory_log.FILE).read_bytes()[:100])  # and a line that it was writing
    train(stoppable(), tmp_path)
    assert (tmp_path / trajectory_log.FILE).read_bytes() == (uninterrupted / trajectory_log.FILE).read_bytes()
    assert {row["step"] for row in read_jsonl(tmp_path / trajectory_log.FILE)} == {1, STEPS // 2, STEPS}


def test_one_flipped_bit_of_the_weights_is_found(uninterrupted, tmp_path, caplog):
    """By an evaluation, which refuses; by training, which makes them again from the checkpoint before."""
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "checkpoints" / f"step-{STEPS:06d}" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    with pytest.raises(
        CheckpointError, match=rf"step-{STEPS:06d} is not the checkpoint that .*result.json names"
    ):
        evaluate_run(tmp_path)
    train(stoppable(), tmp_path)
    assert f"step-{STEPS:06d}: model.safetensors" in caplog.text
    for name in ("result.json", trajectory_log.FILE):
        assert (tmp_path / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_a_finished_run_stays_and_is_no_other_one(finished, tmp_path):
    run_dir, result = finished
    manifest = read_json(run_dir / "manifest.json")
    assert manifest["fingerprint"] == result["fingerprint"] == small().fingerprint()
    assert result["steps"] == 2 and (run_dir / result["checkpoint"]).is_dir()
    before = (run_dir / "metrics.jsonl").read_bytes()
    assert train(small(), run_dir) == result and (run_dir / "metrics.jsonl").read_bytes() == before
    with pytest.raises(CheckpointError, match="another configuration"):
        train(small(method="grpo"), run_dir)
    copied = shutil.copytree(run_dir, tmp_path / "copied", ignore=shutil.ignore_patterns("checkpoints"))
    for method in ("r3l", "grpo"):  # as a stored run has none
        with pytest.raises(CheckpointError, match="copied"):
            train(small(method), copied)
    assert (copied / "metrics.jsonl").read_bytes() == before and read_json(
        copied / "manifest.json"
    ) == manifest


def test_evaluation_covers_the_task_set(evaluated, tmp_path):
    run_dir, first = evaluated
    shutil.copytree(run_dir, tmp_path, dirs_exist_ok=True)
    episodes = (tmp_path / "episodes.jsonl").read_bytes()
    assert first["episodes"] == len(episodes.splitlines()) == first["task_set"]["tasks"] == 200
    assert first["groups"]["easy"]["episodes"] == first["groups"]["hard"]["episodes"] == 100
    assert sum(first["stops"].values()) == 200
    path = tmp_path / f"checkpoints/step-{STEPS:06d}/optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    with pytest.raises(DataError, match="optimizer.safetensors changed after it was written"):
        verify(tmp_path)


def test_a_model_that_is_played_as_it_is_is_not_copied(tmp_path, monkeypatch):
    """It is loaded from where it lies, exported from there, and refused once it is another one."""
    monkeypatch.chdir(tmp_path)
    model = shutil.copytree(STORED_MODELS / "math-1.5m", tmp_path / "mine")
    run = resolve(
        "nano", "math", "zero_shot", 0, str(model), ["evaluation.tasks=4", "workers=0", "threads=1"]
    )
    result = train(run, Path("run"))
    assert evaluate_run(Path("run"))["episodes"] == 4
    assert (
        sum(file.stat().st_size for file in Path("run").rglob("*"))
        < (model / "model.safetensors").stat().st_size
    )
    verify(Path("run"))
    assert train(run, Path("run")) == result and result["checkpoint"] is None
    publish(Path("run"), "out")
    assert Path("out/model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    with pytest.raises(CheckpointError, match="mine is no longer the model of run"):
        evaluate_run(Path("run"))


def test_a_lagging_sampler_survives_a_resume(tmp_path):
    """S = 2: step 2 samples with the weights before step 1, so old and new log-probs differ there; bytes
    repeat."""
    overrides = [*SMALL, "train.sync_interval=2", "train.save_every=1"]
    overrides += [
        "train.tasks_per_step=4",
        "train.lr=1e-2",
    ]  # enough groups that vary, and a policy that moves

    def run(steps):
        return resolve("nano", "math", "grpo", 0, overrides=[*overrides, f"train.steps={steps}"])

    train(run(4), tmp_path / "whole")
    halves = tmp_path / "halves"
    train(run(3), halves)
    for state in halves.glob(
        "checkpoints/*/trainer.json"
    ):  # as if the longer run had been stopped after step 3
        content = json.loads(state.read_text())
        state.write_text(json.dumps(content | {"fingerprint": run(4).fingerprint()}))
        write_digests(state.parent)
    shutil.copy(tmp_path / "whole" / "manifest.json", halves)
    (halves / "result.json").unlink()
    resumed = train(run(4), halves)
    assert resumed == json.loads((tmp_path / "whole" / "result.json").read_text())
    ratios = [row.get("clip_fraction", 0) for row in read_jsonl(tmp_path / "whole" / "metrics.jsonl")]
    assert ratios[0] == ratios[2] == 0 and max(ratios[1], ratios[3]) > 0


def test_dynamic_sampling_fills_the_batch_from_further_tasks(tmp_path):
    overrides = [*SMALL, "train.steps=1", "method_settings.sampling_rounds=3"]
    train(resolve("nano", "math", "dapo", 0, overrides=overrides), tmp_path)
    (row,) = read_jsonl(tmp_path / "metrics.jsonl")
    assert row["groups/policy"] + row["dropped/groups"] == row["rollouts"] / 4
    assert row["groups/policy"] <= 2 and row["groups/zero_variance"] == 0
    assert row["groups/policy"] == 2 or row["sampling_rounds"] == 3


@pytest.mark.parametrize(
    ("method", "size", "count"),
    [("r3l", 2, 5), ("grpo", 1, 4), ("r3l@pivot=random", 1, 2), ("dapo", 3, 3)],
)
def test_a_task_that_stands_in_a_step_again_has_noise_of_its_own(method, size, count):
    """More places than tasks; with DAPO rounds that draw refused tasks again (here all are refused, three
    times)."""
    run = resolve(
        "nano", "math", method, 0, overrides=["workers=0", "threads=1", f"train.tasks_per_step={count}"]
    )
    learner = build_method(run)
    learner.keep = lambda groups: learner.max_rounds == 1
    with open_session(run, run.model) as session:
        tasks = session.package.tasks(run.env_settings.train_task_set)[:size]
        collected = collect(session, learner, tasks, 1)
    played = [groups[0] for part in (collected.tasks, collected.refused) for groups in part]
    tokens = [(g.task.id, *(tuple(t.token_ids().tolist()) for t in g.trajectories)) for g in played]
    assert len(tokens) == count * learner.max_rounds == len(set(tokens))
    first = {g.task.address for g in played if g.task.occurrence == 0}
    assert first == {task.id for task in tasks}  # the address that every task had when there was no other


def test_every_step_accounts_for_its_tokens(finished):
    run_dir, result = finished
    kinds = ("rollout", "reflection", "retry")
    for row in read_jsonl(run_dir / "metrics.jsonl"):
        base = 2 * 2  # two tasks, N/2 base rollouts each
        assert row["rollouts"] == base + row.get("retry/count", 0) and row["reflection/count"] == base
        dropped = sum(v for k, v in row.items() if k.startswith("reflection/invalid/"))
        assert row.get("reflection/valid", 0) + dropped == base
        assert row["tokens/generated"] == sum(row.get(f"tokens/{kind}", 0) for kind in kinds)
        assert row["tokens/trained"] == sum(v for k, v in row.items() if k.startswith("trained/"))
        assert row["tokens/response"] >= row["tokens/masked"] >= 0 and row["entropy"] > 0
        assert row["rate/reflection_valid"] == row["reflection/valid"] / row["reflection/count"]
        assert row["rate/masked"] == row["tokens/masked"] / row["tokens/response"]
        assert row["rollouts"] == sum(v for k, v in row.items() if k.startswith("stop/"))
        assert row["train/success"] == base_success(row)
        assert (
            row["seconds/collect"] >= row["seconds/rollout"] + row["seconds/feedback"] + row["seconds/retry"]
        )
    assert result["budget"]["rollouts"] == sum(r["rollouts"] for r in read_jsonl(run_dir / "metrics.jsonl"))
    assert not any(key.startswith("seconds") for key in result["budget"])  # a result repeats byte for byte


def test_kl_needs_a_reference_and_changes_the_loss(tmp_path):
    overrides = [*SMALL, "train.steps=2", "method_settings.kl=k3", "method_settings.kl_coef=0.1"]
    overrides += ["train.kl_metric_every=2", "train.lr=1e-2"]
    train(resolve("nano", "math", "grpo", 0, overrides=overrides), tmp_path)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert (
        "kl_to_start" in rows[1] and rows[1]["kl_to_start"] > 0
    )  # measured after the step, every second one
    assert rows[0]["clip_fraction"] == 0  # on policy: the trainer's ratios to the sampled log-probs are 1
    assert rows[0]["loss/kl"] == pytest.approx(0, abs=1e-5)  # the first step's model is its own reference


def test_a_checkpoint_is_due_by_time_too(tmp_path):
    def saved(minutes):
        settings = [*SHORT, "train.steps=2", "train.save_every=100", f"train.save_minutes={minutes}"]
        train(resolve("nano", "math", "grpo", 0, overrides=settings), tmp_path / str(minutes))
        return sorted(path.name for path in (tmp_path / str(minutes) / "checkpoints").glob("step-*"))

    assert (saved(30), saved(0.0001)) == (["step-000002"], ["step-000001", "step-000002"])


def test_a_run_that_is_refused_leaves_no_folder(tmp_path):
    """Its status would be that of a run that failed."""
    where = tmp_path / "nano/math/math-1.5m/grpo/seed0"
    with pytest.raises(CheckpointError, match="named as another run"):
        train(resolve("nano", "math", "r3l", 0), where)
    assert not where.exists()
