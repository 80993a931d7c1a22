"""The state of a grid: from run directories in every state, and a lock that is really held."""

import json

import pytest
from filelock import FileLock

from r3l.core.errors import RunDirectoryError
from r3l.report.status import status_table
from r3l.runs.run_dir import locked
from r3l.workflow import plan, status

STEPS = {"seconds/collect": 3.0, "seconds/train": 1.0}


@pytest.fixture
def runs():
    """Six seeds of GRPO on ALFWorld."""
    content = plan.workflow_content() | {"envs": ["alfworld"], "methods": ["grpo"], "seeds": list(range(6))}
    config = plan.load(content)
    return plan.grid(config, config.envs, ["grpo"])


def write(results, path, run, steps, *files):
    folder = results / path
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(STEPS | {"step": k}) + "\n" for k in range(steps)))
    groups = {"all": {"success": 0.5, "episodes": 200}}
    result = {"tier": run.tier, "env": run.env, "method": run.method, "groups": groups}
    for name in files:
        text = {"manifest.json": {"fingerprint": run.fingerprint()}}.get(name, result)
        (folder / name).write_text(json.dumps(text))
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
    write(tmp_path, other, a, 2, "manifest.json")
    with FileLock(held / ".lock"):
        statuses = status.survey(runs, tmp_path)
    assert [s.state for s in statuses] == ["done", "trained", "running", "failed", "other", "missing"]
    assert [s.steps for s in statuses] == [planned, planned, planned // 2, 2, 0, 0]
    # 4 s a step; the missing and the other run take as long as those that are done
    left = [s.seconds_left for s in statuses]
    assert left == pytest.approx([0, 0, 4 * (planned - planned // 2), 4 * (planned - 2), 4 * planned, 4 * planned])
    assert "ZeroDivisionError" in statuses[3].error
    assert status_table(statuses).title == "1 of 6 runs done"


def test_a_failure_is_forgotten_when_the_command_runs_again(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert (tmp_path / "failed.json").is_file()
    with locked(tmp_path):
        assert not (tmp_path / "failed.json").exists()
    with locked(tmp_path), pytest.raises(RunDirectoryError, match="in use"), locked(tmp_path):
        pass
