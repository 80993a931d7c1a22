"""Retries whose prefix has an action that the shop refuses (audit B-18), with a scripted policy."""

import asyncio

import pytest
from r3l.envs.registry import find_environment
from scripted import Scripted, review, rollout_context, say

from r3l.config import build_method, resolve
from r3l.processes.pool import EnvironmentPool

BASE = [
    "search[shirt]",
    "fly",
    "click[next >]",
    "look",
]  # the second is refused, and the last at the limit of 4 turns
RETRY = ["fly", "click[next >]", "click[< prev]"]


@pytest.fixture
def attempted(task):
    """(base, distilled retry, messages of the retry) of R3L with the options."""

    def play(options, pivot=3):
        method = build_method(
            resolve("nano", "webshop", f"r3l@group_size=2,replay_duplicate_obs=true{options}", 0)
        )
        script = {"rollout": map(say, BASE), "reflection": [review(pivot)], "retry": map(say, RETRY)}
        pool = EnvironmentPool(find_environment("webshop"), 0)
        ctx = rollout_context(Scripted(script), pool, max_turns=4, env="webshop")
        (group,) = asyncio.run(method.explore(task(0), ctx))
        pool.close()
        base, distilled = group.trajectories
        return base, distilled, [messages for where, messages in ctx.policy.asked if "retry" in where]

    return play


def test_a_refused_action_is_replayed_as_any_other(attempted):
    base, distilled, shown = attempted("")
    assert [turn.refused for turn in base.turns] == [False, True, False, True]
    assert distilled.actions == [*BASE[:3], "fly"] and distilled.stop_reason == "max_turns"
    assert (distilled.restart_turn, base.trainable, distilled.trainable) == (3, range(3, 4), range(3, 4))
    assert len(shown) == 1 and len(shown[0]) == 2  # the observation twice, guidance in the second


@pytest.mark.parametrize(("credit_from", "first"), [("restart", 2), ("reflected", 3)])
def test_the_released_replay_stops_at_a_refused_action(attempted, credit_from, first):
    """The refused turn is shown but not counted: three of four turns are left, and "fly" is not a
    repetition."""
    base, distilled, shown = attempted(f",replay=until_refused,credit_from={credit_from}")
    assert [turn.response for turn in distilled.turns] == list(map(say, [*BASE[:2], *RETRY]))
    assert distilled.actions == ["search[shirt]", *RETRY] and distilled.stop_reason == "max_turns"
    assert (len(distilled.turns), distilled.played, distilled.restart_turn) == (5, 4, 2)
    assert distilled.turns[2].observation == base.turns[1].observation
    assert len(shown[0]) == 1  # the observation once
    assert base.trainable == range(3, 4) and distilled.trainable == range(first, 5)
