"""The printed form: what stands in which cell, and that both languages are whole."""

from __future__ import annotations

import re
from dataclasses import replace

from report.runs import best, write_run

from r3l.report import records, tables
from r3l.report.render import to_latex, to_markdown
from r3l.runs.places import find_runs
from r3l.workflow import plan

TABLES = plan.tables()


def build(root, name="table1", methods=("zero_shot", "grpo", "r3l"), planned=3, empty=True):
    runs = records.load(find_runs(root, may_be_none=True))
    return replace(tables.build(TABLES[name], runs, methods, planned, "nano"), empty=empty)


def markdown_rows(text):
    """The cells of each table line; the model of a block stands in its first line only."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_sections_rows_and_columns_are_the_papers(three_seeds):
    printed = build(three_seeds).printed
    assert [section.title for section in printed.sections] == [
        "nano tier, ours",
        "Qwen2.5-1.5B-Instruct, paper",
        "Qwen2.5-7B-Instruct, paper",
        "Qwen3-4B, paper",
    ]
    paper = ["ALFWorld", "WebShop", "ScienceWorld", "GSM8K", "Math500", "MinervaMath", "OlympiadBench", "AMC23", "DAPO"]
    assert printed.names == ["method", *paper]
    assert list(printed.section("nano tier, ours")) == ["zero_shot", "GRPO", "R3L"]


def test_no_cell_is_empty_and_nothing_is_invented(three_seeds, tmp_path):
    printed = build(three_seeds).printed
    ours = printed.section("nano tier, ours")
    assert ours["R3L"]["GSM8K"].text == ours["R3L"]["WebShop"].text == "0/3 seeds"
    assert "0 seeds on WebShop, ScienceWorld, DAPO: nobody has run it." in printed.notes
    assert any(note.startswith("0 seeds on GSM8K") and "no such set" in note for note in printed.notes)
    assert all(cell.text for cells in printed.cells() for cell in cells)
    write_run(tmp_path / "one", "grpo", 0, [1, 0], [0, 0])
    ours = build(tmp_path / "one").printed.section("nano tier, ours")
    assert (ours["GRPO"]["ALFWorld"].text, ours["R3L"]["ALFWorld"].text) == ("0.250 (1/3)", "0/3 seeds")


def test_without_empty_what_has_no_run_is_left_out_and_named(three_seeds):
    """Only ALFWorld has runs, of three of the four methods: a column, three rows, and the paper's of that column."""
    methods = ("zero_shot", "grpo", "r3l", "raft")
    printed = build(three_seeds, methods=methods, empty=False).printed
    assert printed.names == ["method", "feedback", "ALFWorld"][:: 1 if "feedback" in printed.names else 2]
    assert list(printed.section("nano tier, ours")) == ["zero_shot", "GRPO", "R3L"]
    assert set(printed.section("Qwen3-4B, paper")["GRPO"]) >= {"method", "ALFWorld"}
    assert len(printed.section("Qwen3-4B, paper")) == 7
    (note,) = [note for note in printed.notes if note.startswith("Left out")]
    paper = "WebShop, ScienceWorld, GSM8K, Math500, MinervaMath, OlympiadBench, AMC23, DAPO"
    assert note == f"Left out, since none of ours has run there: {paper}; RAFT (r3l table --empty)."
    assert len(build(three_seeds, methods=methods, empty=False).rows) == 3 * 4  # the csv has them all


def test_where_nothing_has_run_the_published_numbers_are_the_table(tmp_path):
    printed = build(tmp_path, "llama", empty=False).printed
    assert [section.title for section in printed.sections] == ["Llama-3.2-3B-Instruct, paper"]
    assert len(printed.names) == 1 + 9 and any(
        "None of ours has run: " in n and "tier paper trains it" in n for n in printed.notes
    )


def test_mean_interval_and_best(three_seeds):
    # R3L 3, 4, 5 of 8: 0.5 +- 4.3027 * 0.125 / sqrt(3) = 0.3105; GRPO 2, 3, 2 of 8; zero-shot 1 of 8
    printed = build(three_seeds).printed
    ours = printed.section("nano tier, ours")
    assert ours["R3L"]["ALFWorld"].text == "0.500 ± 0.310"
    assert ours["zero_shot"]["ALFWorld"].text == "0.125 ± 0.000"
    assert best(printed, "nano tier, ours", "ALFWorld") == {"R3L"}
    assert best(printed, "nano tier, ours", "GSM8K") == set()
    assert best(printed, "Qwen2.5-1.5B-Instruct, paper", "GSM8K") == {"Critique-GRPO"}
    assert best(printed, "Qwen3-4B, paper", "AMC23") == {"GSPO", "R3L"}  # 0.800 both


