"""Which code a configuration, a manifest or an override can name: this package's, and the user's own
folders'."""

import json
import shutil
import sys

import pytest
from program import run

from r3l.config import Run, build_method, resolve
from r3l.config.files import find_class
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT


@pytest.fixture
def mine(tmp_path, monkeypatch):
    for name in ("shortest.py", "shortest.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "code", ["os:system", "subprocess:Popen", "r3l.files.writing:shutil", "", ":", "r3l", "..os:system"]
)
def test_other_modules_are_never_imported(code):
    with pytest.raises(ConfigError, match="refused|cannot be"):
        find_class("methods", code)


def test_a_foreign_manifest_names_no_code(tmp_path):
    values = resolve("nano", "alfworld", "grpo", 0).model_dump() | {"method_code": "os:system"}
    values["method_settings"] = f"touch {tmp_path / 'made'}"
    with pytest.raises(ValueError, match="method_settings"):
        Run.model_validate(json.loads(json.dumps(values)))
    with pytest.raises(
        ConfigError, match="'os:system' is refused: its module must be of r3l, or a file of R3L_METHODS"
    ):
        build_method(Run.model_validate(values | {"method_settings": {}}))
    assert not (tmp_path / "made").exists()


def test_a_module_that_ends_the_program_is_one_paragraph(mine, monkeypatch, capsys):
    """`r3l train` ended there with exit code 0 and no run."""
    (mine / "ending.py").write_text("import sys\nsys.exit(0)\n")
    config = (mine / "shortest.yaml").read_text().replace("method: shortest", "method: ending")
    (mine / "ending.yaml").write_text(config.replace("shortest:Shortest", "ending:Shortest"))
    code, _, err = run(monkeypatch, capsys, "train", "--env", "math", "--method", "ending")
    assert code == 2 and len(err.strip().splitlines()) == 1
    assert f"cannot be imported: SystemExit: 0 ({mine}/ending.py, line 2)" in err


@pytest.mark.parametrize("name", ["json", "yaml", "sys"])
def test_a_module_named_as_an_installed_one_is_one_paragraph(mine, monkeypatch, capsys, name):
    """The installed one was imported, and its missing class reported; with such a class it would have trained."""
    (mine / f"{name}.py").write_text((mine / "shortest.py").read_text())
    config = (mine / "shortest.yaml").read_text().replace("method: shortest", "method: mine")
    (mine / "mine.yaml").write_text(config.replace("shortest:Shortest", f"{name}:Shortest"))
    code, _, err = run(monkeypatch, capsys, "train", "--env", "math", "--method", "mine")
    assert code == 2 and len(err.strip().splitlines()) == 1
    said = (
        f"method code '{name}:Shortest': Python would not import {mine}/{name}.py, but the installed module"
    )
    assert said in err and "rename yours, also in key 'code'" in err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class Shortest(:\n", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("Shortest = 3\n", "module 'broken' has no class 'Shortest'"),
    ],
)
def test_a_broken_file_of_the_user_is_one_paragraph(mine, monkeypatch, capsys, source, words):
    (mine / "broken.py").write_text(source)
    config = (mine / "shortest.yaml").read_text().replace("method: shortest", "method: broken")
    (mine / "broken.yaml").write_text(config.replace("shortest:Shortest", "broken:Shortest"))
    (mine / "shortest.yaml").unlink()
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, err = run(monkeypatch, capsys, "train", "--method", "broken")
    assert code == 2 and words in err and len(err.strip().splitlines()) == 1
