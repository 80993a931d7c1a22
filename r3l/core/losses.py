"""Per-token losses. All take and return shape (B, T); ``Batch.weight_B_T`` weighs and sums them later.

Losses and methods only use tensor methods and never import torch, so that reading settings is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


KLEstimator = Literal["none", "k1", "k2", "k3"]


def policy_gradient(
    logprobs_B_T: torch.Tensor,
    advantages_B_T: torch.Tensor,
    tau: float = 0.0,
) -> torch.Tensor:
    """REINFORCE loss per token, -A log p / (1 + tau), without importance ratio or clipping (OPMD).

    tau is 0 in the paper and 1 in the released code (audit A-6).
    """
    return -advantages_B_T * logprobs_B_T / (1 + tau)


def token_ratio(logprobs_B_T: torch.Tensor, old_logprobs_B_T: torch.Tensor) -> torch.Tensor:
    """Importance ratio rho = exp(logp - old) of each token; old: its log-prob when it was sampled."""
    return (logprobs_B_T - old_logprobs_B_T).exp()


def sequence_ratio(
    logprobs_B_T: torch.Tensor,
    old_logprobs_B_T: torch.Tensor,
    mask_B_T: torch.Tensor,
) -> torch.Tensor:
    """GSPO: the geometric mean of a row's token ratios, on each token with its own gradient (GSPO-token).

    exp(sg(mean_t(logp - old)) + logp - sg(logp)); sg stops the gradient, the mean runs over the tokens where
    ``mask_B_T`` is 1. Shape (B, T).
    """
    lengths_B_1 = mask_B_T.sum(1, keepdim=True).clamp(min=1)
    mean_B_1 = ((logprobs_B_T - old_logprobs_B_T) * mask_B_T).sum(1, keepdim=True) / lengths_B_1
    return (mean_B_1.detach() + logprobs_B_T - logprobs_B_T.detach()).exp()


def clipped_surrogate(
    ratio_B_T: torch.Tensor, advantages_B_T: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's loss per token, max(-A rho, -A clip(rho, 1 - low, 1 + high)), and 1.0 where the clip is active.

    rho is ``ratio_B_T``; all shapes are (B, T). The second tensor is 0 on other tokens.
    """
    plain_B_T = -advantages_B_T * ratio_B_T
    clipped_B_T = -advantages_B_T * ratio_B_T.clamp(1 - clip_low, 1 + clip_high)
    return plain_B_T.maximum(clipped_B_T), (clipped_B_T > plain_B_T).float()


def clipped_weight(
    ratio_B_T: torch.Tensor,
    logprobs_B_T: torch.Tensor,
    advantages_B_T: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> torch.Tensor:
    """CISPO's loss per token, -A sg(clip(rho, 1 - low, 1 + high)) log p, where sg stops the gradient.

    The ratio rho is only a weight, so a clipped token keeps its gradient.
    """
    return -advantages_B_T * ratio_B_T.clamp(1 - clip_low, 1 + clip_high).detach() * logprobs_B_T


def shaped_probability(
    logprobs_B_T: torch.Tensor,
    advantages_B_T: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Critique-GRPO's loss per off-policy token: -A p / (p + gamma) with p = exp(logp)."""
    p_B_T = logprobs_B_T.exp()
    return -advantages_B_T * p_B_T / (p_B_T + gamma)


def reverse_kl(logprobs_B_T: torch.Tensor, teacher_logprobs_B_T: torch.Tensor) -> torch.Tensor:
    """Loss sg(l - lT) l per token, with l and lT the log-probs of policy and teacher; sg stops the gradient.

    Its gradient is the gradient of KL(policy || teacher), estimated only at the sampled token. Shape (B, T);
    the teacher's log-probs are expected without gradient.
    """
    return (logprobs_B_T.detach() - teacher_logprobs_B_T) * logprobs_B_T


def without_unlikely(
    loss_B_T: torch.Tensor, logprobs_B_T: torch.Tensor, off_policy_B: torch.Tensor, min_logprob: float | None
) -> torch.Tensor:
    """``loss_B_T`` with 0 on off-policy tokens whose log-prob is below ``min_logprob`` (RLTF audit 2).

    ``off_policy_B``: which rows are off-policy, bool. ``min_logprob`` None leaves the loss unchanged.
    """
    if min_logprob is None:
        return loss_B_T
    return loss_B_T.masked_fill(off_policy_B[:, None] & (logprobs_B_T.detach() < min_logprob), 0.0)


def kl(logprobs_B_T: torch.Tensor, ref_logprobs_B_T: torch.Tensor, estimator: KLEstimator) -> torch.Tensor:
    """Estimate of the KL to the reference model per token, shape (B, T), by one of Schulman's estimators.

    With d = logp - ref: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d; ``none`` is 0.
    """
    d = logprobs_B_T - ref_logprobs_B_T
    if estimator == "k1":
        return d
    if estimator == "k2":
        return 0.5 * d.square()
    if estimator == "k3":
        return (-d).exp() - 1 + d
    return d.new_zeros(d.shape)
