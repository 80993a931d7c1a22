"""README.md and docs/results.md: their tables are what the stored runs give; the tables of made-up runs by hand."""

import pytest
from report.runs import write_run

from r3l.report import records
from r3l.report.pages import NOTHING, PAGES, TABLES, filled
from r3l.runs.places import find_runs


def block(name, runs):
    """The lines of one table, as lists of cells."""
    text = filled(f"Before.\n<!-- stored: {name} -->\nold\n<!-- end -->\nAfter.\n", runs)
    first, *lines, last, after, empty = text.split("\n")
    assert (first, lines[0], last, after, empty) == (
        "Before.",
        f"<!-- stored: {name} -->",
        "<!-- end -->",
        "After.",
        "",
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:] if line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_stored_runs(page, stored):
    """`python -m r3l.report.pages` writes them."""
    text = page.read_text(encoding="utf-8")
    assert filled(text, stored) == text and "<!-- stored: " in text


def test_tables_of_made_up_runs(tmp_path):
    """Three seeds of four tasks; solved by GRPO 2, 2, 3, by R3L 3, 3, 4: always a quarter more, so without spread."""
    for seed, more in enumerate((0, 0, 1)):
        write_run(tmp_path, "zero_shot", seed, [1, 0], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [more, 0])
        write_run(tmp_path, "r3l", seed, [1, 1], [1, more])
    runs = records.load(find_runs(tmp_path))
    head, _, start, grpo, *_ = block("scores", runs)
    assert head == ["", "ALFWorld"]
    assert start == ["zero_shot", "0.250 ± 0.000 (3)"]
    assert grpo == ["GRPO", "0.583 ± 0.359 (3)"]  # t(2) 4.303 x 0.1443 / sqrt(3)
    assert block("groups", runs)[3] == ["GRPO", "1.000 ± 0.000 (3)", "0.167 ± 0.717 (3)", "0.583 ± 0.359 (3)"]
    compared = dict(row for row in block("core", runs)[2:])
    assert compared["R3L minus GRPO, paired by seed"] == "+0.250" and compared["verdict"] == "2 more seeds are due"
    assert block("comparisons", runs)[2] == ["GRPO", "**+0.250** (no spread)"]


def test_variants_stand_beside_the_primary_methods_with_the_reasons_that_ended_their_episodes(tmp_path):
    """Of four episodes of each seed GRPO solves 2, the variant 3 and 4; whatever fails is unreadable."""
    for seed, more in enumerate((0, 1)):
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0])
        write_run(tmp_path, "raft", seed, [1, 1], [0, 0])
        write_run(tmp_path, "r3l_no_credit", seed, [1, 1], [1, more])
    head, _, *lines = block("variants alfworld", records.load(find_runs(tmp_path)))
    shares = {label: dict(zip(head[1:], cells, strict=True)) for label, *cells in lines}
    assert list(shares) == ["GRPO", "r3l_no_credit"]
    assert [shares[label]["ALFWorld, invalid response"] for label in shares] == ["0.500", "0.125"]
    assert "ALFWorld, turn limit" not in head  # no episode ended so


def test_a_table_may_name_its_environments(tmp_path):
    write_run(tmp_path, "grpo", 0, [1, 1], [1, 0])
    for seed in range(2):
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0], env="knights_knaves")
    runs = records.load(find_runs(tmp_path))
    both, easy, hard = (f"{mean} ± 0.000 (2)" for mean in ("0.500", "1.000", "0.000"))
    head, _, grpo = block("groups knights_knaves", runs)
    assert dict(zip(head, grpo, strict=True)) == {
        "": "GRPO",
        "Knights & Knaves": both,
        "Knights & Knaves, easy": easy,
        "Knights & Knaves, hard": hard,
    }
    assert block("scores", runs)[0] == ["", "ALFWorld"]


@pytest.mark.parametrize("name", TABLES)
def test_without_runs_a_table_says_so(name):
    assert block(name, []) == [[NOTHING]]
