"""Does the teacher teach? Rows of hand-made runs and probes; their table, figure and section."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from program import run
from report.runs import write_run

from r3l.report.figures import style
from r3l.report.figures.teachers import draw
from r3l.report.html import page
from r3l.report.reading import read_runs
from r3l.report.teachers import teacher_rows, teacher_table
from r3l.runs.run_paths import find_runs


def step(k, solved, failed, contexts=4, shown=4, **more):
    """Metrics of a step whose teacher finds the tokens of successes and failures likelier by so many nats."""
    gaps = {"gap_success": solved, "gap_failure": failed, "gap_difference": solved - failed}
    counts = {"contexts": contexts, "with_feedback": shown}
    return {"step": k, "train/success": 0.5} | {
        f"teacher/{name}": n for name, n in (gaps | counts | more).items()
    }


@pytest.fixture
def taught(tmp_path):
    """Of two tasks `sdar` solves one, `rlsd` both; their teachers see. That of `sdpo` is blind."""
    for seed in range(3):
        write_run(tmp_path, "grpo", seed, [1], [0])
        lead = 0.2 + 0.1 * seed  # 0.2, 0.3, 0.4
        steps = [
            step(1, lead + 0.1, 0.1, grad_share=0.2, by_solution=4),
            step(2, lead - 0.1, -0.1, shown=2, by_solution=2, by_feedback=2),
        ]
        write_run(tmp_path, "sdar", seed, [1], [0], steps=steps)
        write_run(tmp_path, "rlsd", seed, [1], [1], steps=[step(1, lead, 0)])
        write_run(tmp_path, "sdpo", seed, [1], [1], steps=[step(1, (-0.2, 0.0, 0.2)[seed], 0)])
    for seed in range(2):
        write_run(tmp_path, "agentopsd", seed, [1], [1], steps=[step(1, 0.2, 0)])
    return tmp_path


def measure(value, low=None, high=None, n=8, tasks=4):
    return {"value": value, "low": low, "high": high, "n": n, "tasks": tasks}


def a_probe(difference):
    """A probe whose reflections nobody could read, and whose solutions make this difference."""
    found = {
        "solution_gap_solved": measure(0.3),
        "solution_gap_failed": measure(0.1),
        "solution_shown": measure(1.0),
    }
    nothing = {
        f"reflection_{key}": measure(None, n=0) for key in ("gap_solved", "gap_failed", "difference", "shown")
    }
    return {
        "env": "math",
        "label": "Mathematics",
        "tier": "nano",
        "temperature": 0.7,
        "attempts": 8,
        "tasks": 4,
        "model": {"name": "math-1.5m", "weights_sha256": None, "parameters": 1500000},
        "task_set": {"name": "chain/validation", "sha256": "ab" * 32, "tasks": 4},
        "measures": found | nothing | {"solution_difference": measure(*difference)},
    }


def test_differences_are_means_over_updates_then_over_seeds(taught):
    rows = {row.method: row for row in teacher_rows(read_runs(find_runs(taught)))}
    assert set(rows) == {"sdar", "rlsd", "sdpo", "agentopsd"}  # GRPO reads no teacher
    sdar = rows["sdar"]
    assert (sdar.solved, sdar.failed, sdar.difference) == pytest.approx((0.3, 0.0, 0.3))
    half = 4.3027 * 0.1 / 3**0.5  # t of two degrees of freedom
    assert (sdar.low, sdar.high) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-4)
    assert (sdar.shown, sdar.fed) == (6 / 8, 1 / 4)
    assert (sdar.grad_share, sdar.grad_cosine) == (pytest.approx(0.2), None)
    assert (sdar.success, sdar.count) == (0.5, 3)
    (line,) = teacher_table([replace(sdar, grad_share=5.2e-5)]).sections[0].rows
    assert line["gradient share"].text == "5.2e-05"  # a small share is not 0


def test_a_method_is_ranked_only_if_its_teacher_is_not_blind(taught):
    rows = {row.method: row.verdict for row in teacher_rows(read_runs(find_runs(taught)))}
    assert rows == {"rlsd": "1 of 2", "sdar": "2 of 2", "sdpo": "blind teacher", "agentopsd": "needs 3 seeds"}


def test_equal_hints_have_columns_if_a_run_recorded_them(taught):
    """Of three seeds the difference at equal hints is 0.1, 0.2, 0.3; older runs' cells are blank, not 0."""
    columns = ["D successes, equal hints", "D failures, equal hints", "D failures, feedback"]
    columns.append("difference, equal hints")
    assert not set(columns) & set(teacher_table(teacher_rows(read_runs(find_runs(taught)))).names)
    for seed in range(3):
        of_both = {"gap_success_by_solution": -0.3 + 0.1 * seed, "gap_failure_by_solution": -0.4}
        of_both["gap_difference_by_solution"] = 0.1 + 0.1 * seed
        steps = [
            step(1, -0.2, 0.0, by_solution=2, by_feedback=2, gap_failure_by_feedback=0.5, **of_both),
            # Without a success nothing is compared; D of failures counts.
            {"step": 2, "teacher/contexts": 4, "teacher/gap_failure_by_feedback": 0.3},
        ]
        write_run(taught, "ungated_teacher", seed, [1], [0], steps=steps)
    rows = teacher_rows(read_runs(find_runs(taught)))
    row = next(row for row in rows if row.method == "ungated_teacher")
    assert (row.same_solved, row.same_failed, row.same_difference) == pytest.approx((-0.2, -0.4, 0.2))
    half = 4.3027 * 0.1 / 3**0.5
    assert (row.same_low, row.same_high) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-4)
    assert row.fed_failed == pytest.approx(0.4)
    assert row.high < 0 and row.verdict == "blind teacher"  # equal hints decide: their interval includes 0
    (section,) = teacher_table(rows).sections
    shown = {
        line["method, or teacher of a probe"].text: [line[c].text for c in columns] for line in section.rows
    }
    assert shown[row.label] == ["-0.200", "-0.400", "+0.400", "+0.200 (-0.048 to +0.448)"]
    assert all(cells == [""] * 4 for label, cells in shown.items() if label != row.label)


