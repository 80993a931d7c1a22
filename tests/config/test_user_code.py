"""Edited code makes a new run: a user's files are part of the fingerprint; the earlier run is set aside."""

import json
import shutil

import pytest
from conftest import make_trajectory
from docs.pages import blocks
from program import run as program
from start_models import cell

import r3l
from r3l.config import build_method, resolve
from r3l.config.files import shown_path
from r3l.config.user_code import changed_files, user_code
from r3l.core.errors import ConfigError
from r3l.core.trajectory import Group
from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT
from r3l.runs.changed_code import set_aside_changed
from r3l.runs.manifest import manifest


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The examples in a user's folder, with code that they do not use; `mine` extends `shortest`."""
    folder = tmp_path / "code"
    folder.mkdir()
    for path in (ROOT / "examples").glob("*.*"):
        shutil.copy(path, folder)
    (folder / "unused.py").write_text("")
    (folder / "helper.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("")
    (folder / "shortest.py").write_text("import helper\n" + (folder / "shortest.py").read_text())
    (folder / "mine.yaml").write_text("method: mine\nlabel: Mine\nextends: shortest\nsources: {}\n")
    monkeypatch.setenv("R3L_METHODS", str(folder))
    monkeypatch.setenv("R3L_ENVS", str(folder))
    return folder


def test_the_method_of_the_page_centres_rewards_alone(tmp_path, monkeypatch):
    (code,) = (block for block in blocks(ROOT / "docs/extending.md") if "class DrGRPO" in block)
    (tmp_path / "dr.py").write_text(code)
    config = "method: dr\nlabel: Dr. GRPO\ncode: 'dr:DrGRPO'\nsettings: {loss_agg: token_sum}\n"
    (tmp_path / "dr.yaml").write_text(config + "sources: {settings.loss_agg: '2503.20783'}\n")
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    method = build_method(resolve("nano", "math", "dr", 0))
    trajectories = [make_trajectory(1, reward) for reward in (1, 0, 0, 0)]
    assert [*method.advantages(Group(trajectories[0].task, trajectories))] == [0.75, -0.25, -0.25, -0.25]
    assert method.settings.loss_agg == "token_sum"


def test_the_teacher_of_the_page_reads_feedback_and_corrects_advantages(tmp_path, monkeypatch):
    """Method and config as the page has them, trained for two steps."""
    page = blocks(ROOT / "docs/extending.md")
    (code,), (config,), (by_hand,) = (
        [block for block in page if words in block]
        for words in ("class Coach(", "method: coach", "def test_advantages")
    )
    (tmp_path / "coach.py").write_text(code)
    (tmp_path / "coach.yaml").write_text(config)
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))

    (tmp_path / "test_coach.py").write_text(by_hand)
    assert pytest.main(["-q", "-p", "no:cacheprovider", "-n0", str(tmp_path / "test_coach.py")]) == 0

    step = {"train.steps": 2, "train.tasks_per_step": 2, "workers": 0}
    for metrics in read_jsonl(
        r3l.train("math", "coach", settings=step, run_dir=tmp_path / "run") / "metrics.jsonl"
    ):
        failures = metrics["rollouts"] - metrics.get("stop/success", 0)
        assert metrics["critique/by_environment"] + metrics.get("critique/by_model", 0) == failures
        assert 0 < metrics["teacher/contexts"] == metrics["teacher/with_feedback"] <= failures
        assert metrics["tokens/scored"] > 0


def write_method(folder, name, body):
    """A method in ``folder``: GRPO with the class body ``body``, a list of lines."""
    lines = "\n".join(f"    {line}" for line in body)
    (folder / f"{name}.py").write_text(
        f"from r3l.baselines.grpo import GRPO\n\n\nclass Mine(GRPO):\n{lines}\n"
    )
    config = f"method: {name}\nlabel: {name}\ncode: '{name}:Mine'\nsettings: {{}}\nsources: {{}}\n"
    (folder / f"{name}.yaml").write_text(config)


def test_the_source_of_a_setting_is_the_users_file(mine):
    assert shown_path("methods", "mine") == str(mine / "mine.yaml")
    assert shown_path("methods", "grpo") == "configs/methods/grpo.yaml"


def test_a_misspelled_hook_is_refused(tmp_path, monkeypatch):
    """It would never be called: the method would train plain GRPO without a word."""
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    body = ["async def explor(self, task, ctx):", "    return []"]
    write_method(tmp_path, "misspelled", body)
    with pytest.raises(ConfigError, match=r"misspelled\.py.*Mine\.explor is never called.*'explore'"):
        resolve("nano", "math", "misspelled", 0)
    # A helper that another function of the file calls, and one with a name of its own, are no such hooks.
    body = ["def advantage(self, group):", "    return 0.0", "def describe_all(self):", "    return 1"]
    body += ["def advantages(self, group):", "    return [self.advantage(group) for _ in group.trajectories]"]
    write_method(tmp_path, "helpers", body)
    assert resolve("nano", "math", "helpers", 0).method == "helpers"


