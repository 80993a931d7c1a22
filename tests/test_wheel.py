"""A wheel brings one name, `r3l`, with everything that a nano run needs; it works far from any checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from r3l.files.paths import ROOT

PARTS = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE", "Snakefile"),
    *("r3l", "baselines", "envs", "configs", "examples", "workflow"),
)
STORED = (
    "models",
    "published",
    "released",
    "tuning",
)  # of results/stored; the last where a rate has been tuned
PROGRAM = """
from pathlib import Path
from typer.testing import CliRunner
import r3l.cli
from r3l.config import EnvConfig, load, locate, names, resolve
from r3l.files.paths import PACKAGE, SNAKEFILE

for words in (["list", "envs"], ["list", "methods"], ["train", "--help"], ["table", "published"]):
    result = CliRunner().invoke(r3l.cli.app, words)
    assert result.exit_code == 0, (words, result.output, result.exception)
for env in names("envs"):
    if "nano" in load("envs", env, EnvConfig).tiers:
        run = resolve("nano", env, "r3l", 0)
        assert run.fingerprint() and Path(locate(run.model), "model.safetensors").is_file(), env
assert SNAKEFILE == PACKAGE / "data" / "Snakefile" and SNAKEFILE.is_file()
refused = CliRunner().invoke(r3l.cli.app, ["verify"])
assert "r3l stored fetch" in str(refused.exception), refused.output
print(PACKAGE)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for part in [*PARTS, *(f"results/stored/{name}" for name in STORED)]:
        if not (ROOT / part).exists():
            continue
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "schemas")
            shutil.copytree(ROOT / part, source / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, source / part)
    _pip("wheel", "--no-build-isolation", "--wheel-dir", built, source)
    (path,) = built.glob("*.whl")
    return source, path


def _pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments, "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_wheel_holds_the_package_and_nothing_else(wheel):
    source, path = wheel
    held = {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}
    inside = {"r3l": "r3l", "envs": "r3l/envs", "baselines": "r3l/baselines"}
    data = ("configs", "examples", "workflow", "results", "Snakefile")
    inside |= {part: f"r3l/data/{part}" for part in data}
    files = (file.relative_to(source) for file in source.rglob("*") if file.is_file())
    placed = {str(Path(inside[file.parts[0]], *file.parts[1:])) for file in files if file.parts[0] in inside}
    assert held == placed


def test_it_works_where_there_is_no_checkout(wheel, tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    _pip("install", "--no-compile", "--target", site, wheel[1])
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(site / "r3l")]
    assert sorted(path.name for path in site.iterdir() if path.suffix != ".dist-info") == ["bin", "r3l"]
