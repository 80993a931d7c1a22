"""The cases of losses by hand: our side of the check is the method's loss and its gradient."""

import pytest

from r3l.released.checks.losses import ours


def row(now, old, advantage, reference=None, off_policy=False, prompt=2):
    values = {"now": now, "old": old, "reference": reference or now}
    return values | {"advantage": advantage, "off_policy": off_policy, "prompt": prompt}


def test_opmd_is_half_of_minus_a_log_p_a_token():
    """tau = 1 halves it; two rows of 1 and 3 tokens are one token mean; the KL to the same model is 0."""
    rows = [row([-1.0], [-1.0], 2.0), row([-1.0, -2.0, -3.0], [-1.0] * 3, -1.0)]
    answer = ours("r3l", {"rows": rows})
    assert answer["loss"] == pytest.approx((2.0 * 1 - 6.0) / 4 / 2)
    assert answer["gradient"] == [pytest.approx([-0.25]), pytest.approx([0.125] * 3)]


def test_gradients_stand_in_the_order_of_the_case_whatever_the_packing():
    rows = [row([-1.0] * 5, [-1.0] * 5, 0.0), row([-1.0], [-1.0], 1.0)]
    assert [len(line) for line in ours("opmd", {"rows": rows})["gradient"]] == [5, 1]


def test_a_refinement_is_shaped():
    """-A p / (p + 0.1) with p = 1/2: A/1.2 of a half."""
    half = -0.6931471805599453
    answer = ours("critique_grpo", {"rows": [row([half], [-3.0], 1.0, off_policy=True)]})
    assert answer["loss"] == pytest.approx(-0.5 / 0.6, rel=1e-6)
