"""The scripted agent of ALFWorld on the real engine (what holds for every environment: ../test_demonstrations.py)."""

import re

import pytest
from r3l.envs.alfworld import ENVIRONMENT
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.goals import FAMILIES
from r3l.envs.alfworld.houses import generate
from r3l.envs.alfworld.rooms import House
from r3l.envs.base.demonstrations import ErrorRates
from r3l.envs.base.experts import first_action

from r3l.processes.worker import RecordedEnvironment

ERRING = ErrorRates(low=0.45, high=0.65, systematic=0.8, overlook=0.6, invalid=0.3)
DEMONSTRATOR = ENVIRONMENT.demonstrator()
NAME = re.compile(r"\b[a-z]+ \d+\b")


@pytest.fixture(scope="module")
def engine():
    engine = AlfworldEngine()
    yield RecordedEnvironment(engine)
    engine.close()


@pytest.fixture(scope="module")
def erring(engine):
    tasks = [generate(House(family, 900 + k, 7, 8)) for family in FAMILIES for k in range(2)]
    return [DEMONSTRATOR.demonstrate(engine, task, variant, ERRING, 15) for task in tasks for variant in range(2)]


def test_critiques_name_nothing_that_the_text_before_the_pivot_does_not_show(erring):
    checked = 0
    for d in erring:
        pivot = d.critique.turn
        if pivot is None:
            continue
        shown = " ".join([d.first.text, *(step.now.text for step in d.steps[: pivot + 1])])
        named = set(NAME.findall(d.critique.suggestion))
        assert named <= set(NAME.findall(shown)), (named, shown)
        checked += len(named)
    assert checked > 20


def test_a_retry_takes_what_its_hint_suggests(erring):
    """Its actions are marked as suggested; without a suggestion none is."""
    retried = [d for d in erring if d.retry and d.retry[0].action == first_action(d.critique.suggestion or "")]
    assert len(retried) > 3
    for first in (d.retry[0] for d in retried):
        expected = rf"<think>(at \w+ \d+, )?{first.action}</think><action>{first.action}</action>"
        assert first.suggested and re.fullmatch(expected, first.planned)
    assert not any(step.suggested for d in erring for step in d.steps)


def test_an_invalid_action_is_inadmissible_and_ends_the_episode(erring):
    ended = [d for d in erring if d.error == "inadmissible"]
    assert ended
    for d in ended:
        assert not d.success
        assert d.steps[-1].action not in d.steps[-1].now.admissible
