"""Scripted demonstrations of every environment, on the real engines: careful agents win, reviews are reflections."""

import pytest

from r3l.core.environment import Transcript
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.envs.registry import find_environment
from r3l.envs.scripted.demonstrations import CAREFUL, ErrorRates
from r3l.envs.scripted.expert import ErrorModel, Mistake, ScriptedExpert, criticise
from r3l.reflection import Report, parse_reflection, reflection_text

ERRING = {"slip_low": 0.45, "slip_high": 0.65, "habit": 0.8, "forget": 0.6}
TURNS = {"alfworld": 15, "scienceworld": 12, "webshop": 10}
PACKAGES = {name: find_environment(name) for name in TURNS}
BLUNDERS = {"alfworld": 0.3, "scienceworld": 0.3, "webshop": 0.0}


def played(env, tasks, variants, error_rates):
    return list(PACKAGES[env].demonstrations(range(tasks), variants, TURNS[env], error_rates))


@pytest.fixture(scope="module", params=list(TURNS))
def env(request):
    return request.param


@pytest.fixture(scope="module")
def erring(env):
    tasks = 8 if env == "scienceworld" else 30
    return played(env, tasks, 2, ERRING | {"blunder": BLUNDERS[env]})


def test_a_careful_agent_succeeds_from_the_text_alone(env):
    error_rates = {name: getattr(CAREFUL, name) for name in ("slip_low", "slip_high", "habit", "forget")}
    for d in PACKAGES[env].demonstrations(range(6), 1, 40, error_rates):
        assert d.success and d.reward == 1 and d.error is None and d.retry == ()
        assert d.critique.outcome == "success" and d.critique.turn is None


def test_critiques_are_valid_reflections_and_the_dialogue_gives_the_same(env, erring):
    dialogue = PACKAGES[env].dialogue("compact", TURNS[env])
    outcomes = set()
    for d in erring:
        report = parse_reflection(reflection_text(d.critique), len(d.steps))
        assert isinstance(report, Report) and d.success == (report.outcome != "failure")
        outcomes.add(report.outcome)
        last = "" if d.error else "the end"
        texts = [*(step.now.text for step in d.steps[1:]), last]
        answers = tuple((step.action, text) for step, text in zip(d.steps, texts, strict=True))
        assert dialogue.critique(Transcript(d.task, d.first.text, answers, d.success, d.error)) == d.critique
    assert {"failure", "success_but_inefficient"} <= outcomes


def test_a_retry_starts_where_the_pivot_was_and_begins_with_the_hint(erring):
    retried = [d for d in erring if d.retry]
    followed = 0
    for d in retried:
        pivot, hint = d.critique.turn, d.critique.suggestion.split(", then ")
        assert d.retry[0].now == d.steps[pivot].now
        followed += d.retry[0].action == hint[0]
    assert followed > 0.8 * len(retried) > 8


def test_retries_correct_failures(erring):
    failed = [d for d in erring if not d.success and d.retry]
    assert sum(d.retry_success for d in failed) > 0.3 * len(failed) > 1


def test_demonstrations_are_deterministic_and_differ_by_variant(env):
    once, twice = (played(env, 1, 2, ERRING) for _ in range(2))
    assert once == twice and once[0].steps != once[1].steps


def test_blunders_are_not_imitated(env, erring):
    if not BLUNDERS[env]:
        with pytest.raises(ConfigError, match=r"error_rates\.blunder to 0"):
            played(env, 1, 1, ERRING | {"blunder": 1.0})
        return
    blundered = [d for d in erring if not all(step.imitate for step in d.steps)]
    assert blundered
    for d in blundered:
        assert [step.imitate for step in d.steps].count(False) == 1
        if d.error:
            assert not d.steps[-1].imitate and d.critique.turn == len(d.steps) - 1


def test_a_manner_draws_a_temperament_by_hand():
    class Fixed:
        def uniform(self, low, high):
            return (low + high) / 2

        def random(self):
            return 0.6

    error_rates = ErrorRates(slip_low=0.2, slip_high=0.4, habit=0.9, forget=0.7)
    assert error_rates.error_model(Fixed()) == ErrorModel(pytest.approx(0.3), 0.9, forgets=True)


class Countdown(ScriptedExpert):
    """Counts down from 3; saying anything but the next number is a mistake."""

    def __init__(self):
        self.next = 3

    def see(self, action, text):
        self.next -= action == str(self.next)

    def hint(self):
        return [str(n) for n in range(self.next, 0, -1)]

    def thought(self):
        return "count"

    def choose(self, now, actions, who, rng):
        return str(self.next)

    def mistake(self, turn, action, text):
        return None if action == str(self.next) else Mistake(turn, f"{action}?", tuple(self.hint()), complete=True)

    def summary(self, answers):
        return f"{len(answers)} said"


def said(*words):
    return [(word, "ok") for word in words]


@pytest.mark.parametrize(
    ("answers", "success", "limit", "pivot", "outcome", "hint"),
    [
        (said("3", "2", "1"), True, 5, None, "success", None),
        (said("3", "x", "2", "1"), True, 5, 1, "success_but_inefficient", "2, then 1"),
        # both mistakes could be mended within 5 turns: the later one decides
        (said("x", "3", "x", "2"), False, 5, 2, "failure", "2, then 1"),
        # after the second nothing fits into 3 turns any more, after the first it does
        (said("x", "3", "x"), False, 3, 0, "failure", "3, then 2, then 1"),
        # nothing fits: the first mistake
        (said("3", "x", "x"), False, 2, 1, "failure", "2, then 1"),
        # no mistake, no time: the last turn
        (said("3", "2"), False, 2, 1, "failure", "look elsewhere"),
    ],
)
def test_the_pivot_is_the_last_decisive_mistake(answers, success, limit, pivot, outcome, hint):
    critique = criticise(Countdown(), Transcript(Task("t", "toy", "test"), "", tuple(answers), success, None), limit)
    assert (critique.turn, critique.outcome, critique.suggestion) == (pivot, outcome, hint)
    assert critique.summary == f"{len(answers)} said"
