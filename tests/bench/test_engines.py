"""``r3l bench env`` on the real engines: the same words at the top of every report."""

import json

import pytest
from program import run

from r3l.bench.engines import HEADLINE
from r3l.cli import bench
from r3l.core.errors import RunDirectoryError
from r3l.core.task import Task

SMALL = {
    "alfworld": ["--tasks", 2, "--steps", 3],
    "scienceworld": ["--tasks", 1, "--steps", 1],
    "webshop": ["--tasks", 2, "--steps", 3],
    "math": ["--tasks", 3],
    "knights_knaves": ["--tasks", 3],
}


LONG = ("alfworld", "scienceworld")  # houses, a simulator: started for every task


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SMALL])
def test_every_report_begins_with_speed_and_memory(monkeypatch, capsys, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "new" / "bench.json"
    code, text, err = run(monkeypatch, capsys, "bench", "env", name, *SMALL[name], "--out", out, "--json")
    assert (code, err) == (0, "")
    report = json.loads(text)
    assert tuple(report)[: len(HEADLINE)] == HEADLINE and json.loads(out.read_text()) == report
    # A Python process alone has tens of megabytes; the machine has less than a terabyte.
    assert report["steps_per_s"] > 0.1 and 20 < report["rss_mb"] < 10**6
    assert 0 < report["step_ms"] < 60_000 and 0 < report["reset_ms"] < 60_000


def test_the_report_is_shown_even_where_it_can_no_longer_be_kept(capsys, tmp_path):
    """The place was checked before the work, and is gone after it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="choose another with --out"):
        bench._print_and_write({"tasks": 1}, tmp_path / "file" / "bench.json", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"tasks": 1}


def test_tasks_are_spread_over_the_panel():
    from r3l.bench.engines import spread

    tasks = [Task(str(k), "toy", "test") for k in range(10)]
    assert [task.id for task in spread(tasks, 4)] == ["0", "2", "5", "7"]
    assert spread(tasks, 0) == spread(tasks, 10) == tasks
