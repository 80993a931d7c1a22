"""What feedback buys per token: rows of hand-made runs; their table and figure."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from matplotlib.text import Text
from program import run
from report.runs import write_run

from r3l.report.feedback_per_token import feedback_rows, feedback_table, flat
from r3l.report.figures import feedback_per_token as feedback_figure
from r3l.report.figures import style
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs

BUDGET = {"tokens/generated": 60000, "tokens/trained": 30000}


def steps(solved, difference=None):
    """Metrics of six updates: ``solved`` of a hundred base rollouts in the first two, all of them later.

    ``difference``: what the teacher finds successes likelier by than failures, in nats.
    """
    rows = [{"step": k, "rollouts": 100, "stop/success": solved if k < 3 else 100} for k in range(1, 7)]
    if difference is not None:
        gaps = {"gap_success": difference, "gap_failure": 0, "gap_difference": difference}
        gaps |= {"contexts": 4, "with_feedback": 4, "grad_share": 5.2e-5}
        rows = [row | {f"teacher/{name}": n for name, n in gaps.items()} for row in rows]
    return rows


@pytest.fixture
def results(tmp_path):
    """GRPO solves two of four tasks, SDAR three, three and four; RLSD as many as GRPO. Its teacher is blind."""
    taught = {"settings": {"teacher": "live", "feedback": "environment"}}
    taught["budget"] = BUDGET | {"tokens/scored": 12000}
    for seed in range(3):
        write_run(tmp_path, "zero_shot", seed, [1, 0], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0], steps=steps(30), budget=BUDGET)
        solved = steps(40 + 10 * seed, 0.2 + 0.1 * seed)
        write_run(tmp_path, "sdar", seed, [1, 1], [1, int(seed == 2)], steps=solved, **taught)
        blind = steps(30, (-0.2, 0, 0.2)[seed])
        write_run(tmp_path, "rlsd@feedback=environment", seed, [1, 1], [0, 0], steps=blind, **taught)
    return tmp_path


def rows_of(results, **asked):
    return {row.method: row for row in feedback_rows(read_runs(find_runs(results)), **asked)}


def test_success_differences_tokens_and_gain_by_hand(results):
    rows = rows_of(results)
    assert list(rows) == ["grpo", "sdar", "rlsd@feedback=environment"]
    grpo, sdar = rows["grpo"], rows["sdar"]
    assert (grpo.early.mean, grpo.final.mean, grpo.final_effect) == (0.3, 0.5, None)
    assert sdar.early.mean == pytest.approx(0.5)  # 0.4, 0.5 and 0.6 in the first two of six updates
    assert sdar.early_effect.values_S == pytest.approx((0.1, 0.2, 0.3))
    assert sdar.final_effect.values_S == pytest.approx((0.25, 0.25, 0.5))
    # Of the base checkpoint's 0.25, by 0.06 million tokens: 0.5, 0.5 and 0.75.
    assert sdar.gain.mean == pytest.approx((0.5 + 0.5 + 0.75) / 3 / 0.06)
    assert sdar.tokens == {"generated_tokens": 10000, "scored_tokens": 2000, "trained_tokens": 5000}
    assert grpo.tokens["scored_tokens"] == 0
    assert (sdar.seeds, sdar.rate, sdar.at_other_rate) == (3, 3e-4, False)


def test_teachers_are_shown_and_blind_ones_marked(results):
    write_run(results, "critique_grpo", 0, [1, 1], [0, 0], steps=steps(30), settings={"feedback": "self"})
    rows = rows_of(results)
    assert rows["sdar"].teacher.difference == pytest.approx(0.3)
    verdicts = [rows[name].teacher_verdict for name in ("grpo", "critique_grpo", "sdar")]
    assert verdicts == ["no teacher", "not recorded", "tells them apart"]
    assert rows["rlsd@feedback=environment"].blind and not rows["sdar"].blind
    printed = {row["method"].title: row for row in feedback_table([*rows.values()]).sections[0].rows}
    assert printed["rlsd@feedback=environment"]["teacher's D"].text.endswith(", blind teacher")
    assert printed["sdar"]["teacher's D"].text.startswith("+0.300 (+0.0")
    assert printed["sdar"]["gradient share"].text == "5.2e-05"  # not 0.000


def test_a_teacher_is_shown_by_the_difference_at_equal_hints_that_judges_it(results):
    """Its D on successes minus failures is -0.4, at equal hints 0.15, 0.2 and 0.25 in the three seeds."""
    for seed in range(3):
        same = {"teacher/gap_difference_by_solution": 0.15 + 0.05 * seed}
        recorded = [step | same for step in steps(30, -0.4)]
        write_run(results, "sdpo", seed, [1, 1], [0, 0], steps=recorded, budget=BUDGET)
    sdpo = rows_of(results, methods=["sdpo"])["sdpo"]
    (record,) = flat([sdpo])
    shown = [record[f"teacher_{name}"] for name in ("difference", "low", "high")]
    assert shown == [0.2, 0.0758, 0.3242] and record["teacher"] == "tells them apart"
    (line,) = feedback_table([sdpo]).sections[0].rows
    assert line["teacher's D"].text == "+0.200 (+0.076 to +0.324)"


def test_differences_are_marked_where_the_correction_shows_them(results):
    """SDAR's early difference has p = 0.074, its final one 0.057; of one that is always 0.5 it is 0."""
    for seed in range(3):
        write_run(results, "erl", seed, [1, 1], [1, 1], steps=steps(30), budget=BUDGET)
    rows = rows_of(results)
    assert (rows["erl"].early_shown, rows["erl"].final_shown) == (False, True)
    assert not rows["sdar"].early_shown and not rows["sdar"].final_shown
    printed = {row["method"].title: row for row in feedback_table([*rows.values()]).sections[0].rows}
    assert printed["erl"]["final minus GRPO"].text == "+0.500 ± 0.000 *"


