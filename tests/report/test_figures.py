from __future__ import annotations

import json

import pytest
from report.runs import write_run

from r3l import workflow
from r3l.core.errors import DataError
from r3l.report import figures, records


def draw(root, out):
    return figures.training_curves(records.load(records.find(root)), out)


def test_pdf_and_png_are_written_and_repeatable(three_seeds, tmp_path):
    first = [path.read_bytes() for path in draw(three_seeds, tmp_path / "a")]
    second = [path.read_bytes() for path in draw(three_seeds, tmp_path / "b")]
    assert first == second
    assert first[0].startswith(b"%PDF") and first[1].startswith(b"\x89PNG")


def test_one_untrained_seed_can_be_drawn(tmp_path):
    write_run(tmp_path, "zero_shot", 0, [1, 0], [0, 0])
    assert all(path.stat().st_size > 1000 for path in draw(tmp_path, tmp_path / "out"))


def test_scores_of_one_and_of_three_seeds(three_seeds, tmp_path):
    write_run(tmp_path / "one", "r3l", 0, [1, 1, 0, 0], [0, 0])
    for root in (three_seeds, tmp_path / "one"):
        written = figures.scores(records.load(records.find(root)), tmp_path / "out", ["grpo", "r3l"], "t")
        assert [path.name for path in written] == ["t.pdf", "t.png"] and all(p.stat().st_size > 1000 for p in written)


def test_environments_are_rows_of_one_figure(three_seeds, tmp_path, monkeypatch):
    write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="webshop")
    drawn = []
    monkeypatch.setattr(figures, "_save", lambda figure, stem: drawn.append(figure) or [])
    found = records.load(records.find(three_seeds))
    figures.training_curves(found, tmp_path)
    figures.scores(found, tmp_path, ["grpo", "r3l"])
    curves, scores = drawn
    assert [ax.get_ylabel().split("\n")[0] for ax in curves.axes[::4]] == ["ALFWorld", "WebShop"]
    assert [ax.get_title() for ax in scores.axes][::3] == ["ALFWorld, easy", "WebShop, easy"]
    ticks = [[label.get_text() for label in ax.get_yticklabels()] for ax in scores.axes[::3]]
    assert ticks == [["GRPO", "R3L"], ["GRPO"]]


def test_environments_may_differ_in_their_groups_and_have_a_constant_answer(three_seeds, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "_save", lambda figure, stem: drawn.append(figure) or [])
    path = write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="shortest_path")
    content = json.loads(path.read_text())
    content["groups"] = {"all": content["groups"]["all"]}
    content["panel"] |= {"constant": {"answer": "infeasible", "success": {"all": 0.25}}}
    path.write_text(json.dumps(content))
    figures.scores(records.load(records.find(three_seeds)), tmp_path, ["grpo", "r3l"])
    (scores,) = drawn
    shown = [ax.get_title() for ax in scores.axes if ax.axison]
    assert shown == ["ALFWorld, easy", "ALFWorld, hard", "ALFWorld, all", "Shortest path, all"]
    assert [line.get_xdata()[0] for line in scores.axes[3].lines if line.get_linestyle() == ":"] == [0.25]


def test_a_figure_shows_one_tier(three_seeds, tmp_path):
    write_run(three_seeds, "r3l", 0, [1], [0], tier="smol")
    with pytest.raises(DataError, match="one tier"):
        draw(three_seeds, tmp_path / "out")


def test_a_method_has_one_colour_and_no_two_share_it():
    some = figures.colours(["r3l", "raft"])
    assert some["r3l"] == figures.colours(["dapo", "r3l"])["r3l"]
    many = figures.colours(workflow.tables()["table1"].methods)
    assert len(set(many.values())) == len(many) == 12
