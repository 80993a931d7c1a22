"""What each figure draws, worked out by hand; what it does with few data; that files repeat."""

from __future__ import annotations

import matplotlib.style
import numpy as np
import pytest
from report.runs import write_run

from r3l.core.errors import ConfigError, DataError
from r3l.report import figures
from r3l.report.figures import FIGURES, select, style
from r3l.report.figures.style import look
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs
from r3l.stats.intervals import wilson_bounds
from r3l.workflow.plan import tables


def drawn(name, root):
    """(figure, caption) of all runs under ``root``."""
    kind = FIGURES[name]
    figure, _, text = kind.function(select(read_runs(find_runs(root)), tables()[kind.table]))
    return figure, text


def lines(axes, method):
    return [line for line in axes.lines if line.get_color() == look(method).colour]


def step(k, **more):
    return {
        "step": k,
        "train/success": 0.5,
        "rollouts": 12.0,
        "stop/success": 6.0,
        "tokens/generated": 1000.0,
        **more,
    }


RETRIED = {
    "retry/count": 4.0,
    "retry/gain": 1.0,
    "retry/improved": 2.0,
    "pivot/turns": 8.0,
    "pivot/base_turns": 20.0,
}


def test_files_repeat(three_seeds, tmp_path):
    runs = read_runs(find_runs(three_seeds))
    first, second = (
        [p.read_bytes() for p in figures.draw("profile", runs, tmp_path / name)] for name in "ab"
    )
    assert first == second and first[0].startswith(b"%PDF")


def test_bad_input_is_refused_before_a_file_is_written(three_seeds, tmp_path):
    runs = read_runs(find_runs(three_seeds))
    untrained = runs[runs.method == "zero_shot"]
    with pytest.raises(ConfigError, match=r"curves.jpg cannot be drawn"):
        figures.draw("stops", runs, tmp_path / "curves.jpg")
    with pytest.raises(DataError, match="none of them was trained"):
        figures.draw("learning_curves", untrained, tmp_path / "curves.png")
    with pytest.raises(DataError, match="all of them are without retries"):
        figures.draw("exploration", runs[runs.method == "grpo"], tmp_path / "curves.png")
    with pytest.raises(DataError, match="table2 needs runs of r3l"):
        figures.draw("ablations", runs[runs.method == "grpo"], tmp_path / "curves.png")
    assert not list(tmp_path.glob("curves*"))


def test_learning_curves_show_seeds_mean_and_band_from_three_seeds_on(three_seeds):
    write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="webshop")
    figure, _ = drawn("learning_curves", three_seeds)
    alfworld, webshop = figure.axes[0], figure.axes[3]
    assert (
        len(lines(alfworld, "r3l")) == 4 and len(alfworld.collections) == 2
    )  # three seeds and their mean; two bands
    assert len(lines(webshop, "grpo")) == 1 and not webshop.collections  # one seed: no band
    assert lines(alfworld, "grpo")[-1].get_ydata()[0] == pytest.approx(
        0.17
    )  # 0.15, 0.17, 0.19 after the first update


def test_a_legend_of_many_methods_is_complete_and_leaves_the_subplots_their_height(tmp_path):
    """Long and short names in turn: a column is as wide as its longest name."""
    for k in range(40):
        name = f"method_{k:02}" if k % 8 else f"method_{k:02}_with_a_rather_long_name_of_its_own"
        write_run(tmp_path, name, 0, [1], [0])
    with matplotlib.style.context(style.SHEET):
        figure, _ = drawn("learning_curves", tmp_path)
        figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert len(figure.legends[0].get_texts()) == 40
    assert legend.x0 >= 0 and legend.x1 <= figure.bbox.x1 and legend.y1 <= figure.bbox.y1
    subplot = figure.axes[0].get_window_extent()
    assert subplot.y1 < legend.y0 and subplot.height / figure.dpi > 1  # inches


def test_exploration_by_hand(tmp_path):
    steps = [step(1, **RETRIED), step(2, **RETRIED | {"retry/improved": 0.0, "retry/gain": -1.0})]
    write_run(tmp_path, "r3l", 0, [1], [0], steps=steps)
    write_run(tmp_path, "grpo", 0, [1], [0])
    figure, text = drawn("exploration", tmp_path)
    gain, improved, retried = (lines(ax, "r3l")[-1].get_ydata().tolist() for ax in figure.axes)
    assert (gain, improved, retried) == ([0.25, 0.0], [0.5, 0.25], [0.5, 0.5])  # 4 retries of 8 bases
    assert not any(lines(ax, "grpo") for ax in figure.axes) and "Without retries: GRPO" in text


