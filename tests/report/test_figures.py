"""What each figure draws, worked out by hand; what it does with few data; that files repeat."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report.runs import rewrite, write_run

from r3l.config import names, resolve, variant
from r3l.core.errors import ConfigError, DataError, RunDirectoryError
from r3l.report import figures, records
from r3l.report.figures import FIGURES, select, style
from r3l.report.figures.sensitivity import SETTINGS
from r3l.report.figures.style import look
from r3l.report.labels import ranges
from r3l.runs.places import find_runs
from r3l.workflow.plan import tables


def drawn(name, root):
    """(figure, caption) of all runs under ``root``."""
    kind = FIGURES[name]
    figure, _, text = kind.function(select(records.load(find_runs(root)), tables()[kind.table]))
    return figure, text


def lines(axes, method):
    return [line for line in axes.lines if line.get_color() == look(method).colour]


def titled(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def step(k, **more):
    return {"step": k, "train/success": 0.5, "rollouts": 12.0, "stop/success": 6.0, "tokens/generated": 1000.0, **more}


RETRIED = {"retry/count": 4.0, "retry/gain": 1.0, "retry/improved": 2.0, "pivot/turns": 8.0, "pivot/base_turns": 20.0}


def test_files_repeat(three_seeds, tmp_path):
    runs = records.load(find_runs(three_seeds))
    first, second = ([p.read_bytes() for p in figures.draw("table1", runs, tmp_path / name)] for name in "ab")
    assert first == second and first[0].startswith(b"%PDF")


def test_one_file_can_be_named(three_seeds, tmp_path):
    runs = records.load(find_runs(three_seeds))
    assert figures.draw("stops", runs, tmp_path / "one.png") == [tmp_path / "one.png"]
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunDirectoryError, match="--out"):
        figures.draw("stops", runs, tmp_path / "taken")


def test_a_picture_of_another_kind_is_refused(three_seeds, tmp_path):
    with pytest.raises(ConfigError, match=r"curves.jpg cannot be drawn: a figure is a .pdf or .png file"):
        figures.draw("stops", records.load(find_runs(three_seeds)), tmp_path / "curves.jpg")
    assert not list(tmp_path.glob("curves*"))


def test_every_line_of_every_figure_has_the_colour_of_its_method(tmp_path):
    for method in ("grpo", "r3l"):
        for seed in range(2):
            for alpha in (3, 5):
                name = method if alpha == 3 else f"{method}@alpha=5"
                settings = {"alpha": alpha, "group_size": alpha, "retries": alpha}
                steps = [step(k, **RETRIED, grad_norm=1.0) for k in (1, 2)]
                write_run(tmp_path, name, seed, [1, 0], [0, seed], steps=steps, settings=settings)
    methods = {look(name).colour for name in ("grpo", "grpo@alpha=5", "r3l", "r3l@alpha=5")}
    for name in FIGURES.keys() - {"sync_interval"}:  # needs more of a manifest; drawn by the same function
        figure, _ = drawn(name, tmp_path)
        colours = {line.get_color() for ax in figure.axes for line in ax.lines} - {style.GREY}
        assert colours and colours <= methods, name


def test_learning_curves_show_seeds_mean_and_band_from_three_seeds_on(three_seeds):
    write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="webshop")
    figure, text = drawn("learning_curves", three_seeds)
    assert titled(figure) == ["ALFWorld", "", "", "WebShop", "", ""]
    assert [ax.get_xlabel() for ax in figure.axes[3:]] == ["updates", "generated tokens (thousands)", "time (minutes)"]
    alfworld, webshop = figure.axes[0], figure.axes[3]
    assert len(lines(alfworld, "r3l")) == 4 and len(alfworld.collections) == 2  # three seeds and their mean; two bands
    assert len(lines(webshop, "grpo")) == 1 and not webshop.collections  # one seed: no band
    assert lines(alfworld, "grpo")[-1].get_ydata()[0] == pytest.approx(0.17)  # 0.15, 0.17, 0.19 after the first update
    assert "95 % t-interval over seeds, from 3 on" in text and "5 updates" in text


def test_many_methods_are_drawn_without_seeds_and_bands(tmp_path):
    for method in ("raft", "opmd", "grpo", "dapo", "gspo"):
        for seed in range(3):
            write_run(tmp_path, method, seed, [1], [0])
    figure, text = drawn("learning_curves", tmp_path)
    assert len(figure.axes[0].lines) == 5 and not figure.axes[0].collections
    assert "left out where there are over 4 methods" in text


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


def test_what_no_run_recorded_is_said_and_not_drawn(tmp_path):
    write_run(tmp_path, "r3l", 0, [1], [0], steps=[step(1, entropy=0.5)])
    write_run(tmp_path, "grpo", 0, [1], [0], steps=[step(1, entropy=0.5, clip_fraction=0.1)])
    figure, text = drawn("dynamics", tmp_path)
    subplots = {ax.get_ylabel(): ax for ax in figure.axes}
    assert [t.get_text() for t in subplots["loss"].texts] == ["not recorded"] and not subplots["loss"].lines
    assert lines(subplots["clip fraction"], "grpo")[0].get_ydata() == [0.1] and not lines(
        subplots["clip fraction"], "r3l"
    )
    assert text.endswith("updates. Not recorded: clip fraction of R3L.")


@pytest.mark.parametrize("name", ["learning_curves", "exploration", "dynamics", "pivot", "cost"])
def test_untrained_runs_are_refused_with_the_fix(name, tmp_path):
    write_run(tmp_path, "zero_shot", 0, [1], [0])
    with pytest.raises(DataError, match=r"zero_shot: none of them was trained; add"):
        drawn(name, tmp_path)


def test_no_runs_and_no_retries_are_refused(tmp_path):
    with pytest.raises(DataError, match="table1 show zero_shot"):
        figures.draw("learning_curves", [], tmp_path)
    write_run(tmp_path, "grpo", 0, [1], [0])
    with pytest.raises(DataError, match="all of them are without retries; add runs of r3l"):
        drawn("exploration", tmp_path)


def test_a_figure_shows_one_tier(three_seeds):
    write_run(three_seeds, "r3l", 0, [1], [0], tier="smol")
    with pytest.raises(DataError, match="one tier"):
        drawn("learning_curves", three_seeds)


def test_differences_are_paired_with_the_baseline_by_seed(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "r3l", seed, [1, 1, 0, 0], [0, 0, 0, 0])  # 2 of 8
        write_run(tmp_path, "r3l_kl", seed, [1, 1, 1, 0], [0, 0, 0, int(seed == 2)])  # 3, 3, 4 of 8
    write_run(tmp_path, "r3l_kl", 9, [1] * 4, [1] * 4)  # no such seed of the baseline
    write_run(tmp_path, "r3l_is", 0, [1, 1, 1, 1], [0, 0, 0, 0])
    figure, text = drawn("ablations", tmp_path)
    (axis,) = figure.axes
    assert [t.get_text() for t in axis.get_yticklabels()] == ["r3l_kl", "r3l_is"]
    bar, seeds, mean, _ = lines(axis, "r3l_kl")
    half = 4.302653 * 0.125 / 3  # deviations -1/24, -1/24, 1/12: sd 0.125 / sqrt 3
    assert bar.get_xdata() == pytest.approx([1 / 6 - half, 1 / 6 + half], abs=1e-5)
    assert seeds.get_xdata().tolist() == [0.125, 0.125, 0.25] and mean.get_xdata()[0] == pytest.approx(1 / 6)
    dashed, alone, _ = lines(axis, "r3l_is")
    assert alone.get_xdata()[0] == 0.25 and dashed.get_linestyle() == "--" and "dashed bars: one seed" in text


def test_differences_without_a_baseline_are_refused(tmp_path):
    write_run(tmp_path, "r3l_kl", 0, [1], [0])
    with pytest.raises(DataError, match="table2 needs runs of r3l"):
        drawn("ablations", tmp_path)


def test_the_profile_compares_methods_of_all_environments(three_seeds):
    write_run(three_seeds, "grpo", 0, [1, 1], [1, 0], env="webshop")
    figure, text = drawn("profile", three_seeds)
    (curve,) = lines(figure.axes[0], "grpo")
    at = dict(zip(np.round(curve.get_xdata(), 3), curve.get_ydata(), strict=True))
    # ALFWorld 2/8, 3/8, 2/8 and WebShop 3/4: half of the runs of one environment weigh as much as those of the other
    assert (at[0.0], at[0.3], at[0.5], at[0.75]) == pytest.approx((1, (1 / 3 + 1) / 2, 0.5, 0))
    assert "Not in every environment: zero_shot; R3L." in text


def test_stops_are_shares_of_episodes(tmp_path):
    path = write_run(tmp_path, "r3l", 0, [1, 0], [0, 0])  # the others end as "format"
    episodes = path.parent / "episodes.jsonl"
    rows = [json.loads(line) for line in episodes.read_text().splitlines()]
    rows[1]["stop_reason"] = "struck by lightning"
    rewrite(episodes, "".join(json.dumps(row) + "\n" for row in rows))
    figure, _ = drawn("stops", tmp_path)
    widths = {patch.get_facecolor(): patch.get_width() for patch in figure.axes[0].patches if patch.get_width()}
    assert sorted(widths.values()) == [0.25, 0.25, 0.5]
    assert [t.get_text() for t in figure.legends[0].texts] == ["success", "invalid response", "other"]


def test_cost_is_split_into_what_was_measured_and_the_rest(tmp_path):
    seconds = {"collect": 100.0, "rollout": 40.0, "feedback": 10.0, "retry": 20.0, "train": 50.0}
    tokens = {"rollout": 500.0, "reflection": 100.0, "critique": 50.0, "retry": 250.0}
    spent = {f"seconds/{k}": v for k, v in seconds.items()} | {f"tokens/{k}": v for k, v in tokens.items()}
    write_run(tmp_path, "r3l", 0, [1], [0], steps=[step(1, **spent), step(2, **spent)])
    figure, _ = drawn("cost", tmp_path)
    times, kinds = ([round(p.get_width(), 6) for p in ax.patches] for ax in figure.axes)
    assert times == [round(2 * s / 60, 6) for s in (40, 10, 20, 30, 50)]  # minutes; 30 s of collecting are left
    assert kinds == [1.0, 0.3, 0.5]  # thousands


def test_sensitivity_is_a_line_over_the_values_that_were_run(tmp_path):
    for alpha, bits in ((3, [1, 0]), (5, [1, 1])):
        for seed in range(2):
            name = "r3l" if alpha == 3 else "r3l@alpha=5"
            write_run(tmp_path, name, seed, bits, [0, seed], settings={"alpha": alpha})
    figure, _ = drawn("alpha", tmp_path)
    mean = lines(figure.axes[0], "r3l")[-1]
    assert mean.get_xdata().tolist() == [3, 5] and list(mean.get_ydata()) == [0.375, 0.625]


def test_a_value_of_one_seed_has_a_dashed_interval_over_its_tasks(tmp_path):
    """Two of four episodes: Wilson's interval is 0.150 to 0.850; the value with two seeds has no bar."""
    for alpha, seed in ((3, 0), (3, 1), (5, 0)):
        name = "r3l" if alpha == 3 else "r3l@alpha=5"
        write_run(tmp_path, name, seed, [1, 0], [1, 0], settings={"alpha": alpha})
    figure, text = drawn("alpha", tmp_path)
    (bar,) = [line for line in lines(figure.axes[0], "r3l") if line.is_dashed()]
    assert bar.get_xdata().tolist() == [5, 5] and bar.get_ydata() == pytest.approx([0.1500, 0.8500], abs=1e-4)
    assert "Dashed: one seed, 95 % Wilson interval over its test episodes" in text


