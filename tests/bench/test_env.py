"""`r3l bench env` on real engines, and what is written of a bench."""

import json

import pytest
from program import run

from r3l.bench.env import spread
from r3l.cli import bench
from r3l.core.errors import ConfigError, RunDirectoryError
from r3l.core.task import Task


@pytest.mark.parametrize(
    ("env", "solved"), [("math", 2), pytest.param("alfworld", 2, marks=pytest.mark.slow), ("webshop", 2)]
)
def test_speed_and_memory_of_an_engine(monkeypatch, capsys, tmp_path, env, solved):
    out = tmp_path / "new" / "bench.json"
    code, text, err = run(monkeypatch, capsys, "bench", "env", env, "--tasks", 2, "--steps", 3, "--out", out, "--json")
    assert (code, err) == (0, "")
    report = json.loads(text)
    assert json.loads(out.read_text()) == report and report["solved"] == solved  # the expert's actions
    # A Python process alone has tens of megabytes; the machine has less than a terabyte.
    assert report["steps_per_s"] > 0.1 and 20 < report["rss_mb"] < 10**6
    assert 0 < report["step_ms"] < 60_000 and 0 < report["reset_ms"] < 60_000 and report["restore_ms"] > 0


def test_the_report_is_shown_even_where_it_can_no_longer_be_kept(capsys, tmp_path):
    """The place was checked before the work, and is gone after it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="choose another with --out"):
        bench._print_and_write({"tasks": 1}, tmp_path / "file" / "bench.json", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"tasks": 1}


def test_tasks_are_spread_over_the_task_set():
    tasks = [Task(str(k), "toy", "test") for k in range(10)]
    assert [task.id for task in spread(tasks, 4)] == ["0", "2", "5", "7"]
    assert spread(tasks, 0) == spread(tasks, 10) == tasks
    with pytest.raises(ConfigError, match="has 10 tasks"):
        spread(tasks, 11)
