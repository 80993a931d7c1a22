"""The scripted agent on the real engine: it wins when careful, and its reviews say only what the text shows."""

import json
import re

import pytest

from envs.alfworld.demonstrator import DEVICES, kind_of
from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.goals import FAMILIES, parse_goal
from envs.alfworld.houses import generate
from envs.alfworld.lessons import Manner, demonstrate, demonstrations
from r3l.core.demonstration import Step
from r3l.reflection import Report, parse_reflection

CAREFUL = Manner(slip_low=0, slip_high=0, habit=1, forget=0, blunder=0, max_turns=40)
ERRING = Manner(slip_low=0.45, slip_high=0.65, habit=0.8, forget=0.6, blunder=0.3, max_turns=15)
NAME = re.compile(r"\b[a-z]+ \d+\b")


@pytest.fixture(scope="module")
def engine():
    engine = AlfworldEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_careful_agent_wins_from_the_text_alone(engine, family):
    for seed in range(5):
        d = demonstrate(engine, generate(family, 500 + seed, 7, 8), 0, CAREFUL)
        assert d.success and d.reward == 1
        assert d.review["trajectory_outcome"] == "success" and d.review["retry_from_step"] is None
        assert d.retry == ()


@pytest.fixture(scope="module")
def erring(engine):
    tasks = [generate(family, 900 + k, 7, 8) for family in FAMILIES for k in range(4)]
    return [demonstrate(engine, task, variant, ERRING) for task in tasks for variant in range(2)]


def test_reviews_are_valid_reflections(erring):
    for d in erring:
        report = parse_reflection(json.dumps(dict(d.review)), len(d.steps))
        assert isinstance(report, Report)
        assert d.success == (report.outcome != "failure")


def test_reviews_name_nothing_that_the_text_before_the_pivot_does_not_show(erring):
    checked = 0
    for d in erring:
        pivot = d.review["retry_from_step"]
        if pivot is None:
            continue
        shown = " ".join([d.first.text, *(step.now.text for step in d.steps[: pivot + 1])])
        named = set(NAME.findall(d.review["improvement_suggestion"]))
        assert named <= set(NAME.findall(shown)), (named, shown)
        checked += len(named)
    assert checked > 50


def test_a_retry_starts_where_the_pivot_was_and_begins_with_the_hint(erring):
    followed = 0
    for d in (d for d in erring if d.retry):
        pivot, hint = d.review["retry_from_step"], d.review["improvement_suggestion"].split(", then ")
        assert d.retry[0].now == d.steps[pivot].now
        if hint[0] in d.retry[0].now.admissible:
            assert d.retry[0].action == hint[0] != d.steps[pivot].action
            followed += 1
    assert followed > 20


def test_retries_win_more_often_than_the_failures_they_correct(erring):
    failed = [d for d in erring if not d.success]
    assert len(failed) > 20
    assert sum(d.retry_success for d in failed) / len(failed) > 0.2


def test_a_blunder_is_inadmissible_unlearnt_and_its_own_pivot(erring):
    blundered = [d for d in erring if d.error]
    assert blundered
    for d in blundered:
        last: Step = d.steps[-1]
        assert last.action not in last.now.admissible and not last.imitate
        assert d.review["retry_from_step"] == len(d.steps) - 1
        assert not d.success and all(step.imitate for step in d.steps[:-1])


def test_demonstrations_are_deterministic_and_differ_by_variant():
    twice = [list(demonstrations(range(3), 2, ERRING)) for _ in range(2)]
    assert twice[0] == twice[1]
    assert twice[0][0].steps != twice[0][1].steps


def test_goal_needs_a_device_that_exists():
    goal = parse_goal("put a hot mug in shelf")
    assert DEVICES[goal.state] == "microwave" and kind_of("mug 2") == "mug"
