"""guess.py keeps its rules and trains a step. Copy this test for an environment of your own."""

from pathlib import Path

import pytest

import r3l
from r3l.config import environment_of
from r3l.files.json_files import read_jsonl
from r3l.processes.worker import RecordedEnvironment

STEP = {"train.steps": 1, "train.tasks_per_step": 2, "method_settings.group_size": 2, "workers": 0}


@pytest.fixture(autouse=True)
def this_folder(monkeypatch):
    monkeypatch.setenv("R3L_ENVS", str(Path(__file__).parent))


def test_it_plays_by_its_rules_and_its_player_halves():
    package = environment_of("guess")
    task = next(t for t in package.tasks("test") if t.payload["number"] == 1)
    engine = RecordedEnvironment(package.create({}))
    seen = [engine.reset(task)]
    answers = []
    while not seen[-1].done:
        action = package.good_actions(seen[0].text, answers)[0]
        seen.append(engine.step(action))
        answers.append((action, seen[-1].text))
    assert [action for action, _ in answers] == [f"guess {n}" for n in (16, 8, 4, 2, 1)]
    assert [text for _, text in answers] == ["Lower."] * 4 + ["Right."] and seen[-1].reward == 1
    assert package.good_actions("", [("guess 16", "Higher."), ("guess 24", "Lower.")])[0] == "guess 20"
    assert engine.rewind(1) == seen[1]  # without snapshots, by playing again


def test_a_step_trains(tmp_path):
    """With a model trained on something else, which plays badly but runs the same code."""
    run_dir = r3l.train("guess", "grpo", model="math-1.5m", settings=STEP, run_dir=tmp_path / "run")
    (step,) = read_jsonl(run_dir / "metrics.jsonl")
    assert step["rollouts"] == 2 * 2 and step["tokens/generated"] > 0
