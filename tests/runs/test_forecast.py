"""A forecast from the first steps of a training, by hand and beside what the training then took."""

import json

import pytest
from program import run

from r3l.config import resolve
from r3l.report.gpu_hours import training_hours
from r3l.runs import forecast
from r3l.workflow.resources import load, requested_resources


def measured(run, reported, ended, phases):
    times = forecast.StepTimes(began=0.0, reported=list(reported))
    times.metrics += [{"seconds/collect": collect, "seconds/train": train} for collect, train in phases]
    return times.forecast(run, ended)


# Reports at 100, 130 and 170 s: a step takes 35 s, so 65 s passed before the first. Of 35 s collecting takes
# (20 + 24) / 2, the update (6 + 8) / 2, the rest 6. The export ends 9 s after the last report.
REPORTED = (100.0, 130.0, 170.0)
PHASES = ((50.0, 30.0), (20.0, 6.0), (24.0, 8.0))


def test_phases_by_hand():
    nano = resolve("nano", "alfworld", "r3l", 0)
    found = measured(nano, REPORTED, 179.0, PHASES)
    phases = {key: found[key] for key in ("start", "collect", "train", "between", "end")}
    assert phases == pytest.approx({"start": 65, "collect": 22, "train": 7, "between": 6, "end": 9})
    assert forecast.seconds(found, 3) == pytest.approx(179)  # what it was measured on
    assert forecast.seconds(found, 740) == pytest.approx(65 + 740 * 35 + 9)
    assert forecast.sentences(found, 740) == (
        "forecast for 740 steps, from 2 measured after the first: 7 h 13 min\n"
        "start 1 min, a step 35.0 s (collect 22.0 s, train 7.0 s, between 6.0 s), end 9.0 s"
    )


def test_evaluations_are_added():
    """9 s at steps 20, 40 and 60; the one before the first step is in `start`."""
    nano = resolve("nano", "alfworld", "r3l", 0)
    found = {**measured(nano, REPORTED, 179.0, PHASES), "evaluation": 9.0, "evaluate_every": 20}
    assert forecast.seconds(found, 61) == pytest.approx(65 + 61 * 35 + 9 + 3 * 9)
    assert forecast.sentences(found, 61).endswith("end 9.0 s, every 20 steps an evaluation, 9.0 s")


def test_walltimes_come_from_the_forecast_of_the_same_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = resolve("paper", "alfworld", "r3l", 0, "qwen2.5-1.5b", ["train.steps=3"])
    full = resolve("paper", "alfworld", "r3l", 2, "qwen2.5-1.5b", ["train.steps=100"])
    by_the_paper = training_hours(full)
    # The workflow renames the directory of a shortened run.
    folder = tmp_path / "results" / f"{short.directory}.{short.fingerprint()}"
    folder.mkdir(parents=True)
    forecast.write(measured(short, REPORTED, 179.0, PHASES), folder)

    assert training_hours(full) == pytest.approx((65 + 100 * 35 + 9) / 3600)
    # 30 minutes, and 1.5 times 3,574 seconds: 89.35 minutes.
    assert requested_resources(load(), "train", full, training_hours(full)).runtime == 30 + 90
    other = resolve(
        "paper", "alfworld", "r3l", 0, "qwen2.5-1.5b", ["train.steps=100", "train.tasks_per_step=8"]
    )
    assert training_hours(other) == pytest.approx(by_the_paper)


def test_a_forecast_of_other_gpus_is_not_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned = resolve("paper", "alfworld", "r3l", 0, "qwen2.5-1.5b")
    expected = training_hours(planned)
    folder = tmp_path / "results" / planned.directory
    folder.mkdir(parents=True)
    forecast.write({**measured(planned, REPORTED, 179.0, PHASES), "gpus": 16}, folder)
    assert training_hours(planned) == expected


def test_a_shortened_training_ends_with_a_forecast(monkeypatch, capsys, tmp_path):
    given = ["train", "--env", "math", "--method", "grpo", "--set", "workers=0"]
    given += ["--set", "train.tasks_per_step=2", "--set", "train.steps=2", "--run-dir", tmp_path / "run"]
    code, text, _ = run(monkeypatch, capsys, *given)
    assert code == 0
    assert "forecast for 60 steps, from 1 measured after the first: " in text
    found = json.loads((tmp_path / "run" / forecast.FILE).read_text())
    assert found["measured"] == 1 and found["gpus"] == 0
    assert min(found[phase] for phase in ("collect", "train", "end")) > 0

    # The finished run is not measured again.
    code, text, _ = run(monkeypatch, capsys, *given)
    assert code == 0 and "forecast" not in text
