"""Tables in narrow terminals: columns are dropped and named, or cells wrap; a number is never cut."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from r3l.config import PROFILES
from r3l.files.paths import ROOT, STORED
from r3l.report import options, probes, tables
from r3l.report.budget import budget_rows, budget_table
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims import load_claims
from r3l.report.claims_table import claims_table
from r3l.report.compare import compare, comparison_table
from r3l.report.paper_table import full_table
from r3l.report.published import load
from r3l.report.published_checks import check, summary_table
from r3l.report.registered import load_registered, registered_rows, registered_table
from r3l.report.tuning import tuning_table, tunings
from r3l.workflow import plan

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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "words", [["list", "envs"], ["list", "options"], ["list", "methods"], ["table", "published"]]
)
def test_commands_know_how_wide_their_terminal_is(words, width):
    """In a pseudo-terminal, since what goes into a pipe is printed wide."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "LINES": "50", "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "r3l.cli", *words]
    done = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert done.wait() == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", b"".join(parts).decode())
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    if words == ["list", "envs"]:
        assert "scienceworld" in text  # a name is not broken
    if words[0] == "list":
        assert len(text.splitlines()) < 50  # it fits the screen