def test_incomplete_seeds_are_never_the_best(three_seeds):
    printed = build(three_seeds, planned=5).printed
    assert printed.section("nano tier, ours")["R3L"]["ALFWorld"].text == "0.500 ± 0.310 (3/5)"
    assert best(printed, "nano tier, ours", "ALFWorld") == set()


def test_markdown_is_a_whole_table(three_seeds):
    text = to_markdown(build(three_seeds).printed)
    header, rule, *rows = markdown_rows(text)
    assert header == ["Model", "Method", *build(three_seeds).printed.names[1:]]
    assert {len(row) for row in [header, rule, *rows]} == {11} and len(rows) == 3 + 3 * 7
    assert rows[2][:3] == ["", "R3L", "**0.500 ± 0.310**"]
    assert rows[5][:3] == ["", "GRPO", "0.720"]  # as printed, the last zero too


def test_tables_of_other_models_show_the_published_numbers_and_no_seeds(tmp_path):
    for name, cells, planned, reason in (
        ("llama", 63, 3, "tier paper trains it"),
        ("zero_shot", 48, 3, "r3l evaluate"),
    ):
        table = build(tmp_path, name)
        assert len(table.rows) == cells
        assert {(r.seeds_done, r.seeds_planned, r.score, r.paper.verdict) for r in table.rows} == {
            (0, planned, None, "incomplete")
        }
        assert all(r.paper.value is not None and reason in r.paper.reason for r in table.rows)
        rows = [row for section in table.printed.sections if section.title.endswith("ours") for row in section.rows]
        assert {cell.text for row in rows for column, cell in row.items() if column != "method"} == {
            f"0/{planned} seeds"
        }


def test_a_run_of_another_model_fills_its_cell(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "grpo", seed, [1, 0], [1, seed % 2], tier="paper", model="Llama-3.2-3B-Instruct")
    table = build(tmp_path, "llama")
    (row,) = [row for row in table.flat() if row["seeds_done"]]
    # 2, 3, 2 of 4: mean 0.5833, half width 4.3027 * 0.1443 / sqrt(3) = 0.3586
    assert (row["env"], row["paper"], row["paper_difference"]) == ("alfworld", 0.521, 0.0623)
    assert row["verdict"] == "within interval"
    block = table.printed.section("Llama-3.2-3B-Instruct, ours")
    assert block["GRPO"]["ALFWorld"].text == "0.583 ± 0.359" and block["R3L"]["ALFWorld"].text == "0/3 seeds"


def test_several_measures_are_columns_and_the_cheapest_is_best(three_seeds):
    printed = build(three_seeds, "pivot", ["r3l"]).printed
    assert printed.names[1] == "oracle agreement" and len(printed.names) == 7
    block = printed.section("Qwen2.5-1.5B-Instruct, paper, ScienceWorld")
    assert list(block) == [f"R3L (step={k})" for k in (100, 200, 300, 400)]
    assert best(printed, "Qwen2.5-1.5B-Instruct, paper, ScienceWorld", "misdiagnosed") == {"R3L (step=400)"}
    assert block["R3L (step=100)"]["oracle agreement"].text == "0.36 [a]"
    assert "[a] within one step of the oracle." in printed.notes
    assert printed.section("nano tier, ours, ALFWorld")["R3L"]["accurate"].text == "none"


def test_all_three_files_are_written_and_repeatable(three_seeds, tmp_path):
    for folder in ("a", "b"):
        build(three_seeds).write(tmp_path / folder / "t.csv")
    for suffix in ("csv", "tex", "md"):
        assert (tmp_path / "a" / f"t.{suffix}").read_bytes() == (tmp_path / "b" / f"t.{suffix}").read_bytes()


def test_latex_is_balanced_and_escaped(three_seeds):
    text = to_latex(build(three_seeds, "sync_interval", TABLES["sync_interval"].methods).printed)
    rows = [line for line in text.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    plain = re.sub(r"\\[&%$#_{}]", "", text)
    assert plain.count("{") == plain.count("}") and plain.count("\\begin") == plain.count("\\end")
    assert not re.search(r"[#_<>±]", plain.split("\n", 1)[1])