def test_rows_at_another_rate_are_a_family_of_their_own(results):
    """ERL's early differences of 0.10, 0.15 and 0.20 have p = 0.035, corrected over ERL's two 0.070.

    In one family with the four of the tuned runs, whose p is 0, it would be 0.035 x 6 / 5 = 0.042.
    """
    for seed in range(3):
        write_run(results, "erl", seed, [1, 1], [0, 0], steps=steps(40 + 5 * seed), budget=BUDGET)
        for tuned in ("sdar@train.lr=0.0001", "rlsd@train.lr=0.0001"):
            write_run(results, tuned, seed, [1, 1], [1, 1], steps=steps(80), budget=BUDGET, rate=1e-4)
    rows = rows_of(results, methods=["grpo", "erl", "sdar@train.lr=0.0001", "rlsd@train.lr=0.0001"])
    assert rows["erl"].early_effect.p_value == pytest.approx(0.035, abs=0.001)
    assert not rows["erl"].early_shown
    tuned = rows["sdar@train.lr=0.0001"]
    assert tuned.early_shown and tuned.final_shown


def test_a_method_that_two_names_ask_for_has_one_row_and_counts_once(results):
    """The bare name stands for every writer of feedback, so it asks for RLSD's row too."""
    runs = read_runs(find_runs(results))
    once = feedback_rows(runs, ["alfworld"], ["grpo", "rlsd"])
    twice = feedback_rows(runs, ["alfworld"], ["grpo", "rlsd", "rlsd@feedback=environment"])
    assert [row.method for row in twice] == ["grpo", "rlsd@feedback=environment"] and twice == once


def test_two_seeds_are_not_tested(results):
    for seed in range(2):
        write_run(results, "erl", seed, [1, 1], [1, 1], steps=steps(30), budget=BUDGET)
    erl = rows_of(results)["erl"]
    assert erl.final_effect.mean == 0.5 and not erl.final_shown


def test_a_method_is_shown_at_the_rate_of_grpo_if_it_has_such_runs(results):
    tuned = {"steps": steps(80), "budget": BUDGET, "rate": 9e-4}
    write_run(results, "r3l", 0, [1, 1], [1, 1], **tuned)
    r3l = rows_of(results)["r3l"]
    assert (r3l.rate, r3l.grpo_rate, r3l.at_other_rate, r3l.early.mean) == (9e-4, 3e-4, True, 0.8)
    (line,) = feedback_table([r3l]).sections[0].rows
    assert line["rate"].text == "0.0009 (GRPO 0.0003)"
    write_run(results, "r3l@train.lr=0.0003", 0, [1, 1], [1, 1], steps=steps(60), budget=BUDGET)
    r3l = rows_of(results)["r3l"]
    assert (r3l.rate, r3l.at_other_rate, r3l.early.mean) == (3e-4, False, 0.6)


def test_a_name_with_a_rate_is_a_row_of_its_own(results):
    """Tuned runs stand beside those at GRPO's rate: three of four tasks are solved there, all four here."""
    for seed in range(3):
        tuned = {"steps": steps(80), "budget": BUDGET, "rate": 1e-4}
        write_run(results, "sdar@train.lr=0.0001", seed, [1, 1], [1, 1], **tuned)
    assert [*rows_of(results, methods=["sdar"])] == ["sdar"]
    rows = rows_of(results, methods=["grpo", "sdar", "sdar@train.lr=0.0001"])
    tuned, at_grpos = rows["sdar@train.lr=0.0001"], rows["sdar"]
    assert (tuned.rate, tuned.at_other_rate, tuned.seeds, tuned.final.mean) == (1e-4, True, 3, 1.0)
    assert (at_grpos.rate, at_grpos.seeds) == (3e-4, 3)
    assert tuned.final_effect.values_S == pytest.approx((0.5, 0.5, 0.5))
    assert rows_of(results, methods=["sdar@train.lr=0.0009"])["sdar@train.lr=0.0009"].seeds == 0


