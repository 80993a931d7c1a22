"""Evaluation protocols on ScienceWorld: rewards of the same actions under the originals' scoring rules."""

import itertools

import pytest
from r3l.envs.scienceworld.task_sets.tasks import problem
from scripted import play_by

# find-animal 12 scores 17 at its start, 25 outside, 75 with the right focus and -100 with a wrong one.
RIGHT = ["teleport to outside", "focus on dove egg"]
WRONG = ["teleport to outside", "focus on air", "look around"]


@pytest.mark.parametrize(
    ("protocol", "actions", "reason", "turns", "reward"),
    [
        ("r3l", RIGHT, "max_turns", 30, 0.5),  # the largest step
        ("trinity", RIGHT, "max_turns", 30, 0.58),  # the largest gain since the start
        ("original", RIGHT, "max_turns", 100, 0.75),  # the last score
        ("trinity", WRONG, "done", 2, 0.08),
        ("original", WRONG, "done", 2, 0),
    ],
)
def test_one_episode_by_each_rule(protocol, actions, reason, turns, reward):
    said = [f"<think>x</think><action>{action}</action>" for action in actions]
    then = itertools.cycle(
        f"<think>x</think><action>{action}</action>" for action in ("inventory", "look around")
    )
    trajectory, asked = play_by(
        "scienceworld", protocol, problem("find-animal", 12, "test"), itertools.chain(said, then)
    )
    assert (trajectory.stop_reason, len(trajectory.turns)) == (reason, turns)
    assert trajectory.reward == pytest.approx(reward) and not trajectory.success
    if protocol == "original" and turns == 100:
        ((role, last),) = asked[-1]
        assert (
            role == "user"
            and "The last 10:\n[Observation 90: '" in last
            and "Action 99: 'inventory']" in last
        )
    else:
        assert [len(messages) for messages in asked] == (
            [2] + [1] * (turns - 1) if protocol != "original" else [1, 1]
        )


def test_a_response_without_an_action_is_a_turn_where_the_original_sends_it():
    said = itertools.chain(["I ponder."], itertools.repeat("<think>x</think>"))
    trajectory, asked = play_by("scienceworld", "trinity", problem("find-animal", 12, "test"), said)
    assert trajectory.actions[0] == "" and len(trajectory.turns) == 30
    (system, words), (_, opening) = asked[0]
    assert system == "system" and "  pour OBJ into OBJ " in words and "  inventory" not in words
    assert (
        opening.startswith("Observation:\nTask description: Your task is to find a")
        and "<think>" not in opening
    )
    assert asked[1][0][1].startswith("Observation:\nNo known action matches that input.")
