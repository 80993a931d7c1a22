"""Measures of hand-made attempts, counted out; intervals over tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from r3l.core.environment import StopReason
from r3l.feedback.audits import Agreement
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.probe.attempt_table import equal_tokens
from r3l.probe.attempts import (
    Attempt,
    CriticReflection,
    Logprobs,
    OwnReflection,
    ProbeAttempts,
    RetryOutcome,
    TeacherReading,
)
from r3l.probe.bootstrap import difference, mean, paired_difference, ratio, share
from r3l.probe.measures import measures


def attempt(task, member, success=False, stop=None, **more):
    stop = stop or (StopReason.SUCCESS if success else StopReason.MAX_TURNS)
    values = {"group": task[0], "reward": float(success), "turns": 4, "tokens": 40, "actions": 4, "shown": 4}
    return Attempt(task=task, member=member, success=success, stop=stop, **(values | more))


def tried(success, tokens, followed=None, invalid=False, logprobs=None):
    return RetryOutcome(success, success, tokens, followed, invalid, logprobs)


def own(near, guided, unguided, from_start=False, invalid=False, right=True, logprobs=None):
    agrees = Agreement(exact=near, near=near, same_cause=near)
    tries = (tried(guided, 50, True, invalid, logprobs), tried(unguided, 40), tried(from_start, 80))
    return OwnReflection(None, right, "", agrees, *tries)


def critic(cause, guided, unguided, followed):
    return CriticReflection(cause, tried(guided, 20, followed), tried(unguided, 20))


EASY = Logprobs((-0.5, -0.5), (-0.5, -0.5))
HINTED = Logprobs((-0.1, -0.3), (-6.1, -1.3))


def test_where_no_critic_speaks_nothing_is_said_of_it():
    assert (
        measures(ProbeAttempts([attempt("e1", 0), attempt("e1", 1, own=own(True, True, True))], {}))[
            "critic_names"
        ].value
        is None
    )


@pytest.fixture(scope="module")
def counted():
    """Two easy tasks (e1, e2) and two hard ones, two attempts at each: two successes, both easy."""
    attempts = [
        attempt(
            "e1",
            0,
            success=True,
            tokens=20,
            own=own(True, True, True, logprobs=EASY),
            teachers={"solution": TeacherReading(1.0, 4, True)},
        ),  # which is inefficient
        attempt(
            "e1", 1, own=own(True, True, False, logprobs=HINTED), critic=critic("lost", True, False, True)
        ),
        attempt(
            "e2",
            0,
            success=True,
            tokens=20,
            own=OwnReflection(right=True),
            teachers={"solution": TeacherReading(0.5, 2, True)},
        ),
        attempt(
            "e2",
            1,
            stop=StopReason.FORMAT,
            own=OwnReflection("no_json"),
            critic=critic("lost", True, True, False),
        ),
        attempt(
            "h1",
            0,
            stop=StopReason.INADMISSIBLE,
            shown=3,
            own=own(False, False, False, invalid=True, logprobs=EASY),
            teachers={"solution": TeacherReading(-0.8, 4, True), "reflection": TeacherReading(0.0, 4, False)},
        ),
        attempt(
            "h1",
            1,
            own=own(True, False, False),
            critic=critic(None, False, False, None),
            teachers={"solution": TeacherReading(0.2, 2, False)},
        ),
        attempt("h2", 0, own=own(False, True, False), critic=critic("late", False, False, True)),
        attempt("h2", 1, stop=StopReason.REPETITION, reward=0.5, own=OwnReflection(right=False)),
    ]
    return measures(ProbeAttempts(attempts, {"e1": True, "e2": True, "h1": True, "h2": False}))


@pytest.mark.parametrize(
    ("key", "value", "n"),
    [
        ("success", 2 / 8, 8),
        ("success_easy", 2 / 4, 4),
        ("success_hard", 0, 4),
        ("easy_minus_hard", 2 / 4, 4),
        ("reward", 2.5 / 8, 8),
        ("unusable", 2 / 8, 8),  # format and inadmissible; a repetition holds an action
        ("stop_max_turns", 3 / 8, 8),
        ("stop_repetition", 1 / 8, 8),
        ("turns", 4, 8),
        ("tokens", (2 * 20 + 6 * 40) / 8, 8),
        ("expert_success", 3 / 4, 4),
        ("critic_names", 3 / 6, 6),  # of six failures one has no critique, one nothing wrong, one no critique
        ("reflections_valid", 5 / 6, 6),
        ("oracle_exact", 2 / 4, 4),
        ("oracle_near", 2 / 4, 4),
        ("diagnosis_accurate", 2 / 4, 4),
        ("diagnosis_wrong", 2 / 4, 4),
        ("retry_success", 2 / 4, 4),
        ("retry_improved", 2 / 4, 4),
        ("retry_right", 1 / 2, 2),
        ("retry_wrong", 1 / 2, 2),
        ("right_over_wrong", 1, 2),
        ("retry_unusable", 1 / 4, 4),
        ("unguided_success", 0, 4),
        ("guided_minus_unguided", 2 / 4, 4),
        ("from_start_success", 0, 4),
        ("fresh_success", 1 / 4, 4),  # after e1's failure comes its first attempt again, a success
        ("guided_minus_fresh", 1 / 4, 4),  # e1: 1 - 1; h1: 0, 0; h2: 1 - 0
        ("guided_per_1000", 1000 * 2 / 200, 4),
        ("fresh_per_1000", 1000 * 1 / (20 + 40 + 40 + 40), 4),
        (
            "fresh_equal",
            1 / 4,
            4,
        ),  # of 50 tokens; e1: its success of 20; the others' one other attempt failed
        ("guided_minus_fresh_equal", 1 / 4, 4),
        ("fresh_short", 3 / 4, 4),  # 40 < 50; the success is enough
        ("reflections_valid_all", 7 / 8, 8),
        ("reflections_distinct", 1 / 8, 8),  # all are empty
        ("outcome_right", 6 / 7, 7),
        ("outcome_right_failed", 4 / 5, 5),
        ("outcome_right_solved", 2 / 2, 2),
        ("retry_success_all", 3 / 5, 5),
        ("guided_minus_unguided_all", 2 / 5, 5),
        ("guided_minus_fresh_all", 2 / 5, 5),  # e1's success: 1 - 0
        ("hint_gap", 7 / 4, 2),  # e1: 0 and -0.4 + 7.4, over four tokens
        ("hint_gap_all", 7 / 6, 3),
        ("hint_gap_failed", 0, 1),  # h1's retry, two tokens
        ("hint_gap_difference", 7 / 4, 2),
        ("solution_gap_solved", 1.5 / 6, 2),  # nats over tokens: 1 over 4, 0.5 over 2
        ("solution_gap_failed", -0.6 / 6, 2),  # -0.8 over 4, 0.2 over 2
        ("solution_difference", 0.25 + 0.1, 2),
        ("solution_shown", 3 / 4, 4),
        ("reflection_difference", None, 1),  # no success was read
        ("hint_p99", 6.1, 2),
        ("hint_p99_under", 0.5, 2),
        ("hint_unlikely", 1 / 4, 2),
        ("guided_minus_from_start", 2 / 4, 4),
        ("critic_guided", 2 / 4, 4),
        ("critic_unguided", 1 / 4, 4),
        ("critic_guided_minus_unguided", 1 / 4, 4),
        ("hint_followed", 2 / 3, 3),  # of four one hints at no possible action
        ("own_hint_followed", 1, 4),
        ("names_shown", 31 / 32, 32),
    ],
)
def test_measures_are_those_counted_by_hand(counted, key, value, n):
    assert counted[key].value == (None if value is None else pytest.approx(value)) and counted[key].n == n


def test_every_target_is_of_a_measure(counted):
    wanted = read_yaml(CONFIGS / "probe_targets.yaml")
    assert {*wanted["targets"], *wanted["gate"]} <= set(counted)


def test_where_responses_are_answers_nothing_is_said_of_actions():
    found = measures(
        ProbeAttempts([attempt("e1", 0, actions=None), attempt("h1", 0, success=True, actions=None)], None)
    )
    for key in ("hint_followed", "names_shown", "own_hint_followed", "expert_success"):
        assert found[key].value is None and found[key].n == 0


@pytest.mark.parametrize(
    ("others", "tokens", "expected"),
    [
        ([(False, 40), (True, 40)], 30, (0.0, False)),
        ([(True, 40)], 30, (0.75, False)),
        ([(False, 40), (True, 40)], 60, (0.5, False)),  # one and a half
        ([(False, 40), (True, 40)], 80, (1.0, False)),
        ([(False, 40), (False, 40)], 80, (0.0, False)),
        ([(False, 40), (False, 40)], 81, (0.0, True)),
    ],
)
def test_fresh_attempts_are_played_until_the_tokens_are_used_up(others, tokens, expected):
    several = [attempt("e1", k, success=success, tokens=cost) for k, (success, cost) in enumerate(others)]
    assert equal_tokens(several, tokens) == expected


def tasks_with(rates, attempts=10):
    """Attempts at one task for each rate, that share of them successful."""
    rows = [(f"e{k}", float(m < rate * attempts)) for k, rate in enumerate(rates) for m in range(attempts)]
    return pd.DataFrame(rows, columns=["task", "success"])


def with_parts(table, **tasks):
    """``table`` with the success in some tasks as columns of their own."""
    return table.assign(
        **{name: table.success.where(table.task.isin(chosen)) for name, chosen in tasks.items()}
    )


def test_the_interval_is_over_tasks_not_over_attempts():
    """Tasks always or never solved: n attempts are worth n / 10. A binomial of 400 would give +-0.049."""
    measure = share(tasks_with([1.0, 0.0] * 20), "success")
    half = 1.96 * np.sqrt(0.25 / 40)  # of 40 tasks: 0.155
    assert measure.value == 0.5 and (measure.n, measure.tasks) == (400, 40)
    assert measure.low == pytest.approx(0.5 - half, abs=0.03) and measure.high == pytest.approx(
        0.5 + half, abs=0.03
    )


def test_what_is_alike_in_every_task_has_wilsons_interval():
    table = tasks_with([0.0] * 20)
    measure = share(table, "success")
    assert (measure.low, measure.interval) == (0, "Wilson over tasks")
    assert measure.high == pytest.approx(0.161, abs=0.001)  # 20 tasks without a success
    paired = paired_difference(table, "success")  # 0 in each: up to so many could be 1, or -1
    assert (paired.low, paired.value, paired.high) == pytest.approx((-0.161, 0, 0.161), abs=0.001)
    assert paired_difference(tasks_with([0.5] * 20), "success").interval == "bootstrap over tasks"
    number = mean(table, "success")
    assert (number.low, number.high) == (0, 0)  # any number, with no bounds known


def test_a_difference_of_two_rates_of_nothing_is_bounded_by_both():
    """Newcombe (1998), method 10: 0 of 4 is at most 0.490, 0 of 16 at most 0.194."""
    few, many = ({f"e{k}" for k in chosen} for chosen in (range(4), range(4, 20)))
    apart = difference(with_parts(tasks_with([0.0] * 20), few=few, many=many), "few", "many")
    assert (apart.low, apart.value, apart.high) == pytest.approx((-0.194, 0, 0.490), abs=0.001)
    assert apart.interval == "Newcombe over tasks"


def test_one_rate_of_all_has_an_uncertainty_too():
    """Newcombe: 8 of 8 is at least 0.676, 6 of 12 between 0.254 and 0.746; 0.5 - hypot(0.324, 0.246)."""
    all_of, half = ({f"e{k}" for k in chosen} for chosen in (range(8), range(8, 20)))
    table = with_parts(tasks_with([1.0] * 8 + [0.0, 1.0] * 6), all_of=all_of, half=half)
    apart = difference(table, "all_of", "half")
    assert (apart.low, apart.value, apart.high) == pytest.approx((0.093, 0.5, 0.746), abs=0.001)
    assert apart.interval == "Newcombe over tasks"


def test_a_teacher_that_knows_the_task_alone_tells_no_attempts_apart():
    """D is 0.5 in an easy task and -0.5 in a hard one, whatever the attempt; three of four easy ones succeed.

    Over all attempts successes are ahead by 0.25 + 0.25. Within tasks by 0; with 0.3 more on the success of
    the hard task by 0.3 times its weight 3/4 of 3/4 + 3/4 (4 x 12 and 12 x 4 over 16 tokens: 3 each).
    """

    def probe(more):
        attempts = []
        for task, base, successes in (("e1", 0.5, 3), ("h1", -0.5, 1), ("h2", -0.5, 0)):
            for k in range(4):
                gap = base + (more if task == "h1" and k < successes else 0)
                reading = {"solution": TeacherReading(4 * gap, 4, True)}
                attempts.append(attempt(task, k, success=k < successes, teachers=reading))
        return measures(ProbeAttempts(attempts, {}))

    found = probe(0)
    assert found["solution_difference"].value == pytest.approx((3 * 0.5 - 0.5) / 4 - (0.5 - 7 * 0.5) / 8)
    within = found["solution_difference_same_task"]
    assert (within.value, within.low, within.high) == pytest.approx((0, 0, 0), abs=1e-12)
    assert (within.n, within.tasks) == (2, 2)  # h2 has no success
    assert probe(0.3)["solution_difference_same_task"].value == pytest.approx(0.15)


def test_a_ratio_over_a_rate_that_may_be_zero_has_no_upper_bound():
    table = tasks_with([0.5, 0.5, 0.5, 0.5])
    zero = ratio(table.assign(zero=0.0), "success", "zero")
    assert zero.value is None and zero.high is None
    rare = ratio(table.assign(rare=(table.task == "e0").astype(float)), "success", "rare")
    assert (
        rare.value == pytest.approx(2) and rare.low == pytest.approx(0.5 / 0.75) and rare.high is None
    )  # e0 thrice


def test_ratio_and_difference_are_of_separate_attempts():
    table = with_parts(tasks_with([0.6, 0.6, 0.2, 0.2]), upper={"e0", "e1"}, lower={"e2", "e3"})
    assert ratio(table, "upper", "lower").value == pytest.approx(3)
    apart = difference(table, "upper", "lower")
    assert apart.value == pytest.approx(0.4) and apart.low == pytest.approx(0.4) == apart.high