def test_group_size_counts_retried_rollouts_and_needs_two_values(tmp_path):
    write_run(tmp_path, "reflect_grpo", 0, [1], [0], settings={"group_size": 4, "reflected_rollouts": 4})
    with pytest.raises(DataError, match="needs two values of a method, found reflect_grpo"):
        drawn("group_size", tmp_path)
    name = "reflect_grpo@group_size=2,reflected_rollouts=2"
    write_run(tmp_path, name, 0, [1], [0], settings={"group_size": 2, "reflected_rollouts": 2})
    assert drawn("group_size", tmp_path)[0].axes[0].get_xticks().tolist() == [4, 8]
    write_run(tmp_path, "grpo", 0, [1], [0], settings={})
    with pytest.raises(DataError, match=r"grpo/seed0/manifest.json has no key 'group_size'"):
        drawn("group_size", tmp_path)


def test_settings_are_found_in_the_manifests_that_runs_leave():
    run = resolve("nano", "alfworld", "r3l", 0).model_dump(mode="json")
    settings = {name: value(run) for name, (_, value) in SETTINGS.items()}
    assert settings == {"alpha": 3, "group_size": 8, "retries": 1, "sync_interval": 1}


def test_scores_of_environments_with_other_groups_and_a_constant_answer(three_seeds):
    path = write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="shortest_path")
    content = json.loads(path.read_text())
    content["groups"] = {"all": content["groups"]["all"]}
    content["task_set"] |= {"constant_answer_baseline": {"answer": "infeasible", "success": {"all": 0.25}}}
    rewrite(path, json.dumps(content))
    figure, text = drawn("table1", three_seeds)
    shown = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert shown == ["ALFWorld, easy", "ALFWorld, hard", "ALFWorld, all", "Shortest path, all"]
    assert [line.get_xdata()[0] for line in figure.axes[3].lines if line.get_linestyle() == ":"] == [0.25]
    ticks = [[label.get_text() for label in ax.get_yticklabels()] for ax in figure.axes[::3]]
    assert ticks == [["zero_shot", "GRPO", "R3L"], ["GRPO"]] and "Dotted: best constant answer" in text


