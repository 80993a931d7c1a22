"""README.md and docs/results.md: their tables are what the stored runs give; the tables of made-up runs by hand."""

from report.runs import write_run

from docs.site.stored_tables import PAGES, filled
from r3l.report import records
from r3l.runs.places import find_runs


def block(name, runs):
    """The lines of one table, as lists of cells."""
    text = filled(f"Before.\n<!-- stored: {name} -->\nold\n<!-- end -->\nAfter.\n", runs)
    first, *lines, last, after, empty = text.split("\n")
    assert (first, last, after, empty) == ("Before.", "<!-- end -->", "After.", "")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:] if line]


def test_the_tables_of_the_pages_are_those_of_the_stored_runs(stored):
    """`python docs/site/stored_tables.py` writes them."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, stored) == text and "<!-- stored: " in text, page.name


def test_tables_of_made_up_runs(tmp_path):
    """Three seeds of four tasks; solved by GRPO 2, 2, 3, by R3L 3, 3, 4: always a quarter more, so without spread."""
    for seed, more in enumerate((0, 0, 1)):
        write_run(tmp_path, "zero_shot", seed, [1, 0], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [more, 0])
        write_run(tmp_path, "r3l", seed, [1, 1], [1, more])
    runs = records.load(find_runs(tmp_path))
    _, _, start, grpo, *compared = block("core", runs)
    assert start == ["zero_shot", "0.250 ± 0.000 (3)"]
    assert grpo == ["GRPO", "0.583 ± 0.359 (3)"]  # t(2) 4.303 x 0.1443 / sqrt(3)
    compared = dict(compared)
    assert compared["R3L minus GRPO, paired by seed"] == "+0.250" and compared["verdict"] == "2 more seeds are due"
