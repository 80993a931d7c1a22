"""Reflections compared with the environment's critic on real ALFWorld episodes."""

from __future__ import annotations

import asyncio

import pytest
from r3l.envs.registry import find_environment
from scripted import TASK, Scripted, report, rollout_context, say

from r3l.core.rollout import play
from r3l.feedback.audits import Leak, count_retry, grade_reflection, leak_of
from r3l.feedback.feedback import ParsedReflection
from r3l.processes.pool import EnvironmentPool
from r3l.runs.step_metrics import rates

CAUSE = "not possible there"  # what the critic of ALFWorld says of ``fly``


@pytest.fixture
def failed():
    """A rollout context and an episode: two needless turns, then the impossible ``fly``, which ends it."""
    pool = EnvironmentPool(find_environment("alfworld"), 0)
    a = rollout_context(Scripted([say("look"), say("look"), say("fly")]), pool)
    episode = asyncio.run(play(a, TASK, 0))
    yield a, episode
    pool.close()


def reflection(pivot, cause):
    return ParsedReflection.of(report(pivot, root_cause_analysis=cause))


@pytest.mark.parametrize(
    ("pivot", "cause", "exact", "near", "grade"),
    [
        (2, f"It was {CAUSE.upper()}.", 1, 1, "accurate"),
        (1, CAUSE, 0, 1, "accurate"),
        (0, CAUSE, 0, 0, "partial"),
        (1, "bad luck", 0, 1, "partial"),
        (0, "bad luck", 0, 0, "wrong"),
    ],
)
def test_pivot_and_cause_make_the_grade(failed, pivot, cause, exact, near, grade):
    a, episode = failed
    assert a.dialogue.critique(episode.transcript()).cause == CAUSE
    assert grade_reflection(a, episode, reflection(pivot, cause)) == 2
    counts = (
        a.counters["pivot/with_oracle"],
        a.counters["pivot/oracle_agrees"],
        a.counters["pivot/oracle_near"],
    )
    assert counts == (1, exact, near)
    assert {key: n for key, n in a.counters.items() if key.startswith("reflection_quality/")} == {
        f"reflection_quality/{grade}": 1
    }


def test_without_a_critic_nothing_is_counted(failed):
    a, episode = failed
    a.dialogue.critique = lambda transcript: None
    before = dict(a.counters)
    assert grade_reflection(a, episode, reflection(2, CAUSE)) is None
    count_retry(a, 2, None, True)
    assert dict(a.counters) == before


def test_retries_count_by_where_they_started():
    a = rollout_context(Scripted([]), None)
    for pivot, success in ((4, True), (5, False), (6, True), (6, True), (3, False), (7, True)):
        count_retry(a, pivot, 5, success)
    shares = rates(a.counters)
    assert shares["retry_success_right_pivot"] == pytest.approx(3 / 4)  # 4, 5, 6, 6
    assert shares["retry_success_wrong_pivot"] == pytest.approx(1 / 2)  # 3, 7


PROBLEM = "Ann has 12 apples. Ann finds 7."


@pytest.mark.parametrize(
    ("text", "answer", "texts", "leak"),
    [
        ("It is 42.", 42, [PROBLEM], Leak.TOLD),
        ("try X = 42, then", 42, [PROBLEM], Leak.TOLD),
        ("it is 142", 42, [PROBLEM], None),  # it is stated as a whole word
        ("compute 12 + 7", "7", [PROBLEM], Leak.QUOTED),  # of the problem
        ("the last result is 19", "19", [PROBLEM], Leak.TOLD),
        ("the last result is 19", "19", [PROBLEM, "12 + 7 = 19"], Leak.QUOTED),  # of the attempt
        ("so ann is a  KNIGHT,\nben is a knave", "Ann is a knight, Ben is a knave", [], Leak.TOLD),
        ("anything", " ", [], None),
    ],
)
def test_what_tells_an_answer(text, answer, texts, leak):
    assert leak_of(text, answer, texts) is leak
