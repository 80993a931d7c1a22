"""The gradient of every method's loss against autograd of its written formula, in float64.

A batch of three rows of four tokens: row 0 trains tokens 1-3, row 1 tokens 2-3, row 2 tokens 1-2. The formula
of each method is written out here once more, row by row and token by token.
"""

import math

import pytest
import torch

from r3l.config import build_method, resolve
from r3l.core.method import Batch

MASK = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 0]], dtype=torch.float64)
WEIGHT = MASK * torch.tensor([[0.1], [0.25], [0.05]], dtype=torch.float64)
OLD = torch.tensor(
    [[-1.0, -0.5, -2.0, -0.3], [-0.7, -1.1, -0.2, -6.0], [-1.0, -0.4, -5.5, -0.1]], dtype=torch.float64
)
NEW = OLD + torch.tensor([[0, 0.5, -0.6, 0.1], [0, 0, 0.3, -0.3], [0, -0.2, 0.4, 0]], dtype=torch.float64)
REF = OLD - 0.2
# Teacher's log-probs minus the old ones.
TAUGHT = torch.tensor([[0, 0.4, -0.2, 0.0], [0, 0, 0.1, -0.3], [0, 0.3, -0.1, 0]], dtype=torch.float64)
A = [1.5, -0.8, 0.6]


def batch(sft=(False,) * 3, off=(False,) * 3, ref=False, taught=(False,) * 3):
    return Batch(
        ids_B_T=torch.zeros(3, 4, dtype=torch.int64),
        mask_B_T=MASK,
        weight_B_T=WEIGHT,
        old_logprobs_B_T=OLD,
        advantages_B_T=torch.tensor(A, dtype=torch.float64)[:, None].expand(3, 4),
        teacher_logprobs_B_T=OLD + TAUGHT,
        taught_B=torch.tensor(taught),
        sft_B=torch.tensor(sft),
        off_policy_B=torch.tensor(off),
        ref_logprobs_B_T=REF if ref else None,
    )


def method(name, **settings):
    overrides = [f"method_settings.{key}={value}" for key, value in settings.items()]
    return build_method(resolve("nano", "alfworld", name, 0, overrides=overrides))


def trained():
    return [(i, t) for i in range(3) for t in range(4) if MASK[i, t]]


def summed(term):
    """sum over trained tokens of weight x term(row, token, log p)."""
    return lambda logp: sum(WEIGHT[i, t] * term(i, t, logp) for i, t in trained())


def plain(scale=1.0):
    return summed(lambda i, t, logp: -A[i] * logp[i, t] * scale)


def clipped(low, high):
    def term(i, t, logp):
        rho = torch.exp(logp[i, t] - OLD[i, t])
        return torch.maximum(-A[i] * rho, -A[i] * torch.clamp(rho, 1 - low, 1 + high))

    return summed(term)


def sequence(low, high):
    def term(i, t, logp):
        tokens = [u for j, u in trained() if j == i]
        mean = sum(logp[i, u] - OLD[i, u] for u in tokens).detach() / len(tokens)
        rho = torch.exp(mean) * logp[i, t].exp() / logp[i, t].detach().exp()
        return torch.maximum(-A[i] * rho, -A[i] * torch.clamp(rho, 1 - low, 1 + high))

    return summed(term)


def critique(off):
    on_policy = clipped(0.2, 0.2)

    def off_policy(logp):
        p = torch.exp(logp)
        return sum(WEIGHT[i, t] * (-A[i] * p[i, t] / (p[i, t] + 0.1)) for i, t in trained() if off[i]) - sum(
            WEIGHT[i, t] * _clipped_term(i, t, logp) for i, t in trained() if off[i]
        )

    return lambda logp: on_policy(logp) + off_policy(logp)


def _clipped_term(i, t, logp):
    rho = torch.exp(logp[i, t] - OLD[i, t])
    return torch.maximum(-A[i] * rho, -A[i] * torch.clamp(rho, 0.8, 1.2))


def rltf(off):
    """-A rho; tokens of distilled rows with old log p < -5 do not count."""
    return lambda logp: sum(
        WEIGHT[i, t] * -A[i] * torch.exp(logp[i, t] - OLD[i, t])
        for i, t in trained()
        if not (off[i] and OLD[i, t] < -5)
    )


def without_unlikely(off):
    """-A log p; tokens of distilled rows with log p < -5 do not count: at NEW the last of row 1 and one of
    row 2.
    """
    return lambda logp: sum(
        WEIGHT[i, t] * -A[i] * logp[i, t] for i, t in trained() if not (off[i] and (i, t) in [(1, 3), (2, 2)])
    )


