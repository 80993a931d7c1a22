"""Adaptive R3L: the share of reflected attempts, by hand and at its limits."""

import pytest
from exploration import LOSE, explore, review, shape

from r3l.adaptive import AdaptiveR3L


def step(rescued, failures, solved, pairs, retry_tokens=100, bases=8):
    """The metrics of an update: 8 bases of 50 tokens each, 4 of them reflected on."""
    return {
        "retry/rescued": rescued,
        "adaptive/failures_reflected": failures,
        "adaptive/fresh_solved": solved,
        "adaptive/fresh": pairs,
        "adaptive/bases": bases,
        "adaptive/reflected": 4,
        "tokens/reflection": retry_tokens / 2,
        "tokens/retry": retry_tokens / 2,
        "tokens/rollout": 50 * bases,
    }


def test_everything_is_reflected_on_before_anything_is_measured():
    assert AdaptiveR3L({}).share([]) == 1.0
    assert AdaptiveR3L({}).share([step(0, 0, 0, 0)]) == 1.0  # no attempt failed


def test_the_share_by_hand():
    """Rates (2 + 1) / (4 + 2) = 1/2 and (2 + 1) / (8 + 2) = 3/10; a place costs 25 tokens, an attempt 50.

    Per token 0.02 and 0.006; variances (1/4 / 7) / 625 and (0.21 / 11) / 2500, deviation sqrt(6.478e-5) =
    0.0080484; z = 0.014 / 0.0080484 = 1.7395, and the normal distribution's share below it is 0.9590.
    """
    assert AdaptiveR3L({}).share([step(2, 4, 14, 56)]) == pytest.approx(0.9590, abs=1e-4)


def test_several_retries_of_an_attempt_are_so_many_trials():
    """Two retries of each of 4 failures, 6 of 8 rescued: (6 + 1) / (8 + 2) = 7/10 for 25 tokens a retry, and
    3/10 for 50 as above; variances (0.21 / 11) / 625 and / 2500, deviation 0.0061791, z = 0.022 / 0.0061791.
    """
    found = AdaptiveR3L({"retries": 2, "group_size": 12}).share([step(6, 4, 14, 56, retry_tokens=200)])
    assert found == pytest.approx(0.99981, abs=1e-5)


def test_reflections_of_others_cost_what_they_cost():
    """A judge's tokens count as the model's own; a critic's cost nothing, so that alone stops no reflecting."""
    own, judged = step(2, 4, 14, 56), step(2, 4, 14, 56)
    judged["tokens/judge"] = judged.pop("tokens/reflection")
    assert AdaptiveR3L({}).share([judged]) == AdaptiveR3L({}).share([own])
    assert AdaptiveR3L({}).share([step(0, 4, 14, 56, retry_tokens=0)]) == 1.0


def test_retries_that_solve_nothing_keep_the_floor_alone():
    poor = [step(0, 20, 500, 560, retry_tokens=1000, bases=80)] * 10
    assert AdaptiveR3L({}).share(poor) == 0.125
    assert AdaptiveR3L({"floor": 0.5}).share(poor) == 0.5


def test_only_the_last_updates_count():
    good, poor = step(4, 4, 0, 56), step(0, 20, 500, 560, retry_tokens=1000, bases=80)
    assert AdaptiveR3L({"window": 2}).share([poor] * 20 + [good] * 2) > 0.9


def test_an_attempt_that_is_not_reflected_on_becomes_two_fresh_ones():
    """With the share at its floor of 1e-9 no place is drawn; before anything is measured both are."""
    poor = [step(0, 20, 500, 560, retry_tokens=1000, bases=80)] * 10
    _, groups, counters = explore(
        "r3l_adaptive", {"rollout": LOSE * 4}, history=poor, group_size=4, floor=1e-9
    )
    assert [kind for kind, _ in shape(groups)[0][1]] == ["base"] * 4
    assert (counters["adaptive/bases"], counters["adaptive/reflected"], counters["adaptive/fresh"]) == (
        4,
        0,
        12,
    )
    script = {"rollout": LOSE * 2, "reflection": [review(0), review(0)], "retry": LOSE * 2}
    _, groups, counters = explore("r3l_adaptive", script, group_size=4)
    assert sorted(kind for kind, _ in shape(groups)[0][1]) == ["base", "base", "distilled", "distilled"]
    assert (counters["adaptive/failures_reflected"], counters["adaptive/fresh_solved"]) == (2, 0)
