"""The printed form: what stands in which cell, and that both languages are whole."""

from __future__ import annotations

from report.runs import write_run

from r3l.report import tables
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs
from r3l.workflow import plan

TABLES = plan.tables()


def build(root, name="table1", methods=("zero_shot", "grpo", "r3l"), planned=3, empty=True):
    runs = read_runs(find_runs(root, may_be_none=True))
    return tables.build(TABLES[name], runs, methods, planned, "nano", empty=empty)


def test_no_cell_is_empty_and_nothing_is_invented(three_seeds, tmp_path):
    printed = build(three_seeds).printed
    ours = printed.section("nano tier, ours")
    assert ours["R3L"]["GSM8K"].text == ours["R3L"]["WebShop"].text == "0/3 seeds"
    assert all(cell.text for cells in printed.cells() for cell in cells)
    write_run(tmp_path / "one", "grpo", 0, [1, 0], [0, 0])
    ours = build(tmp_path / "one").printed.section("nano tier, ours")
    assert (ours["GRPO"]["ALFWorld"].text, ours["R3L"]["ALFWorld"].text) == ("0.250 (1/3)", "0/3 seeds")


def test_without_empty_what_has_no_run_is_left_out_and_named(three_seeds):
    """Only ALFWorld has runs, of three of the four methods: a column, three rows, and the paper's of that
    column."""
    methods = ("zero_shot", "grpo", "r3l", "raft")
    printed = build(three_seeds, methods=methods, empty=False).printed
    assert set(printed.names) <= {"method", "feedback", "ALFWorld"}
    assert list(printed.section("nano tier, ours")) == ["zero_shot", "GRPO", "R3L"]
    assert set(printed.section("Qwen3-4B, paper")["GRPO"]) >= {"method", "ALFWorld"}
    assert len(printed.section("Qwen3-4B, paper")) == 7
    (note,) = [note for note in printed.notes if note.startswith("Left out")]
    assert "DAPO" in note and "RAFT" in note and "ALFWorld" not in note
    assert len(build(three_seeds, methods=methods, empty=False).rows) == 3 * 4  # the csv has them all