def cispo(logp):
    return sum(
        WEIGHT[i, t] * -A[i] * torch.exp(logp[i, t] - OLD[i, t]).clamp(0.8, 1.2).detach() * logp[i, t]
        for i, t in trained()
    )


def with_kl(formula, kind, coef):
    def k(d):
        return 0.5 * d * d if kind == "k2" else torch.exp(-d) - 1 + d

    return lambda logp: formula(logp) + coef * summed(lambda i, t, lp: k(lp[i, t] - REF[i, t]))(logp)


OFF = (False, True, True)
CASES = [
    ("r3l", {}, batch(), plain()),
    ("r3l", {"opmd_tau": 1.0}, batch(), plain(0.5)),
    ("r3l@profile=released_code", {}, batch(ref=True), with_kl(plain(0.5), "k2", 0.001)),
    ("r3l_is", {}, batch(), clipped(0.2, 0.2)),
    ("r3l", {"min_logprob": -5}, batch(off=OFF), without_unlikely(OFF)),
    ("r3l_kl", {}, batch(ref=True), with_kl(plain(), "k3", 0.01)),
    ("grpo_amplified", {}, batch(), clipped(0.2, 0.2)),
    ("opmd", {}, batch(), plain()),
    ("opmd@profile=released_code", {}, batch(ref=True), with_kl(plain(0.5), "k2", 0.001)),
    ("grpo", {}, batch(), clipped(0.2, 0.2)),
    ("grpo@profile=released_code", {}, batch(ref=True), with_kl(clipped(0.2, 0.2), "k3", 0.01)),
    ("dapo", {}, batch(), clipped(0.2, 0.28)),
    ("rloo", {}, batch(), plain()),
    ("reinforce_pp", {}, batch(), clipped(0.2, 0.2)),
    ("gigpo", {}, batch(), clipped(0.2, 0.2)),
    ("hgpo", {}, batch(), clipped(0.2, 0.2)),
    ("tree_grpo", {}, batch(), clipped(0.2, 0.2)),
    ("tree_grpo@profile=released_code", {}, batch(ref=True), with_kl(clipped(0.2, 0.2), "k3", 0.001)),
    ("erl", {}, batch(off=OFF), clipped(0.2, 0.2)),
    ("erl@profile=released_code", {}, batch(ref=True), with_kl(clipped(0.2, 0.28), "k3", 0.001)),
    ("gspo", {}, batch(), sequence(3e-4, 4e-4)),
    ("gspo", {"clip_low": 0.5, "clip_high": 0.5}, batch(), sequence(0.5, 0.5)),
    ("reflect_grpo", {}, batch(off=OFF), clipped(0.2, 0.2)),
    ("critique_grpo", {}, batch(off=OFF), critique(OFF)),
    ("rltf_sd", {}, batch(off=OFF), rltf(OFF)),
    ("rltf_fm", {}, batch(), rltf((False,) * 3)),
    ("rltf_sd", {"ratio": "ppo", "min_logprob": "null"}, batch(off=OFF), clipped(0.2, 0.2)),
    ("rltf_sd", {"ratio": "cispo", "min_logprob": "null"}, batch(off=OFF), cispo),
]


@pytest.mark.parametrize(("name", "settings", "rows", "formula"), CASES)
def test_loss_and_gradient_are_those_of_the_formula(name, settings, rows, formula):
    ours, theirs = (NEW.clone().requires_grad_() for _ in range(2))
    loss, _ = method(name, **settings).loss(rows, ours)
    expected = formula(theirs)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(loss, ours)[0], torch.autograd.grad(expected, theirs)[0], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(("name", "coef"), [("r3l", 1.0), ("erl", 1.0), ("rltf_fm", 0.1), ("rltf_sft", 0.1)])
def test_imitation_is_cross_entropy(name, coef):
    """Only rows 1 and 2 are imitated."""
    logp = NEW.clone().requires_grad_()
    loss, parts = method(name).loss(batch(sft=(False, True, True)), logp)
    (gradient,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(gradient[1:], -coef * WEIGHT[1:], rtol=1e-12, atol=0)
    assert parts["loss/sft"] == pytest.approx(-(WEIGHT[1:] * NEW[1:]).sum().item())


def test_clip_fraction_is_the_weight_of_clipped_tokens():
    """Row 0 (A > 0): rho e^0.5 is clipped above; row 1 (A < 0): e^-0.3 = 0.74 is clipped below; row 2 (A >
    0): e^0.4 is clipped above.
    """
    _, parts = method("grpo").loss(batch(), NEW)
    assert parts["clip_fraction"] == pytest.approx(0.1 + 0.25 + 0.05)
    assert math.exp(-0.3) < 0.8 and math.exp(0.4) > 1.2