def test_the_figure_draws_the_difference_that_decides(tmp_path, monkeypatch):
    """At equal hints where it was measured, as colour and verdict do: here above 0, over all hints below."""
    of_same = {"gap_success_by_solution": 0.5, "gap_failure_by_solution": 0.1}
    for seed in range(3):
        differences = {"gap_difference_by_solution": 0.4 + 0.01 * seed}
        steps = [step(1, -0.2, 0.0, by_solution=2, by_feedback=2, **of_same, **differences)]
        write_run(tmp_path, "sdpo", seed, [1], [0], steps=steps)
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, out, name: drawn.append(figure) or [])
    (row,) = teacher_rows(read_runs(find_runs(tmp_path)))
    draw([row], tmp_path)
    means, differences = (ax.get_lines() for ax in drawn[0].axes)
    ends = [[0.5, 0.1], [0.5], [0.1]]
    assert [list(line.get_xdata()) for line in means[1:]] == [pytest.approx(each) for each in ends]
    bar, dot = differences[1:]
    assert list(bar.get_xdata()) == [row.same_low, row.same_high]
    assert list(dot.get_xdata()) == [pytest.approx(0.41)]


def test_attempts_at_one_task_decide_over_all_attempts(taught):
    """Of three seeds the difference at one task is -0.1, 0, 0.1 and 0.3 over all attempts: of tasks alone."""
    for seed in range(3):
        steps = [step(1, 0.3, 0.0, gap_difference_same_task=-0.1 + 0.1 * seed)]
        write_run(taught, "ungated_teacher", seed, [1], [0], steps=steps)
    rows = teacher_rows(read_runs(find_runs(taught)))
    row = next(row for row in rows if row.method == "ungated_teacher")
    half = 4.3027 * 0.1 / 3**0.5
    assert (row.task_difference, row.task_low, row.task_high) == pytest.approx((0, -half, half), abs=1e-4)
    assert row.low > 0 and row.verdict == "blind teacher"

    # The same of a probe, and of one in which no task has a success and a failure.
    probe = a_probe((0.2, 0.1, 0.3))
    for within, verdict in (
        (measure(0.1, -0.1, 0.3), "blind teacher"),
        (measure(0.1, 0.05, 0.3), "tells them apart"),
        (measure(None, n=0, tasks=0), "no task has both"),
    ):
        probe["measures"]["solution_difference_same_task"] = within
        (row,) = teacher_rows(read_runs(find_runs(taught)).iloc[:0], [probe])
        assert row.verdict == verdict
        (line,) = teacher_table([row]).sections[0].rows
        assert (line["difference, same task"].text == "") == (within["value"] is None)


def test_one_method_alone_has_no_rank(taught):
    runs = read_runs(find_runs(taught))
    (row,) = teacher_rows(runs[runs.method == "rlsd"])
    assert (row.rank, row.verdict, row.fed) == (None, "tells them apart", None)


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        ((0.2, 0.1, 0.3), "tells them apart"),
        ((0.2, -0.1, 0.5), "blind teacher"),
        ((0.2, 0.0, 0.5), "blind teacher"),
        ((-0.2, -0.3, -0.1), "prefers failures"),
        ((0.2, None, None), "needs 2 tasks"),
        ((None, None, None), "no successes or no failures"),
    ],
)
def test_verdicts_of_a_probe(difference, verdict, taught):
    (row,) = teacher_rows(read_runs(find_runs(taught)).iloc[:0], [a_probe(difference)])
    assert row.verdict == verdict and row.shown == 1 and row.over == "tasks"
    (line,) = teacher_table([row]).sections[0].rows
    assert line["rank"].text == verdict and line["method, or teacher of a probe"].text == (
        "Probe of math-1.5m: a solved attempt"
    )


def test_commands_and_report_show_the_panel(taught, tmp_path, monkeypatch, capsys):
    (taught / "probe").mkdir()
    (taught / "probe" / "math.json").write_text(json.dumps(a_probe((0.2, 0.1, 0.3))))
    code, out, _ = run(monkeypatch, capsys, "table", "teachers", "--results", taught, "--json")
    verdicts = {row["method"]: row["verdict"] for row in json.loads(out)["rows"]}
    assert code == 0 and verdicts["sdpo"] == "blind teacher" and verdicts[None] == "tells them apart"
    figure = tmp_path / "panel.png"
    assert run(monkeypatch, capsys, "figure", "teachers", "--results", taught, "--out", figure)[0] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    text = page.write(read_runs(find_runs(taught)), [], 3, tmp_path / "report.html").read_text()
    assert 'id="teachers"' in text and "blind teacher" in text and 'alt="teachers"' in text
    untaught = read_runs(path for path in find_runs(taught) if "grpo" in str(path))
    assert 'id="teachers"' not in page.write(untaught, [], 3, tmp_path / "other.html").read_text()


def test_without_a_teacher_it_says_what_makes_one(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, "grpo", 0, [1], [0])
    for verb in ("table", "figure"):
        code, _, err = run(monkeypatch, capsys, verb, "teachers", "--results", tmp_path)
        assert code == 2 and "no teacher under" in err and "--method sdar" in err and err.count("\n") == 1
