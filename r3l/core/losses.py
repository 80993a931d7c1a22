"""Per-token losses. All take and return shape (B, T); weighting and summing is ``Batch.weight_B_T``'s job."""

from __future__ import annotations

from typing import Literal

import torch

KLEstimator = Literal["none", "k1", "k2", "k3"]


def policy_gradient(logprobs_B_T: torch.Tensor, advantages_B: torch.Tensor) -> torch.Tensor:
    """-A log p: no importance ratio, no clip (R3L, OPMD with tau 0)."""
    return -advantages_B[:, None] * logprobs_B_T


def clipped_surrogate(
    logprobs_B_T: torch.Tensor,
    old_logprobs_B_T: torch.Tensor,
    advantages_B: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO: max(-A rho, -A clip(rho, 1-lo, 1+hi)), rho = exp(logp - old). Returns (loss, clipped?)."""
    ratio_B_T = torch.exp(logprobs_B_T - old_logprobs_B_T)
    a_B_1 = advantages_B[:, None]
    plain_B_T = -a_B_1 * ratio_B_T
    clipped_B_T = -a_B_1 * ratio_B_T.clamp(1 - clip_low, 1 + clip_high)
    return torch.maximum(plain_B_T, clipped_B_T), (clipped_B_T > plain_B_T).float()


def kl(logprobs_B_T: torch.Tensor, ref_logprobs_B_T: torch.Tensor, estimator: KLEstimator) -> torch.Tensor:
    """Per-token KL to the reference; d = logp - ref. k1: d, k2: d^2/2, k3: exp(-d) - 1 + d (Schulman)."""
    d = logprobs_B_T - ref_logprobs_B_T
    if estimator == "k1":
        return d
    if estimator == "k2":
        return 0.5 * d.square()
    if estimator == "k3":
        return torch.exp(-d) - 1 + d
    return torch.zeros_like(d)
