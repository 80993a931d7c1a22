"""Scripted demonstrations of every environment, on the real engines: careful agents win, critiques are
reflections."""

import re

import pytest
from r3l.envs.base.demonstrations import CAREFUL
from r3l.envs.base.experts import ScriptedExpert, WrongAction, criticise
from r3l.envs.registry import find_environment

from r3l.core.environment import Transcript
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.feedback.feedback import ParsedReflection, parse_reflection
from r3l.reflection import reflection_text

ERRING = {"low": 0.45, "high": 0.65, "systematic": 0.8, "overlook": 0.6}
TURNS = {"alfworld": 15, "scienceworld": 12, "webshop": 10}
PACKAGES = {name: find_environment(name) for name in TURNS}
INVALID = {"alfworld": 0.3, "scienceworld": 0.3, "webshop": 0.0}


def played(env, tasks, variants, error_rates):
    return list(PACKAGES[env].demonstrations(range(tasks), variants, TURNS[env], error_rates))


@pytest.fixture(scope="module", params=list(TURNS))
def env(request):
    return request.param


@pytest.fixture(scope="module")
def erring(env):
    tasks = 3 if env == "scienceworld" else 16
    return played(env, tasks, 2, ERRING | {"invalid": INVALID[env]})


def test_a_careful_agent_succeeds_from_the_text_alone(env):
    error_rates = {name: getattr(CAREFUL, name) for name in ("low", "high", "systematic", "overlook")}
    for d in PACKAGES[env].demonstrations(range(1 if env == "scienceworld" else 3), 1, 40, error_rates):
        assert d.success and d.reward == 1 and d.error is None and d.retry == ()
        assert d.critique.outcome == "success" and d.critique.turn is None


def test_critiques_are_valid_reflections_and_the_dialogue_gives_the_same(env, erring):
    dialogue = PACKAGES[env].dialogue("compact", TURNS[env])
    outcomes = set()
    for d in erring:
        reflection = parse_reflection(reflection_text(d.critique), len(d.steps))
        assert isinstance(reflection, ParsedReflection) and d.success == (reflection.outcome != "failure")
        outcomes.add(reflection.outcome)
        last = "" if d.error else "the end"
        texts = [*(step.now.text for step in d.steps[1:]), last]
        answers = tuple((step.action, text) for step, text in zip(d.steps, texts, strict=True))
        assert dialogue.critique(Transcript(d.task, d.first.text, answers, d.success, d.error)) == d.critique
    assert {"failure", "success_but_inefficient"} <= outcomes


def named(env, step, suggestion):
    """Names in a suggestion that the observations so far do not offer."""
    if env == "alfworld":
        return re.findall(r"\b[a-z]+ \d+\b", suggestion)
    actions = suggestion.split(", then ")
    if env == "scienceworld":
        return [found[1] for action in actions if (found := re.match("(?:focus on|pick up) (.+)", action))]
    return [a[len("click[") : -1] for a in actions if a.startswith("click[") and a not in step.now.admissible]


def test_critiques_name_nothing_that_the_text_before_the_pivot_does_not_show(env, erring):
    things = 0
    for d in (d for d in erring if d.critique.turn is not None):
        seen = d.steps[: d.critique.turn + 1]
        shown = " ".join([d.first.text, *(step.now.text for step in seen)]).lower()
        for thing in named(env, seen[-1], d.critique.suggestion.replace("click[buy now]", "")):
            assert thing in shown
            things += 1
    assert things >= 2


def test_a_retry_starts_at_the_critiques_turn_and_begins_with_its_suggestion(erring):
    retried = [d for d in erring if d.retry]
    followed = 0
    for d in retried:
        assert d.retry[0].now == d.steps[d.critique.turn].now
        followed += d.retry[0].action == d.critique.suggestion.split(", then ")[0]
        assert not any(step.suggested for step in d.steps)
    assert followed > 0.8 * len(retried) > 2


def test_retries_correct_failures(erring):
    failed = [d for d in erring if not d.success and d.retry]
    assert sum(d.retry_success for d in failed) > 0.3 * len(failed) > 1


def test_demonstrations_are_deterministic_and_differ_by_variant(env):
    once, twice = (played(env, 1, 2, ERRING) for _ in range(2))
    assert once == twice and once[0].steps != once[1].steps


def test_invalid_actions_are_not_imitated(env, erring):
    if not INVALID[env]:
        with pytest.raises(ConfigError, match=r"error_rates\.invalid to 0"):
            played(env, 1, 1, ERRING | {"invalid": 1.0})
        return
    with_invalid = [d for d in erring if not all(step.imitate for step in d.steps)]
    assert with_invalid
    for d in with_invalid:
        assert [step.imitate for step in d.steps].count(False) == 1
        if d.error:
            assert not d.steps[-1].imitate and d.critique.turn == len(d.steps) - 1


class Countdown(ScriptedExpert):
    """An expert that counts down from 3; any other number is wrong."""

    def __init__(self):
        self.next = 3

    def observe(self, action, text):
        self.next -= action == str(self.next)

    def suggested(self):
        return [str(n) for n in range(self.next, 0, -1)]

    def thought(self):
        return "count"

    def choose(self, now, actions, error_model, rng):
        return str(self.next)

    def check(self, turn, action, text):
        correction = tuple(self.suggested())
        return (
            None if action == str(self.next) else WrongAction(turn, f"{action}?", correction, complete=True)
        )

    def summary(self, answers):
        return f"{len(answers)} words"


def answered(*words):
    return [(word, "ok") for word in words]


@pytest.mark.parametrize(
    ("answers", "success", "limit", "turn", "outcome", "suggestion"),
    [
        (answered("3", "2", "1"), True, 5, None, "success", None),
        (answered("3", "x", "2", "1"), True, 5, 1, "success_but_inefficient", "2, then 1"),
        # both errors could be corrected within 5 turns: the later one decides
        (answered("x", "3", "x", "2"), False, 5, 2, "failure", "2, then 1"),
        # after the second nothing fits into 3 turns any more, after the first it does
        (answered("x", "3", "x"), False, 3, 0, "failure", "3, then 2, then 1"),
        # nothing fits: the first error
        (answered("3", "x", "x"), False, 2, 1, "failure", "2, then 1"),
        # no error, no time: the last turn
        (answered("3", "2"), False, 2, 1, "failure", "look elsewhere"),
    ],
)
def test_the_turn_is_that_of_the_last_decisive_wrong_action(
    answers, success, limit, turn, outcome, suggestion
):
    critique = criticise(
        Countdown(), Transcript(Task("t", "toy", "test"), "", tuple(answers), success, None), limit
    )
    assert (critique.turn, critique.outcome, critique.suggestion) == (turn, outcome, suggestion)
    assert critique.summary == f"{len(answers)} words"