def test_a_misspelled_part_of_an_environment_is_refused(mine):
    code = (mine / "guess.py").read_text()
    (mine / "guess2.py").write_text(code.replace("def good_actions(", "def good_action("))
    (mine / "guess2.yaml").write_text((mine / "guess.yaml").read_text().replace("guess", "guess2"))
    with pytest.raises(ConfigError, match=r"good_action is never called.*'good_actions'"):
        run(env="guess2")


def test_a_teacher_needs_its_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    body = ["async def explore(self, task, ctx):", "    from r3l.baselines.teacher import play_taught"]
    body += ["    return [await play_taught(ctx, task, self.settings)]"]
    write_method(tmp_path, "untaught", body)
    settings = {"train.steps": 1, "train.tasks_per_step": 1, "workers": 0}
    with pytest.raises(ConfigError, match="GRPOSettings.*derive it from TeacherSettings"):
        r3l.train("math", "untaught", settings=settings, run_dir=tmp_path / "run")


def run(method="mine", env="guess"):
    return resolve("nano", env, method, 0, model="puzzles-1.5m", overrides=["train.steps=1", "workers=0"])


def test_the_projects_own_code_is_not_hashed():
    assert user_code("alfworld", "r3l") == resolve("nano", "alfworld", "r3l", 0).own_code == {}


def test_what_is_read_and_imported_is_hashed(mine):
    code = user_code("guess", "mine")
    assert set(code["envs"]) == {"guess.py", "guess.yaml"}
    assert set(code["methods"]) == {"mine.yaml", "shortest.yaml", "shortest.py", "helper.py", "deeper.py"}
    assert set(user_code("math", "shortest")) == {"methods"} and set(user_code("guess", "r3l")) == {"envs"}


@pytest.mark.parametrize("file", ["deeper.py", "mine.yaml", "guess.py"])
def test_an_edit_is_another_run(mine, file):
    before = run()
    assert run().fingerprint() == before.fingerprint()
    (mine / "unused.py").write_text("x = 1\n")
    assert run().fingerprint() == before.fingerprint()
    (mine / file).write_text((mine / file).read_text() + "\n# edited\n")
    assert run().fingerprint() != before.fingerprint()
    assert changed_files(before.own_code, run().own_code) == [file]


def begun(run_dir, run):
    run_dir.mkdir(parents=True)
    (run_dir / "manifest.json").write_text(json.dumps(manifest(run)))


def test_the_earlier_run_is_set_aside_with_a_message(mine, tmp_path, caplog):
    where, before = tmp_path / "results" / "seed0", run()
    begun(where, before)
    set_aside_changed(where, run())
    assert where.is_dir() and not caplog.text
    (mine / "helper.py").unlink()
    (mine / "shortest.py").write_text((mine / "shortest.py").read_text().replace("import helper\n", ""))
    set_aside_changed(where, run())
    aside = where.with_name(f"seed0.{before.fingerprint()}")
    assert not where.exists() and (aside / "manifest.json").is_file()
    assert (
        f"code changed since this run: deeper.py, helper.py, shortest.py; the earlier run is kept in {aside}"
        in caplog.text
    )


def test_train_and_compare_say_that_code_changed(mine, tmp_path, monkeypatch, capsys, caplog):
    """On templated mathematics, with one step of one task."""
    monkeypatch.chdir(tmp_path)
    options = ("--env", "math", "--set", "train.tasks_per_step=1", "--set", "workers=0")
    options += ("--set", "env_settings.max_turns=1", "--set", "evaluation.tasks=4", "--method")

    def r3l(*arguments):
        code, out, err = program(monkeypatch, capsys, *arguments)
        assert code == 0, err
        return out

    for method in ("zero_shot", "shortest"):
        r3l("train", *options, method, "--set", "train.steps=1")
        where = tmp_path / "results" / cell("math", method) / "seed0"
        r3l("evaluate", where)
    (mine / "shortest.py").write_text((mine / "shortest.py").read_text() + "\n# edited\n")
    against = ("--against", "zero_shot", "--seed", "0", "--env", "math", "--stored", "results", "--offline")
    assert "code changed since shortest seed 0: shortest.py" in " ".join(
        r3l("compare", "shortest", *against).split()
    )
    r3l("train", *options, "shortest", "--set", "train.steps=1")
    assert "code changed since this run: shortest.py" in caplog.text
    assert not (where / "evaluation.json").exists()
    (aside,) = where.parent.glob("seed0.*")
    assert (aside / "evaluation.json").is_file()
