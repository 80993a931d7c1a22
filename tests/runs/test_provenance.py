"""Manifests name the code and the plan that a run was made with; a dirty tree makes nothing for the store."""

import hashlib
import json
import shutil
import subprocess

import pytest
from start_models import cell
from typer.testing import CliRunner

from r3l import cli
from r3l.config import resolve
from r3l.core.errors import ConfigError, DataError
from r3l.evaluation import stored_runs, storing
from r3l.evaluation.verification import sign
from r3l.files.paths import ROOT, STORED
from r3l.runs import provenance
from r3l.runs.manifest import manifest
from r3l.runs.run_paths import find_runs


def test_a_manifest_has_the_hash_of_the_preregistration_and_its_fingerprint_has_not(monkeypatch, tmp_path):
    run = resolve("nano", "alfworld", "grpo", 0)
    content = manifest(run)
    text = (ROOT / "docs" / "preregistration.md").read_bytes()
    assert content["preregistration_sha256"] == hashlib.sha256(text).hexdigest()
    monkeypatch.setattr(provenance, "PREREGISTRATION", tmp_path / "none.md")
    assert manifest(run)["preregistration_sha256"] is None
    (tmp_path / "none.md").write_text("abc")
    assert manifest(run)["preregistration_sha256"].startswith("ba7816bf8f01cfea")  # FIPS 180's example
    assert manifest(run)["fingerprint"] == content["fingerprint"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one committed file, in place of this one."""
    (tmp_path / "Snakefile").write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path


def test_a_changed_file_makes_the_commit_dirty_and_runs_for_the_store_are_refused(checkout, monkeypatch):
    assert not provenance.is_dirty(provenance.commit())
    provenance.check_clean("this is a test")
    (checkout / "Snakefile").write_text("2")
    assert provenance.is_dirty(provenance.commit())
    with pytest.raises(
        ConfigError, match="uncommitted changes .*-dirty.*, and this is a test: such runs cannot"
    ):
        provenance.check_clean("this is a test")
    where = STORED / cell("alfworld", "grpo") / "seed77"
    result = CliRunner().invoke(cli.app, ["train", "--method", "grpo", "--run-dir", str(where)])
    assert isinstance(result.exception, ConfigError) and not where.exists()
    assert "seed77 is kept in git" in str(result.exception)


@pytest.fixture
def runs(tmp_path):
    """Two stored runs, the second of which says that its tree was dirty."""
    copies = []
    for path, commit in zip(find_runs(STORED)[:2], ("abc", "abc-dirty"), strict=True):
        copy = tmp_path / "results" / path.parent.relative_to(STORED)
        shutil.copytree(path.parent, copy)
        content = json.loads((copy / "manifest.json").read_text()) | {"commit": commit}
        content.pop("preregistration_sha256", None)
        (copy / "manifest.json").write_text(json.dumps(content))
        sign(copy)
        copies.append(copy)
    return copies


def test_verify_lists_dirty_runs_and_refuses_them_when_strict(runs):
    found = stored_runs.origins(runs)
    assert (found.dirty, found.plans) == ([runs[1]], {None: 2})
    arguments = ["verify", *map(str, runs)]
    shown = CliRunner().invoke(cli.app, arguments)
    assert shown.exit_code == 0
    assert "1 were made from a tree with uncommitted changes:\n" in shown.stdout
    assert (
        f"  {runs[1].parent}: seed {runs[1].name[4:]}\n2 were made before there was a pre-registration"
        in shown.stdout
    )
    strict = CliRunner().invoke(cli.app, [*arguments, "--strict"])
    assert isinstance(strict.exception, DataError)
    assert CliRunner().invoke(cli.app, ["verify", str(runs[0]), "--strict"]).exit_code == 0


def test_runs_under_several_versions_of_the_plan_are_one_line(runs):
    """A line for each hash read as if the plan had been changed after the fact."""
    for folder, sha256 in zip(runs, ("a" * 64, "b" * 64), strict=True):
        content = json.loads((folder / "manifest.json").read_text()) | {"preregistration_sha256": sha256}
        (folder / "manifest.json").write_text(json.dumps(content))
    found = stored_runs.origins(runs)
    assert found.plans == {"a" * 64: 1, "b" * 64: 1}
    (line,) = [line for line in found.lines() if "preregistration" in line]
    assert line.startswith(
        "2 were made under 2 versions of docs/preregistration.md, to which entries are added"
    )


def test_a_dirty_run_does_not_enter_the_projects_store(runs, tmp_path):
    with pytest.raises(DataError, match="1 of 2 runs were made from a tree with uncommitted changes"):
        storing.store(runs, STORED)
    assert len(storing.store(runs, tmp_path / "elsewhere")) == 2