def test_pivot_by_hand(tmp_path):
    oracle = {"pivot/with_oracle": 4.0, "pivot/oracle_agrees": 1.0}
    write_run(tmp_path, "r3l", 0, [1], [0], steps=[step(1, **RETRIED | oracle)])
    write_run(tmp_path, "rltf_sd", 0, [1], [0], steps=[step(1, **RETRIED | {"pivot/turns": 0.0})])
    figure, text = drawn("pivot", tmp_path)
    assert [lines(ax, "r3l")[-1].get_ydata()[0] for ax in figure.axes] == [2.0, 0.4, 0.25]
    assert "Without a pivot of their own: rltf_sd" in text


def test_the_profile_compares_methods_of_all_environments(three_seeds):
    write_run(three_seeds, "grpo", 0, [1, 1], [1, 0], env="webshop")
    figure, text = drawn("profile", three_seeds)
    (curve,) = lines(figure.axes[0], "grpo")
    at = dict(zip(np.round(curve.get_xdata(), 3), curve.get_ydata(), strict=True))
    # ALFWorld 2/8, 3/8, 2/8 and WebShop 3/4: half of the runs of one environment weigh as much as those of
    # the other
    assert (at[0.0], at[0.3], at[0.5], at[0.75]) == pytest.approx((1, (1 / 3 + 1) / 2, 0.5, 0))
    assert "Not in every environment: zero_shot; R3L." in text


def test_cost_is_split_into_what_was_measured_and_the_rest(tmp_path):
    seconds = {"collect": 100.0, "rollout": 40.0, "feedback": 10.0, "retry": 20.0, "train": 50.0}
    tokens = {"rollout": 500.0, "reflection": 100.0, "critique": 50.0, "retry": 250.0}
    spent = {f"seconds/{k}": v for k, v in seconds.items()} | {f"tokens/{k}": v for k, v in tokens.items()}
    write_run(tmp_path, "r3l", 0, [1], [0], steps=[step(1, **spent), step(2, **spent)])
    figure, _ = drawn("cost", tmp_path)
    times, kinds = ([round(p.get_width(), 6) for p in ax.patches] for ax in figure.axes)
    assert times == [
        round(2 * s / 60, 6) for s in (40, 10, 20, 30, 50)
    ]  # minutes; 30 s of collecting are left
    assert kinds == [1.0, 0.3, 0.5]  # thousands


def test_a_method_that_played_one_group_of_tasks_has_no_score_in_the_other(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "grpo", seed, [1, 0], [1, 0])
        write_run(tmp_path, "r3l", seed, [1, 1], [])
    figure, _ = drawn("table1", tmp_path)
    points = {
        axes.get_title(loc="left"): {
            method: [mean for line in lines(axes, method) for mean in line.get_xdata() if mean in (0.5, 1.0)]
            for method in ("grpo", "r3l")
        }
        for axes in figure.axes
    }
    assert set(points["ALFWorld, easy"]["r3l"]) == {1.0} and not points["ALFWorld, hard"]["r3l"]
    assert set(points["ALFWorld, hard"]["grpo"]) == {0.5}


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_interval_of_one_seed_is_over_tasks(tmp_path, attempts):
    """Both attempts at each of two tasks succeed, both at six others fail: eight tasks, not 16 episodes."""
    solved, failed = [1] * 2 * attempts, [0] * 6 * attempts
    for method, alpha in (("r3l", 2.0), ("r3l@alpha=5", 5.0)):
        settings = {"alpha": alpha}
        write_run(tmp_path, method, 0, solved, failed, settings=settings, attempts=attempts)
    words = "Wilson interval over its test episodes" if attempts == 1 else "interval over its test tasks"
    for name in ("table1", "alpha"):
        figure, text = drawn(name, tmp_path)
        bounds = [
            line.get_data()
            for axes in figure.axes
            for line in lines(axes, "r3l")
            if len(line.get_xdata()) == 2
        ]
        flat = np.array([value for ends in bounds for values in ends for value in values])
        assert np.isclose(flat, wilson_bounds(0.25, 8)[0]).any(), name
        assert np.isclose(flat, wilson_bounds(0.25, 8)[1]).any(), name
        assert f"95 % {words}, which says nothing about other seeds" in text
