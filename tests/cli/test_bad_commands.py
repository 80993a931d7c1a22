"""No bad command line ends in a traceback, begins to work, or leaves a file: one paragraph, exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.bad_commands import bad_commands

import r3l.cli.compare
import r3l.cli.run
import r3l.cli.tune
import r3l.local.engine
import r3l.local.preflight
from r3l import cli
from r3l.core.errors import ConfigError
from r3l.core.named_folders import NAMED, named_folder

COMMANDS = list(dict.fromkeys(bad_commands()))


@pytest.fixture
def refusal(monkeypatch, capsys, tmp_path):
    """What is wrong with how a command line ends; None where it is refused as it should be."""

    def work(*arguments, **options):
        raise AssertionError("it was accepted")

    monkeypatch.chdir(tmp_path)
    for module, name in (
        (r3l.local.engine, "train"),
        (r3l.local.preflight, "preflight"),
        (r3l.cli.compare, "make"),
        (r3l.cli.run, "make"),
        (r3l.cli.tune, "make"),
    ):
        monkeypatch.setattr(module, name, work)

    def ended(command):
        monkeypatch.setattr(sys, "argv", ["r3l", *command])
        try:
            cli.main()
            return "it was accepted"
        except SystemExit as end:
            out, err = capsys.readouterr()
            ours = err.startswith("error: ") and len(err.strip().splitlines()) == 1
            left = [path.name for path in Path(".").iterdir()]
            refused = end.code == 2 and (ours or err.startswith("Usage: ")) and not out and not left
            return None if refused else f"exit {end.code}, left {left}: {out[:100]}{err[:200]}"
        except Exception as error:  # noqa: BLE001  # what must not happen, whatever it is
            return repr(error)[:200]

    return ended


@pytest.mark.parametrize(("variable", "verb"), [("R3L_METHODS", "methods"), ("R3L_ENVS", "envs")])
def test_a_users_folder_that_does_not_exist(variable, verb, refusal, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, str(tmp_path / "typo"))
    assert not wrong_of([("train", "--env", "math"), ("list", verb)], refusal)


@pytest.mark.parametrize("variable", NAMED)
def test_a_variable_that_names_no_folder_is_refused_before_it_is_read(
    variable, refusal, monkeypatch, tmp_path
):
    """A run of mathematics at nano reads none of them; a misspelled one would be missed at the next run."""
    monkeypatch.setenv(variable, "~/typo")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not wrong_of([("export", "trinity", "run.yaml"), ("train", "--env", "math")], refusal)
    with pytest.raises(ConfigError, match=f"{variable} names {tmp_path}/typo, which is not a directory; "):
        named_folder(variable)
    (tmp_path / "typo").mkdir()
    assert named_folder(variable) == tmp_path / "typo"
    monkeypatch.setenv(variable, "")
    assert named_folder(variable) is None


def wrong_of(commands, refusal):
    return {command: wrong for command in commands if (wrong := refusal(command))}


def test_one_in_sixteen_of_the_bad_commands(refusal):
    assert wrong_of(COMMANDS[::16], refusal) == {}


def test_a_good_command_is_no_refusal(refusal):
    assert "it was accepted" in refusal(("train", "--set", "train.steps=1"))
    assert "exit 0" in refusal(("list", "envs"))


@pytest.mark.slow
def test_every_bad_command(refusal):
    assert len(COMMANDS) >= 500
    assert wrong_of(COMMANDS, refusal) == {}
