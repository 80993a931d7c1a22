"""The state of a grid: from run directories in every state, and a lock that is really held."""

import errno
import json
import os

import pytest
from filelock import FileLock

from r3l.config import resolve
from r3l.core.errors import RunDirectoryError
from r3l.report.progress import status_table
from r3l.runs.run_dir import locked
from r3l.workflow import plan, status
from tests.report.runs import write_run

STEPS = {"seconds/collect": 3.0, "seconds/train": 1.0}


@pytest.fixture
def runs():
    """Six seeds of GRPO on ALFWorld."""
    content = plan.workflow_content() | {"envs": ["alfworld"], "methods": ["grpo"], "seeds": list(range(6))}
    config = plan.load(content)
    return plan.grid(config, config.envs, ["grpo"])


def write(results, path, run, steps, *files):
    """A run as its files say: of its own fingerprint, half of it solved."""
    made = write_run(
        results, run.method, run.seed, [1, 0], [1, 0], steps=[STEPS | {"step": k} for k in range(steps)]
    )
    folder = made.parent
    assert folder == results / path
    own = json.loads((folder / "manifest.json").read_text()) | {"fingerprint": run.fingerprint()}
    (folder / "manifest.json").write_text(json.dumps(own))
    for name in {"manifest.json", "result.json", "evaluation.json", "SHA256SUMS"} - {*files}:
        (folder / name).unlink()
    return folder


def test_every_state_is_told_apart(runs, tmp_path):
    (done, a), (trained, b), (running, c), (failed, d), (other, e), (missing, _) = runs.items()
    planned = a.train.steps
    write(tmp_path, done, a, planned, "manifest.json", "result.json", "evaluation.json")
    write(tmp_path, trained, b, planned, "manifest.json", "result.json")
    held = write(tmp_path, running, c, planned // 2, "manifest.json")
    broken = write(tmp_path, failed, d, 2, "manifest.json")
    with pytest.raises(ZeroDivisionError), locked(broken):
        raise ZeroDivisionError
    changed = write(tmp_path, other, e, 2, "manifest.json") / "manifest.json"
    changed.write_text(changed.read_text().replace(e.fingerprint(), "of another configuration"))
    with FileLock(held / ".lock"):
        statuses = status.survey(runs, tmp_path)
    assert [s.state for s in statuses] == ["done", "trained", "running", "failed", "other", "missing"]
    assert [s.steps for s in statuses] == [planned, planned, planned // 2, 2, 0, 0]
    # 4 s a step; the missing and the other run take as long as those that are done
    left = [s.seconds_left for s in statuses]
    assert left == pytest.approx(
        [0, 0, 4 * (planned - planned // 2), 4 * (planned - 2), 4 * planned, 4 * planned]
    )
    assert "ZeroDivisionError" in statuses[3].error
    assert status_table(statuses).title == "1 of 6 runs done"


def test_a_method_that_trains_nothing_has_no_steps_and_no_time_left(tmp_path):
    run = resolve("smol", "gsm8k_lines", "warm_start", 0)
    (found,) = status.survey({run.directory: run}, tmp_path)
    assert (found.state, found.planned, found.seconds_left) == ("missing", 0, 0)
    (tmp_path / run.directory).mkdir(parents=True)
    (tmp_path / run.directory / "manifest.json").write_text("null")
    (found,) = status.survey({run.directory: run}, tmp_path)
    assert (found.state, found.planned) == ("damaged", 0)


def test_finished_runs_that_may_only_be_read_are_done(runs, tmp_path, monkeypatch):
    """As on a disk that is mounted read-only: asking whether a process is at work writes nothing."""
    (path, run), *_ = runs.items()
    folder = write(tmp_path, path, run, run.train.steps, "manifest.json", "result.json", "evaluation.json")
    (folder / ".lock").touch()
    held = FileLock(folder / ".lock")
    opened = os.open

    def read_only(name, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))
        return opened(name, flags, *rest, **more)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", read_only)
        assert status.survey({path: run}, tmp_path)[0].state == "done"
    with held:
        assert status.survey({path: run}, tmp_path)[0].state == "running"


def test_a_failure_is_forgotten_when_the_command_runs_again(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert (tmp_path / "failed.json").is_file()
    with locked(tmp_path):
        assert not (tmp_path / "failed.json").exists()
    with locked(tmp_path), pytest.raises(RunDirectoryError, match="in use"), locked(tmp_path):
        pass


DAMAGE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"error": 3}',
    b'{"error"',
    b"\xff\xfe{}",
    b"NaN",
    b"1" * 5000,
    b"[" * 99_999,
]


@pytest.mark.parametrize(
    "name", ["failed.json", "manifest.json", "evaluation.json", "metrics.jsonl", "result.json"]
)
def test_a_damaged_file_names_itself_and_the_other_runs_are_shown(runs, tmp_path, name):
    (bad, a), (good, b), *_ = runs.items()
    planned = a.train.steps
    finished = ("manifest.json", "result.json", "evaluation.json")
    folder = write(tmp_path, bad, a, planned, *(() if name == "metrics.jsonl" else finished))
    write(tmp_path, good, b, planned, *finished)
    if name == "metrics.jsonl":
        (folder / "manifest.json").write_bytes((tmp_path / good / "manifest.json").read_bytes())
    for content in DAMAGE:
        (folder / name).write_bytes(content * 2 if name.endswith("l") else content)
        damaged, other, *_ = status.survey(runs, tmp_path)
        assert other.state == "done"
        if damaged.state == "damaged":
            assert (
                str(folder / name) in damaged.error and "\n" not in damaged.error and len(damaged.error) < 600
            )
        else:
            assert name in ("result.json", "metrics.jsonl"), (
                content
            )  # which the state of a finished run is not read from
