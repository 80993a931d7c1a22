"""A base checkpoint from SFT in another environment gives a warning, in training and with its scores."""

import json
import logging
import shutil

import pytest
from program import run
from report.runs import rewrite, write_run

from r3l.config import Run, base_checkpoint_of, base_checkpoint_warning, resolve
from r3l.core.errors import ConfigError
from r3l.files import paths
from r3l.files.json_files import read_json
from r3l.files.paths import EXAMPLES
from r3l.report import tables
from r3l.report.frame import all_tasks
from r3l.report.html import page
from r3l.report.reading import read_runs
from r3l.workflow import plan


def test_a_model_of_another_environment_is_named(tmp_path):
    said = base_checkpoint_warning(resolve("nano", "alfworld", "r3l", 0, "math-1.5m"))
    assert said.startswith("base checkpoint math-1.5m learned math in SFT, not alfworld")
    assert (
        base_checkpoint_warning(resolve("nano", "dapo_templated", "r3l", 0, "math-1.5m")) is None
    )  # mathematics too
    mine = tmp_path / "mine"
    mine.mkdir()
    assert base_checkpoint_warning(resolve("nano", "alfworld", "r3l", 0, str(mine))) is None  # not known
    (mine / "sft.json").write_text(json.dumps({"config": {"env": "webshop"}, "weights_sha256": "ab"}))
    assert "mine learned webshop" in base_checkpoint_warning(resolve("nano", "alfworld", "r3l", 0, str(mine)))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("phases: [1]", "key 'env' is missing; add it"),
        ("env: math", "key 'phases' is missing; add it"),
        ("env: math\nphases: []", "key 'phases' has value .*at least 1 item"),
        ("env: math\nphases: null", "key 'phases' has value None"),
        ("env: [math]\nphases: [1]", "key 'env' has value .*valid string"),
    ],
)
def test_a_recipe_without_what_a_run_reads_of_it_is_one_paragraph(tmp_path, monkeypatch, recipe, words):
    run = resolve("nano", "math", "grpo", 0)
    staged = run.model_copy(update={"env_settings": run.env_settings.model_copy(update={"sft": "mine"})})
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "mine.yaml").write_text(recipe)
    for name in ("envs", "models"):
        (tmp_path / name).symlink_to(paths.CONFIGS / name)
    monkeypatch.setattr(paths, "CONFIGS", tmp_path)
    for read in (base_checkpoint_of, base_checkpoint_warning, Run.fingerprint):
        with pytest.raises(ConfigError, match=f"mine.yaml: {words}"):
            read(staged)


def test_train_says_so_and_the_run_keeps_it(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    command = ("train", "--env", "math", "--method", "zero_shot", "--model", "puzzles-1.5m", "--run-dir", "x")
    with caplog.at_level(logging.WARNING):
        code, _, err = run(monkeypatch, capsys, *command)
    assert code == 0, err
    assert "base checkpoint puzzles-1.5m learned puzzles in SFT, not math" in caplog.text
    assert read_json(tmp_path / "x" / "manifest.json")["start_model_warning"].startswith(
        "base checkpoint puzzles-1.5m"
    )


def test_tables_and_the_report_say_so(tmp_path):
    path = write_run(tmp_path, "grpo", 0, [1], [0])
    manifest = json.loads((path.parent / "manifest.json").read_text()) | {
        "start_model_warning": "taught math"
    }
    rewrite(path.parent / "manifest.json", json.dumps(manifest))
    runs = read_runs([path])
    table = tables.build(plan.tables()["table1"], runs, ["grpo"], 1, "nano")
    assert set(table.rows.warning) == {"taught math"}
    assert "nano/test: taught math." in table.printed.notes
    assert page.about(all_tasks(runs), [(table.rows, None)])["warnings"] == ["alfworld: taught math"]


def test_an_own_environment_without_a_model_is_refused_where_the_tiers_was_taught_another_one(
    tmp_path, monkeypatch
):
    """At nano it would begin from ALFWorld's checkpoint and score 0. A model of its own, one of --model and a
    tier with a published model are fine."""
    monkeypatch.setenv("R3L_ENVS", str(tmp_path))
    shutil.copy(EXAMPLES / "guess.py", tmp_path)
    text = (EXAMPLES / "guess.yaml").read_text()
    (tmp_path / "guess.yaml").write_text(text)
    assert resolve("nano", "guess", "r3l", 0).model == "guess"
    without = text.replace(", model: guess}", "}").replace(
        '  tiers.nano.model: "made by r3l sft guess"\n', ""
    )
    assert "model:" not in without
    (tmp_path / "guess.yaml").write_text(without)
    for method in ("r3l", "zero_shot"):
        with pytest.raises(ConfigError, match=r"Add `model: NAME` under tiers.nano in guess.yaml, or give"):
            resolve("nano", "guess", method, 0)
    assert resolve("nano", "guess", "r3l", 0, "math-1.5m").model == "math-1.5m"
    assert resolve("smol", "guess", "r3l", 0).model
