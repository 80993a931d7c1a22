"""`r3l new` writes files that work, and overwrites none."""

import inspect
import json
import re

import pytest
from program import Program, run

import r3l
from r3l.config import load_method
from r3l.config.files import find_class
from r3l.config.template import write_template
from r3l.files.json_files import read_jsonl

FILES = {"method": "R3L_METHODS", "env": "R3L_ENVS"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    for variable in FILES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_written_passes_its_own_test_in_which_it_trains_a_step(monkeypatch, capsys, elsewhere):
    folder = elsewhere / "my files"
    for kind, name, class_name in (
        ("method", "second_best", "SecondBest"),
        ("env", "third_best", "ThirdBest"),
    ):
        code, stdout, stderr = run(monkeypatch, capsys, "new", kind, name, "--folder", "my files", "--json")
        assert code == 0, stderr
        assert (
            f"class {class_name}(" in (folder / f"{name}.py").read_text()
            and (folder / f"{name}.yaml").is_file()
        )
        test = f"python -m pytest 'my files/test_{name}.py'"
        assert json.loads(stdout)["next"][:2] == [f"export {FILES[kind]}='{folder}'", test]
    code, stdout, stderr = Program("pytest", "-q", folder, "-p", "no:cacheprovider").wait()
    assert code == 0 and " passed" in stdout, stdout + stderr


@pytest.mark.parametrize("parent", ["grpo", "r3l_no_credit", "rltf_fm"])
def test_a_method_begins_as_a_copy_of_another_one(monkeypatch, elsewhere, parent):
    """Until it is changed it plays and trains as that one does, with its settings and tuned rate."""
    name = f"my_{parent}"  # a module is imported once in a process
    write_template("methods", name, elsewhere, parent)
    assert f"class {name.title().replace('_', '')}(" in (elsewhere / f"{name}.py").read_text()
    monkeypatch.setenv("R3L_METHODS", str(elsewhere))
    settings = {"train.steps": 1, "train.tasks_per_step": 2, "workers": 0}
    steps = []
    for method in (name, parent):
        run_dir = r3l.train("math", method, settings=settings, run_dir=elsewhere / "runs" / method)
        (step,) = read_jsonl(run_dir / "metrics.jsonl")
        steps.append(
            {key: value for key, value in step.items() if "seconds" not in key and "memory" not in key}
        )
    assert steps[0] == steps[1]


def test_a_copy_passes_its_own_test(elsewhere):
    write_template("methods", "my_copy", elsewhere, "grpo")
    code, stdout, stderr = Program("pytest", "-q", elsewhere, "-p", "no:cacheprovider").wait()
    assert code == 0 and "1 passed" in stdout, stdout + stderr


def test_a_copy_renames_its_class_and_no_other_word(elsewhere):
    """ "DAPO paper: 0.28" became "MyCopy paper: 0.28": names of papers, links and audits were renamed too."""
    for parent, class_name in (("dapo", "DAPO"), ("sdpo", "SDPO"), ("r3l", "R3L")):
        name = f"renamed_{parent}"
        code, *_ = write_template("methods", name, elsewhere, parent)
        module = inspect.getmodule(find_class("methods", load_method(parent).code))
        before = inspect.getsource(module).splitlines()
        changed = [
            (old, new) for old, new in zip(before, code.read_text().splitlines(), strict=True) if old != new
        ]
        new_name = name.title().replace("_", "")
        assert changed and all(old.replace(class_name, new_name, 1) == new for old, new in changed)
        assert [new.partition("(")[0] for _, new in changed] == [f"class {new_name}"]


def test_a_class_of_the_copied_code_is_not_doubled(monkeypatch, capsys, elsewhere):
    """``r3l new env game`` wrote a second class Game, whose make_engine then made itself without end."""
    for kind, name, parent in (
        ("env", "game", []),
        ("method", "settings", []),
        ("method", "trained_method", ["--from", "grpo"]),
    ):
        code, _, stderr = run(monkeypatch, capsys, "new", kind, name, *parent)
        assert code == 2 and stderr.count("\n") == 1
        class_name = name.title().replace("_", "")
        assert f"the name {name!r} would become the class {class_name}, and the code that is copied" in stderr
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("zero_shot", "method 'zero_shot' trains nothing"),
        ("GRPO", "there is no method 'GRPO'; .* did you mean 'grpo'"),
    ],
)
def test_what_cannot_be_copied_is_one_paragraph(monkeypatch, capsys, elsewhere, parent, message):
    code, _, stderr = run(monkeypatch, capsys, "new", "method", "my_copy", "--from", parent)
    assert code == 2 and re.search(message.replace(" .* ", ".*"), stderr) and stderr.count("\n") == 1
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_overwritten(monkeypatch, capsys, elsewhere):
    (elsewhere / "mine").mkdir()
    (elsewhere / "mine" / "test_maze.py").write_text("mine")
    code, _, stderr = run(monkeypatch, capsys, "new", "env", "maze")
    assert code == 2 and "mine/test_maze.py exists and is not overwritten" in stderr
    assert [path.read_text() for path in (elsewhere / "mine").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a b", "1st", "lambda", "é", "x" * 51, "r3l", "grpo", "alfworld", "json"),
        *("_", "_1", "none", "__main__"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_paragraph(monkeypatch, capsys, elsewhere, name):
    for kind in FILES:
        code, _, stderr = run(monkeypatch, capsys, "new", kind, name)
        assert code == 2 and f"the name {name!r}" in stderr and stderr.count("\n") == 1
    assert list(elsewhere.iterdir()) == []