def test_the_caption_says_tier_seeds_and_panels(three_seeds):
    write_run(three_seeds, "r3l", 7, [1] * 4, [0] * 4)
    shown = select(records.load(find_runs(three_seeds)), tables()["table1"])
    figure, _, text = FIGURES["table1"].function(shown)
    style.caption(figure, shown, text)
    caption = " ".join(figure.get_supxlabel().split())
    assert "Tier nano (test); seeds 0 to 2, 7 (3 to 4 a method and environment)" in caption
    assert "test task sets alfworld nano/test (abababababab)." in caption


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1], "0, 1"), ([0, 1, 2, 3, 4, 7, 8, 10], "0 to 4, 7, 8, 10")]
)
def test_seeds_in_a_row_are_named_by_the_first_and_the_last(numbers, text):
    assert ranges(numbers) == text


def test_own_methods_stand_after_those_of_the_table(three_seeds):
    write_run(three_seeds, "aaa_mine", 0, [1] * 4, [0] * 4)
    shown = select(records.load(find_runs(three_seeds)), tables()["table1"])
    assert list(shown.labels()) == ["zero_shot", "grpo", "r3l", "aaa_mine"]


def test_every_table_and_every_sweep_is_a_figure():
    assert {"learning_curves", "exploration", "dynamics", "pivot", "ablations", "cost", "profile", "stops"} < set(
        FIGURES
    )
    of_scores = {name for name, table in tables().items() if table.kind == "scores"}
    assert of_scores < set(FIGURES) and all(kind.table in tables() for kind in FIGURES.values())


def test_every_configured_method_has_a_look_of_its_own():
    assert set(names("methods")) == style.METHODS.keys() | style.ABLATIONS.keys()
    looks = [look(name) for name in names("methods")]
    assert len({seen.colour for seen in looks}) == len(looks)


def test_variants_differ_from_their_method_and_from_each_other():
    looks = [look(name) for name in ("r3l", *(m for m in tables()["alpha"].methods if m != "r3l"))]
    assert len({(seen.colour, seen.dash) for seen in looks}) == len(looks) == 5


@pytest.mark.parametrize("name", ["table_rltf", "table1", "feedback"])
def test_rows_with_another_teacher_are_told_apart(name):
    """They keep their method's marker; colours make the difference."""
    looks = {row: look(row) for row in tables()[name].methods}
    assert len(set(looks.values())) == len(looks)
    assert all(looks[row].marker == look(variant(row).method).marker for row in looks)
