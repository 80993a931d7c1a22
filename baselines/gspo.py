"""GSPO: GRPO with one ratio per sequence, the geometric mean of its token ratios (arXiv 2507.18071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core import losses
from r3l.core.method import Batch, LossAggregation
from r3l.core.option import option

if TYPE_CHECKING:
    import torch


class GSPOSettings(GRPOSettings):
    """Settings of GSPO: the settings of GRPO with other defaults.

    Codes in the descriptions, such as (A-8) or (audit 0.6), are entries of docs/audit.md.
    """

    clip_low: float = option(
        3e-4,
        "the sequence ratio is clipped at 1 - clip_low (audit 0.6)",
        "GSPO paper and released code: 3e-4",
        ge=0,
    )
    clip_high: float = option(
        4e-4,
        "the sequence ratio is clipped at 1 + clip_high (audit 0.6)",
        "GSPO paper and released code: 4e-4",
        ge=0,
    )
    loss_agg: LossAggregation = option(
        "traj_mean", "mean of a sequence, then of sequences (A-8)", "GSPO paper and released code"
    )


class GSPO(GRPO):
    """GRPO with one importance ratio per sequence: exp(mean over its tokens of log p now - log p then)."""

    Settings = GSPOSettings

    def ratio(self, batch: Batch, logprobs_B_T: torch.Tensor) -> torch.Tensor:
        """The sequence ratio on all tokens of its row, shape (B, T).

        Each token keeps its own gradient (GSPO-token).
        """
        return losses.sequence_ratio(logprobs_B_T, batch.old_logprobs_B_T, batch.mask_B_T)
