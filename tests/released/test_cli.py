"""`r3l released`: what it wants of the clones, and what it does where something is unexplained."""

import json
import subprocess

import pytest
from program import run

from r3l.core.errors import ConfigError
from r3l.original.clones import Release, check_commit
from r3l.released.checks import SUBJECTS
from tests.released import made_up


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    ran = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "file.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "file.py")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


@pytest.fixture(autouse=True)
def no_clones(monkeypatch):
    monkeypatch.delenv("R3L_RELEASE", raising=False)
    monkeypatch.delenv("RLTF_RELEASE", raising=False)


def test_without_a_clone_it_says_how_to_get_both(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "released")
    assert code == 2 and err.count("\n") == 1
    assert "git clone https://github.com/shiweijiezero/R3L && git -C R3L checkout d503f6c" in err
    assert "git clone https://github.com/lili-chen/rltf" in err and "export RLTF_RELEASE=$PWD/rltf" in err


def test_no_folder_no_clone_and_another_commit_are_one_paragraph(monkeypatch, capsys, tmp_path, repository):
    wrong = {
        "/nowhere": "which is no folder",
        tmp_path / "empty": "no git clone",
        repository: "but what is read is commit",
    }
    (tmp_path / "empty").mkdir()
    for folder, message in wrong.items():
        monkeypatch.setenv("R3L_RELEASE", str(folder))
        code, _, err = run(monkeypatch, capsys, "released", "advantages")
        assert code == 2 and err.count("\n") == 1 and message in err, err
        assert "checkout d503f6c" in err


def test_a_subject_that_there_is_not(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "released", "manners")
    assert code == 2 and "there is no subject 'manners'; known: advantages" in err


def test_a_clone_is_at_its_commit_and_unchanged(repository):
    head = git(repository, "rev-parse", "HEAD")
    release = Release("R", "R_RELEASE", "https://example.org/r", (head[:7],))
    assert check_commit(release, repository) == head
    (repository / "file.py").write_text("x = 2\n")
    with pytest.raises(ConfigError, match=r"has changed files \(file.py\)"):
        check_commit(release, repository)


def test_single_files_are_said_to_be_such_and_an_unexplained_difference_exits_with_1(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(SUBJECTS, "made up", "tests.released.made_up")
    monkeypatch.setattr("r3l.released.clones.RELEASES", (made_up.MADE_UP,))
    monkeypatch.setenv("MADE_UP_RELEASE", str(tmp_path))
    (tmp_path / "school").mkdir()
    (tmp_path / "school" / "grades.py").write_text(made_up.SOURCE)
    out = tmp_path / "rows.json"
    code, text, _ = run(monkeypatch, capsys, "released", "made up", "--files", "--out", out)
    assert code == 1
    assert "files of the pinned commits" in " ".join(text.split()) and "made up: grades: {'mark': -1}" in text
    assert json.loads(out.read_text())["rows"][0]["cases"] == 4
    code, text, _ = run(monkeypatch, capsys, "released", "made up", "--files", "--json")
    assert code == 1 and json.loads(text)["rows"][0]["explained"] == {"A-1": 1}
