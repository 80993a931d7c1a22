"""No bad command line ends in a traceback, begins to work, or leaves a file: one paragraph, exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.bad_commands import bad_commands
from program import run

import r3l.cli.compare
import r3l.cli.run
import r3l.cli.tune
import r3l.local.engine
import r3l.local.preflight
from r3l import cli
from r3l.core.errors import ConfigError
from r3l.core.named_folders import NAMED, named_folder
from r3l.files import requirements

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
        (r3l.cli.compare, "run_snakemake"),
        (r3l.cli.run, "run_snakemake"),
        (r3l.cli.tune, "run_snakemake"),
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


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("report notes.txt", "notes.txt is no run: name the directory of a run, or its evaluation.json"),
        ("tune grpo --env math --offline --results notes.txt", "--results notes.txt is not a directory"),
        ("run results/../notes.csv --dry-run", "there is no target 'results/../notes.csv'"),
        ("sft math-1.5m --workers 99999", "less than or equal to 1024"),
        ("sft math-1.5m --out notes.txt", "a file is where a folder is needed"),
        ("evaluate math --model math-1.5m --out notes.txt", "another with --run-dir or --out"),
        ("figure claims --results empty --out drawn", "no run or probe tests one of the paper's claims"),
        ("table map --results empty", "the map has no comparison under empty: it needs a probe"),
        ("figure map --results empty --out drawn", "the map has no comparison under empty"),
        (
            "table probe nope.json",
            "nope.json is missing; name a file that r3l probe wrote (results/probe/*.json)",
        ),
        ("table probe empty", "empty is not a file; name a file that r3l probe wrote"),
        ("table published --out x.md", "--out x.md must end with .csv: name the file x.csv"),
        ("table published --out x", "--out x must end with .csv: name the file x.csv"),
        ("table claims --out notes.tex", "--out notes.tex must end with .csv: name the file notes.csv"),
        ("run --model nope --dry-run", "there is no stored model 'nope'; `r3l sft nope` trains it if"),
        ("run --env math --method grpo --model nope --dry-run", "there is no stored model 'nope'"),
        ("export model empty copy/", "empty holds no run: it has neither manifest.json nor evaluation.json"),
        ("bench train --env math --length 9999999", "--length is 9999999; at most "),
        ("run table1 --profile slurm --dry-run", "--profile slurm needs packages of the extra 'slurm'"),
    ],
)
def test_what_is_wrong_is_said(command, message, monkeypatch, capsys, tmp_path):
    """Seen at a terminal: a traceback, thousands of processes, snakemake's own error, or the wrong option."""
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(requirements, "_is_installed", lambda name: "slurm" not in name)
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = run(monkeypatch, capsys, *command.split())
    assert code == 2 and not out and message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "notes.txt"]


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
