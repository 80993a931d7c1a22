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
from program import run
from report.commands_in_terminal import END
from rich.console import Console

from r3l.cli import printing
from r3l.config import PROFILES
from r3l.files.paths import ROOT, STORED
from r3l.files.requirements import Finding
from r3l.report import options, probes, tables
from r3l.report.budget import budget_rows, budget_table
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims import load_claims
from r3l.report.claims_table import claims_table
from r3l.report.compare import compare, comparison_table
from r3l.report.paper_table import full_table
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
        shown = tables.selected(runs, spec, config, everything)
        methods = tables.methods_of(shown, spec, config, everything)
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
    yield "compare", comparison_table(compare(runs[runs.tier == "nano"], "r3l", ["grpo", "raft"]))
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
    for words, (code, text) in zip(commands, in_terminal(commands, [width]), strict=True):
        assert code == 0 and max(len(line.rstrip()) for line in text.splitlines()) <= width
        if words == ["list", "envs"]:
            assert "scienceworld" in text  # a name is not broken
        if words[0] == "list":
            assert len(text.splitlines()) < 50  # it fits the screen


LISTS = ("envs", "methods", "models", "tiers", "tables", "figures", "options", "differences")
PRINTED = [
    *(["list", name] for name in LISTS),
    *(
        ["list", "envs", "alfworld"],
        ["list", "methods", "r3l", "grpo"],
        ["list", "options", "train", "alpha"],
    ),
    ["list", "options", "--env", "math", "--method", "r3l"],
    *(["tune", "show"], ["table", "published"], ["table", "published", "--impossible"], ["table", "map"]),
    ["table", "probe", *map(str, sorted((STORED / "probe").glob("*.json")))],
]


@pytest.mark.slow
def test_no_command_cuts_a_word_or_number_in_a_narrow_terminal():
    """A narrow output has the words of the wide one, or says which columns it leaves out; no other words."""
    wide = 2000
    outputs = iter(in_terminal(PRINTED, [*WIDTHS, wide]))
    for words in PRINTED:
        found = {width: next(outputs) for width in (*WIDTHS, wide)}
        code, text = found.pop(wide)
        every, left_out = words_of(text)
        assert not left_out and code in (0, 2), words
        for width, (its_code, its_text) in found.items():
            shown, left_out = words_of(its_text)
            assert its_code == code and not shown - every, (words, width, shown - every)
            if not left_out:
                assert shown == every, (words, width, every - shown)
            # The names of the columns are in the first line below a title, which is shown or named.
            named = {word for names in left_out for word in names.replace(",", " ").split()}
            titles = {word for line in text.splitlines()[:2] for word in line.split()}
            assert titles <= {*shown, *named}, (words, width, titles - {*shown, *named})


def test_the_doctor_keeps_the_command_to_copy(monkeypatch, capsys):
    """What was found gives way first, and a long command continues on the next line between its words."""
    command = f"huggingface-cli download Qwen/Qwen2.5-7B-Instruct --revision {'0123456789abcdef' * 2}"
    missing = Finding("weights of qwen2.5-7b", False, f"not in {'/data/models' * 4}", command)
    monkeypatch.setattr(doctor, "examine", lambda tier, run: [Finding("python", True, "3.11.7", ""), missing])
    monkeypatch.setattr(printing, "console", lambda: Console(width=80))
    code, text, _ = run(monkeypatch, capsys, "doctor", "--tier", "paper")
    assert code == 2 and all(word in text.split() for word in (*command.split(), "FAIL", "python"))
    assert "Left out at 80 columns: found (all: --json)." in text
