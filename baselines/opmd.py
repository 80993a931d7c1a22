"""OPMD: N rollouts per task, centred rewards, policy gradient without ratio or clipping (Trinity-RFT)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from r3l.core import losses
from r3l.core.advantages import BaselineRule, baseline_of, centred
from r3l.core.method import Batch, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.trajectory import Group

if TYPE_CHECKING:
    import torch


class OPMDSettings(MethodSettings):
    """Settings of OPMD. Codes such as (A-8) or (audit 0.6) are entries of docs/audit.md.

    OPMD is R3L without reflection and amplification. ``baseline``: ``mean`` or ``logavgexp``
    (:meth:`OPMD.advantages`).
    """

    baseline: BaselineRule = option("mean", "baseline of the returns (audit 0.7)", "released code: mean")
    baseline_tau: float = option(
        1.0,
        "temperature of the logavgexp baseline (audit 0.7)",
        "Trinity-RFT: 1",
        gt=0,
    )
    opmd_tau: float = option(
        0.0,
        "divides the policy loss by 1 + tau (A-6)",
        "as R3L: no such factor (released code: tau = 1)",
        ge=0,
    )


class OPMD(TrainedMethod[OPMDSettings]):
    """Online policy mirror descent: loss -A log p / (1 + tau), A = r minus the group's baseline.

    By default the baseline is the mean return (``baseline``), and tau is 0 (``opmd_tau``). N rollouts in one
    group, without importance ratio or clipping.
    """

    Settings = OPMDSettings

    def advantages(self, group: Group) -> np.ndarray:
        """r minus the group's baseline, shape (G,).

        The baseline is mean r, or with ``baseline: logavgexp`` tau log(mean(exp(r / tau))), where tau is
        ``baseline_tau``; 0 in a group of one.
        """
        returns_G = group.returns_G()
        return centred(returns_G, baseline_of(returns_G, self.settings.baseline, self.settings.baseline_tau))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Loss per token, shape (B, T): -A log p / (1 + tau), with the setting ``opmd_tau`` as tau."""
        return losses.policy_gradient(logprobs_B_T, batch.advantages_B_T, self.settings.opmd_tau), {}
