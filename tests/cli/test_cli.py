"""The command line end to end: bad input is one paragraph on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest
from program import run
from report.runs import write_three_seeds

import r3l
from r3l import cli, config
from r3l.files.paths import ROOT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--env", "alfwrld"], "did you mean 'alfworld'?"),
        (["train", "--set", "train.stepz=3"], "unknown key 'train.stepz' (did you mean 'steps'?)"),
        (
            ["train", "--set", "train.steps=5", "--set", "train.steps=3"],
            "set more than once (train.steps=5, train.steps=3); keep one",
        ),
        (["evaluate", "no/such/run"], "no/such/run does not exist"),
        (
            ["table", "claims", "--claim", "ahead_grop"],
            "no claim has 'ahead_grop' (did you mean 'ahead_grpo'?)",
        ),
        (["table", "claims", "--claim", "GRPO", "--claim", "nosuch"], "no claim has 'nosuch'"),
        (["table", "table1", "--results", "/nonexistent"], "make runs (`r3l run`"),
        (["compare", "grpo", "--results", "/tmp"], "--results is /tmp, but runs are made under results/"),
        (["verify", "no/such/run"], "no/such/run does not exist"),
        (["run", "table1", "--profile", "slrm"], "did you mean 'slurm'?"),
        (["train", "--method", "R3L"], "did you mean 'r3l'?"),
        (["train", "--env", "ALFWorld"], "did you mean 'alfworld'?"),
        (
            ["train", "--tier", "smol", "--env", "gsm8k", "--model", "Qwen2.5-Coder-0.5B"],
            "'qwen2.5-coder-0.5b'?",
        ),
        (["model", "fetch", "Qwen2.5-Coder-0.5B"], "did you mean 'qwen2.5-coder-0.5b'?"),
        (["doctor", "memory", "--env", "gsm8k", "--model", "Qwen2.5-7B"], "did you mean 'qwen2.5-7b'?"),
        (
            ["evaluate", "gsm8k", "--protocol", "react", "--model", "math-1.5m"],
            "environment 'gsm8k' has no protocol 'react'; alfworld has 'react'",
        ),
        (["evaluate", "webshop", "--protocol", "ReAct", "--model", "webshop-1.5m"], "; alfworld has 'react'"),
        (["list", "options", "alpah"], "did you mean 'alpha'?"),
        (["list", "methods", "R3L"], "did you mean 'r3l'?"),
        (
            ["list", "options", "alpha", "--env", "math"],
            "alpha: names cannot be combined with the options of a run",
        ),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert err.startswith("error: ") and message in err and "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.mark.parametrize(
    "words", ["compare r3l --registered", "run --status table1", "tune --show", "table --claims"]
)
def test_a_command_that_is_given_as_an_option_is_named(monkeypatch, capsys, words):
    """docs/preregistration.md, which stays as it is, has `r3l compare --registered`."""
    code, _, err = run(monkeypatch, capsys, *words.split())
    verb, name = words.split()[0], words.partition("--")[2].split()[0]
    assert code == 2 and f"--{name} is no option but a command: r3l {verb} {name}" in err


def test_the_version_is_printed_and_nothing_else(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"{r3l.__version__}\n", "")


def test_unexpected_errors_keep_their_traceback(monkeypatch, capsys):
    def broken(*arguments, **options):
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(config, "resolve", broken)
    monkeypatch.setattr(sys, "argv", ["r3l", "train"])
    with pytest.raises(RuntimeError, match="a defect of ours"):
        cli.main()


def test_lists_as_json(monkeypatch, capsys):
    expected = {
        "methods": "r3l",
        "envs": "alfworld",
        "models": "qwen3-4b",
        "tables": "table1",
        "figures": "pivot",
    }
    for what, name in expected.items():
        code, out, err = run(monkeypatch, capsys, "list", what, "--json")
        assert code == 0 and name in {row[what.removesuffix("s")] for row in json.loads(out)[what]}, err
    code, out, _ = run(
        monkeypatch, capsys, "list", "options", "--env", "math", "--set", "train.lr=3e-5", "--json"
    )
    values = {row["key"]: (row["value"], row["place"]) for row in json.loads(out)["options"]}
    assert code == 0 and values["train.lr"] == (3e-5, "--set")
    assert values["env_settings.max_turns"][1] == "configs/envs/math.yaml"


def test_table_and_figure_from_files(monkeypatch, capsys, tmp_path):
    three_seeds = write_three_seeds(tmp_path / "results")
    out = tmp_path / "out" / "table1.csv"
    code, text, _ = run(
        monkeypatch, capsys, "table", "table1", "--results", three_seeds, "--out", out, "--json"
    )
    assert code == 0 and len(json.loads(text)["rows"]) == 9 and out.is_file()
    shown = ("figure", "learning_curves", "--results", three_seeds)
    code, text, _ = run(monkeypatch, capsys, *shown, "--out", tmp_path)
    assert (
        code == 0
        and (tmp_path / "learning_curves.png").is_file()
        and (tmp_path / "learning_curves.pdf").is_file()
    )
    code, _, err = run(monkeypatch, capsys, *shown, "--method", "zero_shot", "--out", tmp_path)
    assert code == 2 and "none of them was trained" in err
    code, _, err = run(monkeypatch, capsys, "figure", "pivot", "--table", "table9", "--results", three_seeds)
    assert code == 2 and "there is no table 'table9'" in err
    code, _, err = run(monkeypatch, capsys, "figure", "alpha", "--table", "table1", "--results", three_seeds)
    assert code == 2 and "there is no table 'table1'; known: alpha, group_size" in err


def test_a_figure_on_a_full_disk_is_one_paragraph_and_leaves_the_earlier_one(monkeypatch, capsys, tmp_path):
    out = tmp_path / "figures"
    command = ("figure", "learning_curves", "--results", write_three_seeds(tmp_path / "results"), "--out")
    assert run(monkeypatch, capsys, *command, out)[0] == 0
    earlier = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(earlier) == {"learning_curves.pdf", "learning_curves.png"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (1, 1 << 12):  # bytes of a file; more fail, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            endings = [
                run(monkeypatch, capsys, *command, place) for place in (out, out / "a.png", out / "b.pdf")
            ]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for code, _, err in endings:
            assert code == 2 and err.count("error: ") == 1 and "Traceback" not in err
            assert f"{out}/" in err and "cannot be written" in err, err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == earlier


def test_a_table_of_published_numbers_needs_no_run(monkeypatch, capsys, tmp_path):
    out = tmp_path / "llama.csv"
    code, text, err = run(
        monkeypatch, capsys, "table", "llama", "--results", tmp_path, "--out", out, "--json"
    )
    assert (code, err) == (0, "") and len(json.loads(text)["rows"]) == 63
    assert {path.name for path in tmp_path.iterdir()} == {"llama.csv", "llama.md", "llama.tex"}


SERVER = ("--server", "http://127.0.0.1:9")


def test_a_server_that_is_not_there_is_refused_without_heavy_imports(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "r3l.cli", "evaluate", "math", *SERVER]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "http://127.0.0.1:9/v1 cannot be reached" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time" in line}
    assert not {"torch", "transformers", "openai"} & imported


def test_an_output_that_cannot_be_written_is_one_sentence():
    command = [sys.executable, "-m", "r3l.cli", "--version"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (
        2,
        1,
    ) and "standard output cannot be written" in done.stderr


def test_a_terminal_of_ascii_gets_what_it_can_show():
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "r3l.cli", "--help"], env=ascii_only, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.isascii() and b"train" in done.stdout


def test_a_home_that_cannot_be_made_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/proc/nope")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    code, _, err = run(monkeypatch, capsys, "run", "table1", "--env", "math", "--method", "grpo", "--dry-run")
    assert (
        code == 2
        and "/proc/nope/.cache/snakemake cannot be made" in err
        and "set XDG_CACHE_HOME or HOME" in err
    )


def test_an_error_moves_no_terminal(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "train", "--env", "\x1b[2J\x07math")
    assert code == 2 and "\x1b" not in err and "\x07" not in err


QUOTING = """
import logging, sys
from r3l import cli
from r3l.cli.printing import print_result
sys.argv[1:] = ["list"]
cli.app = lambda: (logging.getLogger("r3l").warning("a\\x1b[2Jb"), print_result({}, False, "c\\x1b[2Jd"))
cli.main()
"""


def test_a_warning_or_a_result_moves_no_terminal():
    done = subprocess.run([sys.executable, "-c", QUOTING], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("c\\x1b[2Jd\n", "a\\x1b[2Jb\n")


OF_ENV = {"--tier", "--task-set", "--seed", "--set", "--out"}


OF_SERVER = {"--model", "--batch", "--dialog", "--tokenizer", "--request", "--deadline"}


VALUES = {
    "--seed": "1",
    "--set": "train.steps=1",
    "--batch": "2",
    "--deadline": "9",
    "--request": "a=1",
    "--out": "x",
}


@pytest.mark.parametrize(
    ("form", "used"),
    [
        (("./run",), {"--task-set"}),
        (("./run", *SERVER), {"--task-set"} | OF_SERVER),
        (("math", "--model", "m"), OF_ENV | {"--batch"}),
        (("gsm8k", *SERVER), OF_ENV | OF_SERVER),
    ],
)
def test_an_option_that_a_form_of_evaluate_does_not_use_is_refused(monkeypatch, capsys, tmp_path, form, used):
    """Every option with every form. A missing server is refused before slow imports and before any work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for option in sorted((OF_ENV | OF_SERVER) - set(form)):
        code, out, err = run(monkeypatch, capsys, "evaluate", *form, option, VALUES.get(option, "x"))
        refused = f"{option} cannot be combined with" in err
        assert (code, refused) == (2, option not in used), (option, err)
        assert ("cannot be reached" in err) == ("--server" in form and option in used), err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "status", "--help"), "r3l run status [OPTIONS] [targets]..."),
        (("run", "--help"), "| status"),
        (("compare", "power", "--nope"), "No such option: --nope"),
        (
            ("compare", "--offline", "registered"),
            "there is no method 'registered'",
        ),  # only the first word is one
        (("run", "--seed", "0", "status", "--dry-run"), "there is no target 'status'"),
        (("tune",), "Missing argument"),
    ],
)
def test_the_first_word_may_be_a_subcommand(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == (0 if "--help" in arguments else 2)
    assert words in " ".join((out + err).split())


@pytest.mark.parametrize("command", ["compare r3l --against grpo --seed 0", "run --method grpo --seed 0"])
def test_a_base_checkpoint_that_nobody_trained_is_refused_before_a_job_starts(
    monkeypatch, capsys, tmp_path, command
):
    monkeypatch.setenv("R3L_ENVS", str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *command.split(), "--env", "guess")
    assert code == 2
    assert "there is no stored model 'guess'; `r3l sft guess` trains it" in err
    assert not (tmp_path / "results/logs").exists()
