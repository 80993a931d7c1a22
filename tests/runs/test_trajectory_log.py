"""What training leaves for a reader: real games with scripted responses, and spans worked out by hand."""

import numpy as np
from conftest import make_trajectory
from exploration import LOSE, R3L_SCRIPT, WIN, played, review

from r3l.core.trajectory import Group, Objective
from r3l.runs import trajectory_log


def words(ids):
    return " ".join(map(str, ids))


def explored(name, script, **settings):
    """The lines of a step in which ``name`` explores one task."""
    method, groups, a = played(name, script, **settings)
    return groups, trajectory_log.lines(method, [groups], a.played(), words)


def kinds(line):
    return [(g["objective"], [t["kind"] for t in g["trajectories"]]) for g in line["groups"]]


def test_the_first_the_middle_and_the_last_step_are_kept():
    assert trajectory_log.logged_steps(30) == {1, 15, 30}
    assert trajectory_log.logged_steps(5) == {1, 3, 5}
    assert trajectory_log.logged_steps(2) == {1, 2}
    assert trajectory_log.logged_steps(1) == {1}


def test_spans_are_those_of_the_credit_mask():
    """Three turns of one prompt token and two response tokens, credit from turn 1: tokens 4, 5, 7, 8 of
    nine."""
    trajectory = make_trajectory(3, first=1)
    (line,) = trajectory_log.lines(_Even(), [[Group(trajectory.task, [trajectory])]], [trajectory], words)
    (logged,) = line["groups"][0]["trajectories"]
    assert [turn["prompt"] for turn in logged["turns"]] == ["100", "101", "102"]
    assert [turn["response"] for turn in logged["turns"]] == [
        [["0 1", 2, False]],
        [["10 11", 2, True]],
        [["20 21", 2, True]],
    ]
    mask = [part for turn in logged["turns"] for part in [False, *_flat(turn["response"])]]
    np.testing.assert_array_equal(mask, trajectory.credit_mask().astype(bool))
    assert np.flatnonzero(mask).tolist() == [4, 5, 7, 8]


def _flat(response):
    return [trained for _, tokens, trained in response for _ in range(tokens)]


class _Even:
    """A method for which every trajectory is worth its member's number."""

    def step_advantages(self, groups):
        return [np.asarray([t.member for t in group.trajectories], dtype=float) for group in groups]


def test_an_attempt_stands_with_its_reflection_and_both_forms_of_its_retry():
    """A failed base (2 turns) retried from turn 1 without success; a solved base with a reflection that is
    content."""
    groups, (line,) = explored("r3l", R3L_SCRIPT, group_size=4)
    assert kinds(line) == [
        ("policy", ["base", "distilled", "base"]),
        ("none", ["reflection", "reflection", "guided_retry"]),
    ]
    base, distilled, solved = line["groups"][0]["trajectories"]
    np.testing.assert_allclose([t["advantage"] for t in (base, distilled, solved)], [-1 / 3, -1 / 3, 3.0])
    assert [(t["trainable"], t["restart_turn"]) for t in (base, distilled, solved)] == [
        ([1, 2], 0),
        ([1, 2], 1),
        ([0, len(WIN)], 0),
    ]
    reflection, content, guided = line["groups"][1]["trajectories"]
    assert (
        reflection["parsed"]["improvement_suggestion"] == "go on"
        and reflection["parsed"]["retry_from_step"] == 1
    )
    assert content["parsed"]["trajectory_outcome"] == "success" and content["member"] == 1
    assert (
        len(reflection["turns"]) == 3 and reflection["restart_turn"] == 2
    )  # it stands in the base's own dialog
    assert guided["restart_turn"] == 1 and guided["advantage"] is None
    assert guided["turns"][1]["response"][0][0] == distilled["turns"][1]["response"][0][0]  # one response,
    assert (
        guided["turns"][1]["prompt"] != distilled["turns"][1]["prompt"]
    )  # with the hint before it and without
    trained = [any(_flat(turn["response"])) for t in (guided, reflection) for turn in t["turns"]]
    assert not any(trained)  # nothing learns from them
    for ours, theirs in zip((base, distilled, solved), groups[0].trajectories, strict=True):
        assert sum(sum(_flat(turn["response"])) for turn in ours["turns"]) == theirs.credit_mask().sum()


def test_what_a_refinement_replaced_is_still_shown():
    """Critique-GRPO trains on the refinement; the rollout and the guided retry behind it are explored, not
    learnt."""
    script = {"rollout": LOSE, "critique": [review(0)], "retry": WIN}
    _, (line,) = explored("critique_grpo", script, group_size=1, feedback="self")
    assert kinds(line) == [("policy", ["refined"]), ("none", ["base", "critique", "guided_retry"])]
    assert "go on" in line["groups"][1]["trajectories"][1]["parsed"]["guidance"]


def test_tasks_that_teach_follow_the_first():
    """Five tasks: only the third and the fifth have an advantage that is not zero, the fourth imitates."""
    flat, steep = make_trajectory(1), make_trajectory(1)
    steep.member = 1
    groups = [Group(t.task, [t]) for t in (flat, flat, steep)] + [
        Group(flat.task, [flat], Objective.SFT),
        Group(flat.task, [steep]),
    ]
    lines = trajectory_log.lines(_Even(), [[group] for group in groups], [], words)
    assert [line["selected_as"] for line in lines] == ["first", "taught", "taught"]
    assert [line["groups"][0]["objective"] for line in lines] == ["policy", "policy", "sft"]
    assert trajectory_log.lines(_Even(), [], [], words) == []  # every task was refused
