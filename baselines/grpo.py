"""GRPO: N rollouts per task, rewards standardised within the group, clipped importance ratio, optional KL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3l.core import losses
from r3l.core.advantages import Advantages, standardised
from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.trajectory import Group

if TYPE_CHECKING:
    import torch


class GRPOSettings(MethodSettings):
    """Settings of GRPO: how the importance ratio is clipped, and how token losses are averaged.

    Codes such as (A-8) or (audit 0.6) refer to docs/audit.md. ``loss_agg``: ``token_mean``, ``traj_mean``,
    ``token_sum`` or ``microbatch_released`` (:func:`r3l.core.batching.rows_of`).
    """

    clip_low: float = option(
        0.2,
        "the ratio is clipped at 1 - clip_low (audit 0.6)",
        "released code: 0.2",
        ge=0,
    )
    clip_high: float = option(
        0.2,
        "the ratio is clipped at 1 + clip_high (audit 0.6)",
        "released code: 0.2",
        ge=0,
    )
    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged (A-8)",
        "released code: token-mean (audit 0.6), here over the complete step",
    )


class GRPO(TrainedMethod[GRPOSettings]):
    """Group-relative policy optimisation, the base class of several baselines; N rollouts in one group.

    A = (r - mean) / (std + 1e-6) in the group, loss max(-A rho, -A clip(rho, 1 - low, 1 + high)); rho is a
    token's probability now over that when it was sampled.
    """

    Settings: type[GRPOSettings] = GRPOSettings

    def advantages(self, group: Group) -> Advantages:
        """(r - mean) / (std + 1e-6) over the returns r of the group, std with G - 1; shape (G,).

        A group of one keeps its return.
        """
        return standardised(group.returns_G())

    def ratio(self, batch: Batch, logprobs_B_T: torch.Tensor) -> torch.Tensor:
        """The importance ratio of each token, p now / p when it was sampled; shape (B, T)."""
        return losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """(loss, metrics) per token, shape (B, T) each: the loss is max(-A rho, -A clip(rho)).

        rho is from :meth:`ratio`. The only metric, ``clip_fraction``, is 1.0 on tokens where the clip is
        active, else 0.
        """
        s = self.settings
        ratio_B_T = self.ratio(batch, logprobs_B_T)
        a_B_T = batch.advantages_B_T
        loss_B_T, clipped_B_T = losses.clipped_surrogate(ratio_B_T, a_B_T, s.clip_low, s.clip_high)
        return loss_B_T, {"clip_fraction": clipped_B_T}
