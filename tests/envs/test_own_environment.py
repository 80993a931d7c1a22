"""An environment of one file and one config outside the package works like the package's own."""

import json
import shutil
from pathlib import Path

import pytest
from program import Program, run

from r3l.config import (
    base_checkpoint_of,
    base_checkpoint_warning,
    build_method,
    environment_of,
    load,
    names,
    own_variables,
    resolve,
)
from r3l.config import sft_recipe as recipe
from r3l.config.environment import EnvConfig
from r3l.config.user_recipe import USER_RECIPE
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.trinity.config import Place, trinity_config
from r3l.workflow import plan
from r3l.workflow.jobs import Jobs
from r3l.workflow.task_sets import task_set_hashes

EXAMPLES = ROOT / "examples"
TIERS = "nano: {train_task_set: train, test_task_set: test, max_turns: 4}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the example and a method, named by both variables; the working directory is another
    one."""
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in EXAMPLES.glob("*.*"):
        shutil.copy(path, mine)
    for variable in ("R3L_ENVS", "R3L_METHODS"):
        monkeypatch.setenv(variable, str(mine))
    monkeypatch.chdir(tmp_path)
    return mine


def test_tasks_are_the_same_whenever_they_are_drawn(folder):
    package = environment_of("guess")
    train, test = package.tasks("train"), package.tasks("test")
    assert (len(train), len(test)) == (200, 100) and not {t.id for t in train} & {t.id for t in test}
    assert package.tasks("train") == train and package.task_set_hash("train") != package.task_set_hash("test")
    with pytest.raises(ConfigError, match="guess task set 'nano/train' is unknown; it has train, test"):
        package.tasks("nano/train")


def test_every_verb_takes_it(folder, monkeypatch, capsys):
    """The commands of docs/extending.md, with a base checkpoint of few steps."""
    short = USER_RECIPE["phases"][0] | {"tasks": 30, "steps": 4, "decay_steps": 4, "warmup_steps": 1}
    monkeypatch.setitem(USER_RECIPE, "phases", [short])

    def r3l(*arguments):
        code, out, err = run(monkeypatch, capsys, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    code, _, err = run(monkeypatch, capsys, "train", "--env", "guess", "--method", "grpo")
    assert code == 2 and "r3l sft guess" in err
    manifest = r3l("sft", "guess")
    assert (folder / "models" / "guess" / "model.safetensors").is_file() and len(manifest["loss"]) == 1
    steps = ("--set", "train.tasks_per_step=2", "--set", "train.steps=1", "--set", "evaluation.tasks=10")
    for method in ("grpo", "r3l"):
        r3l("train", "--env", "guess", "--method", method, *steps)
        r3l("evaluate", f"results/nano/guess/guess/{method}/seed0")
    rows = r3l("table", "table1", "--method", "grpo,r3l", "--seeds-planned", 1)["rows"]
    assert {(row["env"], row["method"], row["episodes"]) for row in rows} >= {
        ("guess", "grpo", 10),
        ("guess", "r3l", 10),
    }
    offline = ("--offline", "--stored", "results", "--env", "guess", "--seed", 0)
    (compared,) = r3l("compare", "r3l", *offline, "--against", "grpo")["rows"]
    assert compared["env"] == "guess"


def test_runs_start_from_its_sft_of_another_model(folder, monkeypatch, tmp_path):
    """`r3l sft guess --model M`, then `--set env_settings.sft=guess`."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    run = resolve("nano", "guess", "grpo", 0, "math-1.5m", ["env_settings.sft=guess"])
    with pytest.raises(ConfigError, match="make it with r3l sft guess --model math-1.5m"):
        base_checkpoint_of(run)
    made = recipe.default_folder("guess", "math-1.5m")
    made.mkdir(parents=True)
    config = recipe.load_config("guess").model_dump(mode="json") | {"model": "math-1.5m"}
    (made / "sft.json").write_text(json.dumps({"config": config, "loss": [[1.0]]}))
    assert base_checkpoint_of(run) == str(made) and base_checkpoint_warning(run) is None

    # The recipe is part of the fingerprint, as that of a file is; without its reasons.
    before = run.fingerprint()
    assert run.inputs()["sft"]["env"] == "guess" and "sources" not in run.inputs()["sft"]
    text = (folder / "guess.yaml").read_text()
    (folder / "guess.yaml").write_text(text.replace("max_turns: 5, model", "max_turns: 6, model"))
    assert run.fingerprint() != before
    with pytest.raises(ConfigError, match="differs from the recipe of guess in max_turns"):
        base_checkpoint_of(run)


