"""An environment's packages are an extra: everything else works without them, and it says what to install."""

from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from program import run
from r3l.envs.registry import find_environment

from r3l.core.errors import ConfigError
from r3l.files import requirements


def is_of(extra, requirement):
    """Whether the extra, and nothing else, asks for it; tools quote its name differently."""
    return requirement.marker is not None and str(requirement.marker).endswith(f'extra == "{extra}"')


@pytest.fixture
def without(monkeypatch):
    """Let an extra need a package that does not exist, and one that is installed."""

    def ask(extra, *others):
        wanted = ("no-such-package", *others)
        kept = [line for line in requires("r3l") or [] if not is_of(extra, Requirement(line))]
        lines = [*kept, *(f"{name}; extra == '{extra}'" for name in wanted)]
        monkeypatch.setattr(requirements, "requires", lambda name: lines)

    return ask


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
        ["evaluate", "gsm8k", "--model", "math-1.5m"],
        ["sft", "math-1.5m", "--out", "model", "--workers", "0"],
        ["run", "mathematics", "--env", "math"],
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
    assert run(monkeypatch, capsys, "list", "envs")[0] == 0  # which plays nothing
