"""The held-out learning curve: what is played on the way changes nothing, and its last point is the final
score."""

import json
import shutil

import pytest
from program import run as command

from r3l.api import running
from r3l.config import build_method, resolve
from r3l.core.errors import ConfigError, DataError
from r3l.evaluation import curve
from r3l.evaluation.evaluate import evaluate_run
from r3l.evaluation.verification import SUMS, verify
from r3l.files.json_files import read_json, read_jsonl
from r3l.local.engine import collect
from r3l.local.session import open_session
from r3l.runs.preemption import Preempted

SMALL = [
    *("train.tasks_per_step=2", "train.steps=3", "threads=1", "method_settings.group_size=4", "workers=0"),
    *("env_settings.max_turns=4", "evaluation.tasks=12", "train.save_every=1"),
]


def run_of(*settings):
    return resolve("nano", "math", "r3l", 0, overrides=[*SMALL, *settings])


@pytest.fixture(scope="module")
def curved(tmp_path_factory):
    """A run that plays its test tasks after updates 1 and 3, the last."""
    run_dir = tmp_path_factory.mktemp("curved")
    running.train_run(run_of("evaluation.curve=[1,3]"), run_dir)
    return run_dir


def without_seconds(metrics):
    return [{k: v for k, v in row.items() if "second" not in k and "per_s" not in k} for row in metrics]


def test_playing_test_tasks_on_the_way_changes_nothing_of_the_run(curved, tmp_path):
    running.train_run(run_of(), tmp_path)
    assert run_of("evaluation.curve=[1,3]").fingerprint() == run_of().fingerprint()
    assert read_json(curved / "result.json") == read_json(tmp_path / "result.json")  # weights, budget, scores
    ours, theirs = (without_seconds(read_jsonl(where / "metrics.jsonl")) for where in (curved, tmp_path))
    assert ours == theirs


def test_time_of_test_tasks_is_not_booked_as_rollouts_of_the_next_step(tmp_path):
    """One task with two rollouts takes less time than the 12 test tasks before it."""
    run = run_of("evaluation.curve=[1]", "train.tasks_per_step=1", "method_settings.group_size=2")
    with open_session(run, run.model) as session:
        curve.record_point(session, tmp_path, 1)
        tasks = session.package.tasks(run.env_settings.train_task_set)
        collected = collect(session, build_method(run), tasks, 2)
    assert collected.metrics["seconds/rollout"] <= collected.metrics["seconds/collect"]


def test_the_last_point_is_the_final_score_and_verification_says_so(curved, tmp_path):
    points = read_jsonl(curved / "curve.jsonl")
    assert [point["step"] for point in points] == [1, 3]
    assert not (curved / "curve").exists()
    evaluation = evaluate_run(curved)
    assert points[-1]["groups"] == evaluation["groups"]
    assert points[-1]["stops"] == evaluation["stops"]
    assert len(points[-1]["solved"]) == sum(e["success"] for e in read_jsonl(curved / "episodes.jsonl"))
    verify(curved)
    changed = tmp_path / "run"
    shutil.copytree(curved, changed)
    points[-1]["groups"]["all"]["success"] += 0.5
    (changed / SUMS).unlink()
    (changed / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    with pytest.raises(DataError, match=r"curve.jsonl: 'groups'"):
        verify(changed)


def test_a_resumed_run_plays_what_its_checkpoint_does_not_hold(tmp_path):
    run = run_of("evaluation.curve=[1,2,3]")
    running.train_run(run, tmp_path)
    points = (tmp_path / "curve.jsonl").read_bytes()
    (tmp_path / "result.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "step-000003")
    running.train_run(run, tmp_path)
    assert (tmp_path / "curve.jsonl").read_bytes() == points


@pytest.mark.parametrize("update", [1, 3])
def test_a_run_stopped_while_its_test_tasks_play_plays_them_when_resumed(
    update, curved, tmp_path, monkeypatch
):
    play_all = curve.play_all

    def stopped(session, tasks, path, key):
        if key["update"] == str(update):
            raise Preempted("stopped by SIGTERM")
        return play_all(session, tasks, path, key)

    run = run_of("evaluation.curve=[1,3]")
    with monkeypatch.context() as patch, pytest.raises(Preempted):
        patch.setattr(curve, "play_all", stopped)
        running.train_run(run, tmp_path)
    running.train_run(run, tmp_path)
    assert (tmp_path / "curve.jsonl").read_bytes() == (curved / "curve.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["evaluation.curve=[1,4]"], "update 4, but train.steps is 3"),
        (["evaluation.curve=[1]", "train.sync_interval=2"], "update 1, but train.sync_interval is 2"),
        (["evaluation.curve=[1]", "engine=trinity"], "needs the local engine"),
        (["evaluation.curve=[1]", "train.steps=0"], "trains nothing"),
    ],
)
def test_a_curve_that_cannot_be_played_is_refused_before_any_work(settings, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        running.train_run(run_of(*settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_curve_of_a_method_that_trains_nothing_is_refused(monkeypatch, capsys, tmp_path):
    """Also by `r3l evaluate`, whose runs train nothing."""
    monkeypatch.chdir(tmp_path)
    zero_shot = resolve("nano", "math", "zero_shot", 0, overrides=["evaluation.curve=[1]"])
    with pytest.raises(ConfigError, match=r"zero_shot trains nothing: leave it out"):
        running.train_run(zero_shot, tmp_path / "run")
    words = ("evaluate", "math", "--tier", "nano", "--model", "math-1.5m", "--set", "evaluation.curve=[1]")
    code, _, err = command(monkeypatch, capsys, *words)
    assert code == 2 and "trains nothing: leave it out" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("began", "resumed", "names"),
    [
        ("[1,2,3]", "[1,3]", r"has updates \[1, 2\]"),
        ("[1,2,3]", "[]", r"has updates \[1, 2\]"),
        ("[]", "[1,3]", r"has updates \[\]"),
        ("[1,3]", "[1,2,3]", None),  # update 2 is that of the checkpoint: it can still be played
        ("[1,2]", "[1,2,3]", None),
    ],
)
def test_a_run_resumes_with_the_curve_that_it_has_recorded(began, resumed, names, tmp_path):
    """Else it could be finished, but not verified."""
    running.train_run(run_of(f"evaluation.curve={began}"), tmp_path)
    (tmp_path / "result.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "step-000003")
    manifest = (tmp_path / "manifest.json").read_bytes()
    again = run_of(f"evaluation.curve={resumed}")
    if names:
        with pytest.raises(ConfigError, match=rf"curve\.jsonl {names} up to the checkpoint of update 2"):
            running.train_run(again, tmp_path)
        assert (tmp_path / "manifest.json").read_bytes() == manifest
        again = run_of(f"evaluation.curve={began}")
    running.train_run(again, tmp_path)
    evaluate_run(tmp_path)  # and verifies


def test_updates_of_a_curve_ascend():
    with pytest.raises(ConfigError, match="ascending"):
        run_of("evaluation.curve=[3,1]")
