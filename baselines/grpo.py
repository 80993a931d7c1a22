"""GRPO: N rollouts a task, rewards standardised within the group, clipped importance ratio, optional KL."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from pydantic import Field

from r3l.core import losses
from r3l.core.advantages import standardised
from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.rollout import Arena, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group


class Settings(MethodSettings):
    """Every switch of GRPO; sources stand in configs/methods/grpo.yaml."""

    group_size: int = Field(8, ge=1, description="N: rollouts a task (A-14, A-17)")
    clip_low: float = Field(0.2, ge=0, description="the ratio is clipped at 1 - clip_low (audit 0.6)")
    clip_high: float = Field(0.2, ge=0, description="the ratio is clipped at 1 + clip_high (audit 0.6)")
    loss_agg: LossAggregation = Field("token_mean", description="how token losses are averaged (A-8)")


S = TypeVar("S", bound=Settings)


class ClippedMethod(TrainedMethod[S]):
    """Standardised returns and PPO's clipped surrogate: what GRPO and its relatives share."""

    @property
    def max_rollouts(self) -> int:
        """N."""
        return self.settings.group_size

    def advantages(self, group: Group) -> np.ndarray:
        """(r - mean) / (std + 1e-6)."""
        return standardised(group.returns())

    def ratio(self, batch: Batch, logprobs_B_T: torch.Tensor) -> torch.Tensor:
        """The importance ratio, shape (B, T): token by token."""
        return losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """max(-A rho, -A clip(rho)) against the log-probs of sampling."""
        s, ratio_B_T = self.settings, self.ratio(batch, logprobs_B_T)
        loss_B_T, clipped_B_T = losses.clipped_surrogate(ratio_B_T, batch.advantages_B, s.clip_low, s.clip_high)
        return loss_B_T, {"clip_fraction": clipped_B_T}


class GRPO(ClippedMethod[Settings]):
    """The method (see r3l.core.method.Method)."""

    Settings = Settings

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """N plain rollouts in one group."""
        return [Group(task, await play_group(arena, task, self.settings.group_size))]
