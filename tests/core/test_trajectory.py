"""Masks: no prefix token of a retry ever carries gradient; every suffix response token does."""

import pytest
from conftest import make_trajectory
from hypothesis import given
from hypothesis import strategies as st

from r3l.config import resolve
from r3l.core.policy import FinishReason
from r3l.core.trajectory import Turn
from r3l.credit import CreditSettings, assign_pivotal_credit


def trained_turns(trajectory):
    mask, turns, at = trajectory.credit_mask(), [], 0
    for k, turn in enumerate(trajectory.turns):
        at += len(turn.prompt_ids)
        if mask[at : at + len(turn.response_ids)].any():
            turns.append(k)
        at += len(turn.response_ids)
    return turns


def test_tokens_and_logprobs_in_order():
    t = make_trajectory(2)
    assert t.token_ids().tolist() == [100, 0, 1, 101, 10, 11]
    assert t.response_mask().tolist() == [0, 1, 1, 0, 1, 1]
    assert t.old_logprobs().tolist() == [0, -0.5, -0.5, 0, -0.5, -0.5]


def test_a_turn_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="2 response ids but 1 log-probs"):
        Turn("o", "r", (1,), (2, 3), (-1.0,), FinishReason.END)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("setter", ["set_teacher_logprobs", "set_student_logprobs"])
def test_logprobs_of_another_number_of_tokens_are_refused(setter, count):
    t = make_trajectory(2)  # two turns of two sampled tokens
    with pytest.raises(ValueError, match=f"{count} log-probs for 4 sampled tokens"):
        getattr(t, setter)([-1.0] * count)


@given(st.integers(1, 12), st.data())
def test_pivotal_credit_on_base_and_retry(turns, data):
    pivot = data.draw(st.integers(0, turns - 1))
    base = make_trajectory(turns)
    distilled = make_trajectory(data.draw(st.integers(pivot, 15)), kind="distilled")
    for trajectory in (base, distilled):
        assign_pivotal_credit(trajectory, pivot, CreditSettings())
        mask, at = trajectory.credit_mask(), 0
        for k, turn in enumerate(trajectory.turns):
            assert not mask[at : at + len(turn.prompt_ids)].any()  # prompts never
            at += len(turn.prompt_ids)
            assert (mask[at : at + len(turn.response_ids)] == float(k >= pivot)).all()
            at += len(turn.response_ids)


def masks(pivot, **options):
    """Trained turns of a base, a distilled and a guided retry of five turns."""
    turns_of = {}
    for kind in ("base", "distilled", "guided_retry"):
        trajectory = make_trajectory(5, kind=kind)
        assign_pivotal_credit(trajectory, pivot, CreditSettings(**options))
        turns_of[kind] = trained_turns(trajectory)
    return turns_of


def test_credit_options():
    every, suffix = [0, 1, 2, 3, 4], [2, 3, 4]
    assert masks(2) == {"base": suffix, "distilled": suffix, "guided_retry": suffix}
    assert masks(2, credit=()) == {"base": every, "distilled": every, "guided_retry": every}
    assert masks(2, credit=("base",)) == {"base": suffix, "distilled": every, "guided_retry": every}
    inverted = masks(2, credit_rule="released_inverted")  # audit B-12: of the base the prefix
    assert inverted == {"base": [0, 1], "distilled": suffix, "guided_retry": suffix}
    assert masks(0, credit_rule="released_inverted")["base"] == every  # it masks only where there is a prefix


@pytest.mark.parametrize(
    ("env", "method", "trained"),
    [
        ("dapo", "r3l", {"base": [1], "distilled": [1], "guided_retry": [0, 1]}),
        ("math500", "r3l", {"base": [1], "distilled": [1], "guided_retry": [0, 1]}),
        ("alfworld", "r3l", {"base": [1], "distilled": [1], "guided_retry": [1]}),
        ("dapo", "r3l_no_credit", {"base": [0, 1], "distilled": [0, 1], "guided_retry": [0, 1]}),
    ],
)
def test_the_released_mathematics_masks_no_imitated_retry(env, method, trained):
    """Two responses, reported pivot 1 (audit B-5): the release masks the first one of base and distilled retry, and of
    the imitated retry in the games alone."""
    settings = CreditSettings.model_validate(
        {
            key: value
            for key, value in resolve(
                "paper", env, f"{method}@profile=released_code", 0
            ).method_settings.items()
            if key in CreditSettings.model_fields
        }
    )
    for kind, turns in trained.items():
        trajectory = make_trajectory(2, kind=kind)
        assign_pivotal_credit(trajectory, 1, settings)
        assert trained_turns(trajectory) == turns