def test_without_a_scored_base_checkpoint_there_is_no_gain(tmp_path):
    write_run(tmp_path, "grpo", 0, [1], [0], steps=steps(30), budget=BUDGET)
    (grpo,) = rows_of(tmp_path).values()
    (line,) = feedback_table([grpo]).sections[0].rows
    assert grpo.gain is None and line["gain per million"].text == "base not scored"


@pytest.mark.parametrize("counted", [{"tokens/trained": 30000}, {"tokens/generated": 0}])
def test_without_tokens_there_is_no_gain(results, counted, tmp_path):
    """ERL's training did not count what it generated, or generated nothing."""
    for seed in range(3):
        write_run(results, "erl", seed, [1, 1], [0, 0], steps=steps(30), budget=counted)
    (erl,) = rows_of(results, methods=["erl"]).values()
    (line,) = feedback_table([erl]).sections[0].rows
    assert erl.gain is None and line["gain per million"].text == "tokens not recorded"
    assert feedback_figure.draw([erl], tmp_path / "figure.png")


def test_runs_without_an_update_are_no_row(results):
    write_run(results, "erl", 0, [1, 1], [0, 0], steps=[])
    assert "erl" not in rows_of(results)


@pytest.mark.parametrize("verb", ["table", "figure"])
def test_a_method_that_trains_nothing_is_refused(verb, results, monkeypatch, capsys):
    asked = ("feedback_per_token", "--results", results, "--method", "grpo,zero_shot")
    code, _, err = run(monkeypatch, capsys, verb, *asked)
    assert code == 2 and "zero_shot trains nothing" in err and err.count("\n") == 1


def test_what_has_no_runs_is_a_row_only_if_it_is_named(results, monkeypatch, capsys, tmp_path):
    assert "hgpo" not in rows_of(results)
    named = ("--results", results, "--method", "grpo,hgpo", "--env", "alfworld,math")
    code, out, _ = run(monkeypatch, capsys, "table", "feedback_per_token", *named, "--json")
    rows = [(row["env"], row["method"], row["seeds"]) for row in json.loads(out)["rows"]]
    assert code == 0 and rows == [
        ("alfworld", "grpo", 3),
        ("alfworld", "hgpo", 0),
        ("math", "grpo", 0),
        ("math", "hgpo", 0),
    ]
    code, out, _ = run(monkeypatch, capsys, "table", "feedback_per_token", *named)
    assert code == 0 and out.count("no runs") == 3
    figure = tmp_path / "feedback.png"
    assert run(monkeypatch, capsys, "figure", "feedback_per_token", *named, "--out", figure)[0] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_difference_far_from_the_others_is_an_arrow_with_its_value(tmp_path, monkeypatch):
    """GRPO solves all four tasks: RLSD none (-1.00, an arrow at the edge), SDAR three (-0.25, a point)."""
    for seed in range(3):
        write_run(tmp_path, "grpo", seed, [1, 1], [1, 1], steps=steps(30), budget=BUDGET)
        write_run(tmp_path, "sdar", seed, [1, 1], [1, 0], steps=steps(30), budget=BUDGET)
        write_run(tmp_path, "rlsd", seed, [0, 0], [0, 0], steps=steps(30), budget=BUDGET)
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, *_: drawn.append(figure))
    feedback_figure.draw(feedback_rows(read_runs(find_runs(tmp_path))), tmp_path / "figure.png")
    differences = drawn[0].axes[0]
    assert [text.get_text() for text in differences.texts] == ["-1.00"]
    assert differences.dataLim.x0 == -feedback_figure.FARTHEST
    points = {line.get_xdata()[0] for line in differences.lines if line.get_marker() == "o"}
    assert points == {0.0, -0.25}


def test_long_names_of_rows_leave_room_for_the_titles_of_the_panels(results, tmp_path, monkeypatch):
    """No title touches the next one, and no text leaves the picture."""
    label = "GRPO with a teacher's reverse KL (feedback=environment)"
    rows = [replace(row, label=label, grpo_rate=1e-5) for row in rows_of(results).values()]
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, *_: drawn.append(figure))
    feedback_figure.draw(rows, tmp_path / "figure.png")
    drawn[0].draw_without_rendering()
    texts = [text for text in drawn[0].findobj(Text) if text.get_text()]
    places = {text.get_text(): text.get_window_extent() for text in texts}
    titles = [places[title] for title in feedback_figure.TITLES]
    assert all(left.x1 < right.x0 for left, right in pairwise(titles))
    name = f"{label[:32]}\n(feedback=environment) (3,\u00a0rate\u00a00.0003)"
    for text in (name, *feedback_figure.TITLES, *feedback_figure.UNITS):
        assert places[text].x0 >= 0 and places[text].x1 <= drawn[0].bbox.x1, text


@pytest.mark.parametrize("verb", ["table", "figure"])
def test_where_nothing_has_run_it_says_what_makes_a_row(verb, results, monkeypatch, capsys):
    asked = ("feedback_per_token", "--results", results, "--env", "math")
    code, _, err = run(monkeypatch, capsys, verb, *asked)
    assert code == 2 and "in math: train some" in err and err.count("\n") == 1