@pytest.mark.slow
def test_compare_trains_what_is_missing(folder):
    """Method and opponent, by the command of docs/extending.md in runs of two updates; another one finds them."""
    config = folder / "guess.yaml"
    short = "train.steps: 2, train.tasks_per_step: 2, threads: 1, workers: 0, evaluation.tasks: 4"
    tier = f"max_turns: 5, model: math-1.5m, set: {{{short}, method_settings.group_size: 2}}"
    config.write_text(config.read_text().replace("max_turns: 5, model: guess", tier))
    words = ("compare", "r3l", "--env", "guess", "--against", "grpo", "--seed", "0")

    code, stdout, stderr = Program("r3l.cli", *words, folder=folder.parent).wait()
    assert code == 0, stderr
    said = stderr.index("there is no stored run of grpo on guess: it is trained too")
    assert said < stderr.index("guess r3l seed 0: ") and "guess grpo seed 0: " in stderr
    for method in ("r3l", "grpo"):
        assert (folder.parent / f"results/nano/guess/math-1.5m/{method}/seed0/evaluation.json").is_file()
    assert "GRPO" in stdout and "no run" not in stdout

    code, again, _ = Program("r3l.cli", *words, "--json", folder=folder.parent).wait()
    (row,) = json.loads(again)["rows"]
    assert code == 0 and (row["env"], row["against"]) == ("guess", "grpo")


def test_the_workflow_plans_it(folder):
    jobs = Jobs(plan.workflow_content() | {"envs": ["guess"], "seeds": [0]}, {})
    assert "results/nano/guess/guess/r3l/seed0/evaluation.json" in jobs.evaluations("table1")
    assert list(task_set_hashes("nano", "guess")) == ["train", "test"]


def test_trinitys_processes_find_it(folder, monkeypatch):
    run = resolve("nano", "guess", "r3l", 0)
    config = trinity_config(run, Place(Path("run"), Path("tasks"), "tinker", "http://localhost"))
    assert config["group"] == "guess" and build_method(run).trains
    monkeypatch.setenv("R3L_ENVS", "mine")  # as seen from here; processes may start elsewhere
    assert own_variables() == {"R3L_ENVS": str(folder), "R3L_METHODS": str(folder)}


@pytest.mark.parametrize(
    ("file", "name", "code", "words"),
    [
        (
            "alfworld",
            "alfworld",
            "guess:Guess",
            "alfworld.yaml (R3L_ENVS): the name 'alfworld' is taken: this package",
        ),
        (
            "mine",
            "mine",
            "guess:Guess",
            "env code 'guess:Guess': its name is 'guess', but the file is called 'mine'",
        ),
    ],
)
def test_a_name_that_cannot_be_used_is_one_paragraph(folder, monkeypatch, capsys, file, name, code, words):
    (folder / f"{file}.yaml").write_text(
        f"env: {name}\nlabel: X\ncode: '{code}'\ntiers: {{{TIERS}}}\nsources: {{}}\n"
    )
    code, _, err = run(monkeypatch, capsys, "train", "--env", file, "--method", "grpo")
    assert code == 2 and words in " ".join(err.split()) and err.count("\n") <= 4


def test_methods_and_environments_may_share_a_folder(folder):
    assert "guess" in names("envs") and "guess" not in names("methods")
    assert "shortest" in names("methods") and "shortest" not in names("envs")
    (folder / "broken.yaml").write_text("env: [")
    with pytest.raises(ConfigError, match="broken.yaml: not valid YAML"):
        load("envs", "broken", EnvConfig)
