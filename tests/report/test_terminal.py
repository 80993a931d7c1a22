"""Tables in narrow terminals: columns are dropped and named, or cells wrap; a number is never cut."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from program import run
from report.commands_in_terminal import END
from rich.console import Console

from r3l import cli
from r3l.cli import printing
from r3l.config import PROFILES, names
from r3l.evaluation.stored_runs import probes_in
from r3l.files.paths import ROOT, STORED
from r3l.files.requirements import Finding
from r3l.report import options, probes, tables
from r3l.report.budget import budget_rows, budget_table
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims import load_claims
from r3l.report.claims_table import claims_table
from r3l.report.compare import compare_methods, comparison_table
from r3l.report.full_table import full_table
from r3l.report.published import check, load, summary_table
from r3l.report.registered import load_registered, registered_rows, registered_table
from r3l.report.tuning import tuning_table, tunings
from r3l.workflow import doctor, plan

NUMBER = re.compile(r"[+-]?\d[\d,]*\.?\d*")
WIDTHS = (80, 100)


def every_table(runs):
    """Each printed table of the stored runs, probes and tunings, by its name."""
    config, everything = plan.load(), tables.Selection()
    for name, spec in plan.tables().items():
        shown, methods = tables.selected(runs, spec, config, everything)
        built = tables.build(spec, shown, methods, 5, "nano")
        yield name, built.printed
        if spec.kind == "scores" and built.rows.seeds_done.any():
            yield f"{name} in full", full_table(built.rows)
    yield "budget", budget_table(budget_rows(runs))
    of, of_probes, registered = load_claims(), probes.read_folders([STORED]), load_registered()
    yield "claims", claims_table(claim_verdicts(runs, of_probes, of), of)
    yield "probe", probes.probe_table(of_probes)
    yield "published", summary_table(check(load()))
    yield "registered", registered_table(registered_rows(runs, registered), registered)
    yield "compare", comparison_table(compare_methods(runs[runs.tier == "nano"], "r3l", ["grpo", "raft"]))
    yield "tuning", tuning_table(tunings(STORED, "nano", None, None))
    yield "methods", options.methods_table(options.methods("nano"))


def test_no_number_is_cut_and_what_is_left_out_is_named(stored):
    """Every number of a column that is shown is there as often as in the table, whole; the others' names are
    said."""
    assert len(PROFILES) == 3  # of the table of methods
    for name, table in every_table(stored):
        for width in WIDTHS:
            console = Console(width=width)
            with console.capture() as captured:
                console.print(table)
            text = captured.get()
            assert max(map(len, text.splitlines())) <= width, (name, width)
            _, _, said = text.rpartition(f"Left out at {width} columns: ")
            said = " ".join(said.split()) if f"Left out at {width}" in text else ""
            left_out = {column for column in table.names if column in said.partition(" (all")[0].split(", ")}
            assert table.names[0] not in left_out and len(left_out) < len(table.names), (name, width)
            shown = [column for column in table.names if column not in left_out]
            printed = NUMBER.findall(text)
            for section in table.sections:
                for row in section.rows:
                    for column in shown:
                        wanted = NUMBER.findall(row[column].text) if column in row else []
                        assert not {*wanted} - {*printed}, (name, width, column, row[column].text)


def in_terminal(commands, widths):
    """(exit code, text) of each command at each width, of a process whose output is a pseudo-terminal.

    What goes into a pipe is printed wide.
    """
    ours, theirs = pty.openpty()
    environment = {**os.environ, "LINES": "50", "TERM": "xterm", "NO_COLOR": "1"}
    program = [sys.executable, str(Path(__file__).with_name("commands_in_terminal.py"))]
    arguments = [json.dumps(commands), *map(str, widths)]
    done = subprocess.Popen(
        [*program, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    os.close(theirs)
    parts = []
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    assert done.wait() == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", b"".join(parts).decode().replace("\r\n", "\n"))
    outputs = re.findall(rf"(.*?){END}(\d+)\n", text, re.DOTALL)
    assert len(outputs) == len(commands) * len(widths)
    return [(int(code), text) for text, code in outputs]


def words_of(text):
    """(words of an output and how often each is there; names of the columns that it leaves out)."""
    text = " ".join(text.replace("\u2500", "").split())
    left_out = re.findall(r"Left out at \d+ columns: (.*?) \(all: --json\)\.", text)
    return Counter(re.sub(r"Left out at \d+ columns: .*? \(all: --json\)\.", "", text).split()), left_out


@pytest.mark.parametrize("width", WIDTHS)
def test_commands_know_how_wide_their_terminal_is(width):
    commands = [["list", "envs"], ["list", "options"], ["list", "methods"], ["table", "published"]]
    commands.append(["list", "options", "alpha"])
    for words, (code, text) in zip(commands, in_terminal(commands, [width]), strict=True):
        assert code == 0 and max(len(line.rstrip()) for line in text.splitlines()) <= width
        if words == ["list", "envs"]:
            assert "scienceworld" in text  # a name is not broken
        if words[0] == "list":
            assert len(text.splitlines()) < 50  # it fits the screen
        if words[-1] == "alpha":
            assert "default: 3.0" in text and "source: paper: 3" in text


OTHER_RUNS = {  # options of tables that show none of results/stored
    "map_cells": ["--results", "results/stored/map"],
    **dict.fromkeys(("in_domain", "transfer"), ["--tier", "paper"]),  # planned rows
}
# Commands that print tables of what is there, with examples of their arguments.
EXAMPLES = {
    "table": [
        *([name, *OTHER_RUNS.get(name, ["--results", "results/stored"])] for name in names("tables")),
        ["table1", "--results", "results/stored", "--full"],
    ],
    "table budget": [["--results", "results/stored"]],
    "table claims": [[]],
    "table feedback_per_token": [[]],
    "table map": [[]],
    "table probe": [[str(path) for path in probes_in(STORED)]],
    "table published": [[], ["--impossible"]],
    "compare": [["r3l", "--against", "all", "--offline"]],
    "compare power": [["r3l"]],
    "compare registered": [[]],
    "run status": [["--grid", "full"]],
    "tune show": [[]],
    "list envs": [[], ["alfworld"]],
    "list methods": [[], ["r3l", "grpo"]],
    "list options": [[], ["train", "alpha"], ["--env", "math", "--method", "r3l"]],
    **{f"list {name}": [[]] for name in ("models", "tiers", "tables", "figures", "differences")},
}
# Those that play, train or look at the machine before they print one, or of whose runs none is stored yet.
AFTER_WORK = {"doctor", "evaluate", "probe", "tune", "run", "table teachers"}
WITHOUT_TABLE = {
    *("train", "sft", "demo", "report", "verify", "verify episodes", "stored add", "stored fetch"),
    *("doctor step", "doctor memory", "bench step", "bench train", "new method", "new env", "model fetch"),
    *("figure", "figure probe", "figure claims", "figure map", "figure held_out", "figure teachers"),
    "figure feedback_per_token",
    *("export model", "export trinity", "data check", "data build", "data catalogue"),
}


def test_every_command_with_a_table_has_an_example():
    """A new command must be named above; ``list``, ``new`` and other groups are no commands themselves."""
    paths = set()
    for name, command in typer.main.get_command(cli.app).commands.items():
        further = getattr(command, "commands", {})
        paths |= {f"{name} {word}" for word in further}
        if not further or isinstance(command, cli.Verb):
            paths.add(name)
    assert paths == {*EXAMPLES, *AFTER_WORK, *WITHOUT_TABLE}


@pytest.mark.slow
def test_no_command_cuts_a_word_or_number_in_a_narrow_terminal():
    """A narrow output has the words of the wide one, or says which columns it leaves out; no other words."""
    wide = 2000
    printed = [[*path.split(), *words] for path, examples in EXAMPLES.items() for words in examples]
    outputs = iter(in_terminal(printed, [*WIDTHS, wide]))
    for words in printed:
        found = {width: next(outputs) for width in (*WIDTHS, wide)}
        code, text = found.pop(wide)
        every, left_out = words_of(text)
        assert not left_out and code == 0, (words, text)
        for width, (its_code, its_text) in found.items():
            shown, left_out = words_of(its_text)
            assert its_code == code and not shown - every, (words, width, shown - every)
            if not left_out:
                assert shown == every, (words, width, every - shown)
            # The names of the columns are in the first line below a title, which is shown or named.
            named = {word for names in left_out for word in names.replace(",", " ").split()}
            top = text.replace("\u2500", "").splitlines()[:2]  # without the rule below the names
            titles = {word for line in top for word in line.split()}
            assert titles <= {*shown, *named}, (words, width, titles - {*shown, *named})


def test_the_doctor_keeps_the_command_to_copy(monkeypatch, capsys):
    """A command in backticks is on one line, even if that is longer than the terminal."""
    command = f"huggingface-cli download Qwen/Qwen2.5-7B-Instruct --revision {'0123456789abcdef' * 2}"
    missing = Finding("weights of qwen2.5-7b", False, f"not in {'/data/models' * 4}", f"`{command}`, or none")
    monkeypatch.setattr(doctor, "examine", lambda tier, run: [Finding("python", True, "3.11.7", ""), missing])
    monkeypatch.setattr(printing, "Console", lambda **_: Console(width=80))
    code, text, _ = run(monkeypatch, capsys, "doctor", "--tier", "paper")
    assert code == 2 and "FAIL weights of qwen2.5-7b: not in" in text and "/data/models" * 4 in text
    assert sum(f"`{command}`," in line for line in text.splitlines()) == 1 and len(command) > 80
