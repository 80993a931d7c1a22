"""A run's directory: what is in the way of another configuration is renamed; what ends a run is noted in
it."""

import json
import shutil

import pytest

from r3l.config import resolve
from r3l.core.errors import CheckpointError, RunDirectoryError
from r3l.files.json_files import append_jsonl
from r3l.runs.run_dir import check_owner, locked, move_aside


def test_a_directory_of_another_configuration_is_renamed_never_deleted(tmp_path):
    for expected in ("seed0.old", "seed0.old.2"):
        run_dir = tmp_path / "seed0"
        run_dir.mkdir()
        (run_dir / "manifest.json").write_text(json.dumps({"fingerprint": "old"}))
        assert move_aside(run_dir, "old") is None
        assert move_aside(run_dir, "new") == tmp_path / expected
        assert not run_dir.exists() and (tmp_path / expected / "manifest.json").is_file()


@pytest.fixture
def run():
    return resolve("nano", "math", "grpo", 0)


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_without_its_checkpoints_is_never_written_over(tmp_path, run, changed):
    """A stored run that was copied, or one whose checkpoints somebody deleted: finished, and nothing to
    resume from."""
    run_dir, own = tmp_path / "seed0", run.fingerprint()
    (run_dir / "checkpoints" / "step-000001").mkdir(parents=True)
    for name in ("manifest.json", "result.json"):
        (run_dir / name).write_text(json.dumps({"fingerprint": own}))
    check_owner(run_dir, run)
    shutil.rmtree(run_dir / "checkpoints")
    now = run.model_copy(update={"seed": 1}) if changed else run
    with pytest.raises(CheckpointError, match=r"seed0.* another directory .*--set-aside"):
        check_owner(run_dir, now)
    assert move_aside(run_dir, now.fingerprint()) == tmp_path / f"seed0.{own}"
    check_owner(run_dir, now)


def test_a_directory_named_as_another_run_is_refused_before_work(tmp_path, run):
    """Its scores would be refused in the end: verify and tables read from the name which run it is."""
    for name in (run.directory, "mine/of/any/name/seed5", "nano/math/mine"):
        check_owner(tmp_path / name, run)
    for name in (run.directory.replace("seed0", "seed5"), run.directory.replace("/grpo/", "/r3l/")):
        with pytest.raises(CheckpointError, match=f"named as another run than {run.directory}"):
            check_owner(tmp_path / name, run)


def test_what_differs_from_the_run_in_a_directory_is_named(tmp_path, run):
    """Its values there and here; that of what changes no result is not among them."""
    other = run.model_copy(
        update={"evaluation": run.evaluation.model_copy(update={"batch": 7}), "workers": 9}
    )
    manifest = {
        "fingerprint": other.fingerprint(),
        "run": other.model_dump(mode="json"),
        "inputs": other.inputs(),
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    batch = run.evaluation.batch
    assert run.differences(manifest) == [f"evaluation.batch is 7 there and {batch} here"]
    with pytest.raises(
        CheckpointError, match=rf"[0-9a-f]: evaluation.batch is 7 there and {batch} here. To run this"
    ):
        check_owner(tmp_path, run)
    others = run.model_copy(update={"seed": 1, "threads": 7, "compute_dtype": "bfloat16"})
    with pytest.raises(CheckpointError, match=r"is 7 there and .*; and 1 more\. To"):
        check_owner(tmp_path, others)


def full_disk(run_dir):
    (run_dir / "metrics.jsonl").symlink_to("/dev/full")


def no_folder(run_dir):
    shutil.rmtree(run_dir)
    run_dir.write_text("")


@pytest.mark.parametrize("harm", [shutil.rmtree, full_disk, no_folder])
def test_a_directory_lost_in_the_middle_of_a_run_is_one_paragraph(tmp_path, harm):
    run_dir = tmp_path / "seed0"
    one_paragraph = pytest.raises(
        RunDirectoryError, match="seed0 was deleted or can no longer be written .* resumes"
    )
    with one_paragraph as lost, locked(run_dir):
        harm(run_dir)
        append_jsonl(run_dir / "metrics.jsonl", {"step": 1})
    assert "\n" not in str(lost.value)
    assert run_dir.is_dir() == (harm is full_disk)  # what somebody deleted does not come back


def test_the_key_is_not_in_the_note_of_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(ValueError), locked(tmp_path):
        raise ValueError("server said: Bearer sk-secret")
    assert json.loads((tmp_path / "failed.json").read_text()) == {
        "error": "ValueError: server said: Bearer ***"
    }


def test_a_run_with_scores_and_without_checkpoints_is_never_trained_over(tmp_path, run):
    """Its result may be gone: what it scored cannot be made again from nothing."""
    (tmp_path / "manifest.json").write_text(json.dumps({"fingerprint": run.fingerprint()}))
    (tmp_path / "evaluation.json").write_text(json.dumps({"fingerprint": run.fingerprint()}))
    with pytest.raises(CheckpointError, match="this run is already finished"):
        check_owner(tmp_path, run)
    (tmp_path / "checkpoints" / "step-000001").mkdir(parents=True)
    check_owner(tmp_path, run)


@pytest.mark.parametrize("name", ["evaluation.json", "result.json"])
def test_scores_of_another_configuration_are_not_those_of_this_run(tmp_path, run, name):
    """A directory without manifest: settings changed since its scores were made, so they are another run's."""
    run_dir = tmp_path / "seed0"
    run_dir.mkdir()
    before = run.model_copy(update={"threads": 7}).fingerprint()
    (run_dir / name).write_text(json.dumps({"fingerprint": before}))
    another = rf"{name} is of a run with another configuration, {before} and not {run.fingerprint()}\. To"
    with pytest.raises(CheckpointError, match=another):
        check_owner(run_dir, run)
    assert move_aside(run_dir, run.fingerprint()) == tmp_path / f"seed0.{before}"


def test_scores_without_manifest_are_set_aside_as_the_error_says(tmp_path, run):
    run_dir, own = tmp_path / "seed0", run.fingerprint()
    run_dir.mkdir()
    (run_dir / "evaluation.json").write_text(json.dumps({"fingerprint": own}))
    with pytest.raises(CheckpointError, match="this run is already finished .*--set-aside"):
        check_owner(run_dir, run)
    assert move_aside(run_dir, own) == tmp_path / f"seed0.{own}"
    assert move_aside(run_dir, own) is None  # nothing is there any more
