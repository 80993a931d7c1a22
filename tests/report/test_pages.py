"""docs/results.md: its tables are what the stored runs give; the tables of made-up runs by hand."""

from report.runs import write_run

from docs.site.probe_tables import published_probes
from docs.site.stored_tables import PAGES, filled
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs


def block(name, runs):
    """The lines of one table, as lists of cells."""
    text = filled(f"Before.\n<!-- stored: {name} -->\nold\n<!-- end -->\nAfter.\n", runs)
    first, *lines, last, after, empty = text.split("\n")
    assert (first, last, after, empty) == ("Before.", "<!-- end -->", "After.", "")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:] if line]


def test_the_tables_of_the_pages_are_those_of_the_stored_runs(stored, stored_curves):
    """`python docs/site/stored_tables.py` writes them."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, stored, stored_curves) == text and "<!-- stored: " in text, page.name


def test_published_models_are_listed_with_their_recipe_and_intervals():
    """A probe of tier nano is left out; a measure that was not made is an empty cell."""
    share = {"value": 0.25, "low": 0.125, "high": 0.375}
    probe = {
        "tier": "smol",
        "label": "WebShop",
        "tasks": 64,
        "model": {"name": "somebodys-smol_webshop_cpu"},
        "reflection_schema": "lines",
        "measures": {"success": share, "guided_minus_fresh": share, "guided_minus_unguided": {"value": None}},
    }
    table = published_probes(
        [probe, probe | {"tier": "smol_cpu", "test": True}, probe | {"tier": "nano", "tasks": 65}]
    )
    assert table.splitlines()[2:] == [
        "| somebodys, WebShop, reflections in lines, `smol_webshop_cpu`, 64 tasks "
        "| 0.25 | +0.25 (+0.12 to +0.38) |  |  |",
        "| somebodys, WebShop, reflections in lines, `smol_webshop_cpu`, 64 test tasks "
        "| 0.25 | +0.25 (+0.12 to +0.38) |  |  |",
    ]


def test_tables_of_made_up_runs(tmp_path):
    """Three seeds of four tasks; solved by GRPO 2, 2, 3, by R3L 3, 3, 4: always a quarter more, so without
    spread."""
    for seed, more in enumerate((0, 0, 1)):
        write_run(tmp_path, "zero_shot", seed, [1, 0], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [more, 0])
        write_run(tmp_path, "r3l", seed, [1, 1], [1, more])
    runs = read_runs(find_runs(tmp_path))
    _, _, start, grpo, *compared = block("core", runs)
    assert start == ["zero_shot", "0.250 ± 0.000 (3)"]
    assert grpo == ["GRPO", "0.583 ± 0.359 (3)"]  # t(2) 4.303 x 0.1443 / sqrt(3)
    compared = dict(compared)
    assert (
        compared["R3L minus GRPO, paired by seed"] == "+0.250"
        and compared["verdict"] == "2 more seeds are due"
    )
    assert compared["R3L: thousand tokens sampled, scored, trained"] == "40, 0, 30"


def test_teachers_of_made_up_runs(tmp_path):
    """Successes minus failures 0.1, 0.2, 0.3: 0.2 +- 4.303 x 0.1 / sqrt(3). A quarter of hints is feedback."""
    for seed, solved in enumerate((0.2, 0.3, 0.4)):
        gaps = {"gap_success": solved, "gap_failure": 0.1, "gap_difference": solved - 0.1, "grad_share": 1.0}
        counts = {"contexts": 4, "with_feedback": 4, "by_solution": 3, "by_feedback": 1}
        metrics = {"step": 1} | {f"teacher/{name}": n for name, n in (gaps | counts).items()}
        write_run(tmp_path, "sdpo", seed, [1], [0], steps=[metrics])
    header, _, *rows = block("teachers", read_runs(find_runs(tmp_path)))
    (row,) = [cells for name, *cells in rows if name == "ALFWorld: sdpo (3 seeds)"]
    assert dict(zip(header[1:], row, strict=True)) == {
        "D successes": "+0.300",
        "D failures": "+0.100",
        "difference": "+0.200 (-0.048 to +0.448)",
        "difference, same task": "",
        "feedback": "0.25",
        "gradient": "1",
        "cosine": "",
        "test success": "0.500",
        "verdict": "blind teacher",
    }


def test_the_summary_compares_at_the_rate_of_grpo(tmp_path):
    """R3L solves 1 of 2 tasks at 1e-4, and at 3e-4 both, 1, both; GRPO 1 at 3e-4. Mean 1/3, t(2) 4.303 x 1/6."""
    for seed, second in enumerate((1, 0, 1)):
        write_run(tmp_path, "grpo", seed, [1], [0], rate=3e-4)
        write_run(tmp_path, "r3l", seed, [1], [0], rate=1e-4)
        write_run(tmp_path, "r3l@train.lr=0.0003", seed, [1], [second], rate=3e-4)
    header, _, row = block("summary", read_runs(find_runs(tmp_path)))
    assert header == ["", "base checkpoint", "GRPO", "R3L", "difference, 95 % interval"]
    assert row == ["ALFWorld (3 seeds)", "", "0.500", "0.833", "+0.333 (-0.384 to +1.050)"]


def test_a_verdict_at_unequal_learning_rates_needs_the_comparison_at_equal_ones(tmp_path):
    """R3L at 1e-4 is behind GRPO at 3e-4 in all twenty seeds; at 3e-4 it is ahead in five: the two disagree.

    After five of the twenty no verdict is given at all.
    """

    def write_seeds(seeds):
        for seed in seeds:
            write_run(tmp_path, "grpo", seed, [1, 1], [0, 0], rate=3e-4)
            write_run(tmp_path, "r3l", seed, [1, 0], [0, 0], rate=1e-4)

    write_seeds(range(5))
    core = dict(block("core", read_runs(find_runs(tmp_path)))[2:])
    assert core["verdict"] == "5 more seeds are due"
    write_seeds(range(5, 20))
    core = dict(block("core", read_runs(find_runs(tmp_path)))[2:])
    assert core["learning rates (GRPO, R3L)"] == "3e-4, 1e-4"
    assert core["at equal rates, 95 % interval"] == "not run"
    assert core["verdict"] == "inconclusive (rates differ)"
    for seed in range(5):
        write_run(tmp_path, "r3l@train.lr=0.0003", seed, [1, 1], [1, 0], rate=3e-4)
    core = dict(block("core", read_runs(find_runs(tmp_path)))[2:])
    assert core["at equal rates, 95 % interval"] == "+0.250 (+0.250 to +0.250; 5 seeds)"
    assert core["verdict"] == "inconclusive (the rates disagree)"
