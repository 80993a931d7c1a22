"""RLOO: each rollout against the mean of the others, plain policy gradient: no ratio, no clip (arXiv 2402.14740)."""

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
    """Every option of RLOO."""

    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged",
        "our choice: all tokens weigh the same, as in the paper's log-prob of a whole response (a sum over its tokens)",
    )


class RLOO(TrainedMethod[RLOOSettings]):
    """The method (see r3l.core.method.Method); N plain rollouts in one group."""

    Settings = RLOOSettings

    def advantages(self, group: Group) -> np.ndarray:
        """r_i - mean of r_j over j != i, which is N / (N - 1) (r_i - mean r); a group of one keeps its return."""
        size = len(group.trajectories)
        return centred(group.returns_G()) * (size / max(size - 1, 1))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """-A log p."""
        return losses.policy_gradient(logprobs_B_T, batch.advantages_B_T), {}
