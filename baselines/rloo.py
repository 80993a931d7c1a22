"""RLOO: policy gradient with the mean of the other rollouts as baseline, no ratio (arXiv 2402.14740)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from r3l.core import losses
from r3l.core.advantages import centred
from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.trajectory import Group

if TYPE_CHECKING:
    import torch


class RLOOSettings(MethodSettings):
    """Settings of RLOO.

    ``loss_agg``: ``token_mean``, ``traj_mean``, ``token_sum`` or ``microbatch_released``.
    """

    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged",
        "our choice: all tokens weigh the same, as in the paper, which sums over the tokens of a response",
    )


class RLOO(TrainedMethod[RLOOSettings]):
    """REINFORCE leave-one-out: loss -A log p, A = r minus the mean return of the group's other rollouts.

    N rollouts in one group.
    """

    Settings = RLOOSettings

    def advantages(self, group: Group) -> np.ndarray:
        """r_i minus the mean of r_j over j != i, shape (G,). A group of one keeps its return.

        Computed as N / (N - 1) * (r_i - mean r), which is the same.
        """
        size = len(group.trajectories)
        return centred(group.returns_G()) * (size / max(size - 1, 1))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Loss per token, -A log p, shape (B, T), and no metrics."""
        return losses.policy_gradient(logprobs_B_T, batch.advantages_B_T), {}
