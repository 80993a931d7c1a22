"""The cases of turn samples are of every kind; that the release agrees is for `r3l released`."""

from itertools import islice

from r3l.released.checks import turns


def test_with_a_pivot_the_prefix_of_the_base_trains_and_the_suffix_of_the_retry():
    """Audit B-12: the opposite of the paper for the base."""
    case = {"turns": 4, "pivot": 1, "retried": 2, "reward": 0.0, "retry_reward": 1.0}
    assert turns.ours(case) == {"base": [0], "retry": [1, 2]}
    assert turns.ours(case | {"pivot": 0}) == {"base": [0, 1, 2, 3], "retry": [0, 1]}


def test_pivots_are_turns_of_their_base():
    drawn = list(islice(turns.cases(), 300))
    assert all(case["pivot"] < case["turns"] for case in drawn)
    assert {case["pivot"] for case in drawn} >= set(range(7)) and {case["retried"] for case in drawn} == {1, 2, 3, 4}
