"""GRPO: N rollouts a task, rewards standardised within the group, clipped importance ratio, optional KL."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import Field

from r3l.core import losses
from r3l.core.advantages import standardised
from r3l.core.method import Batch, LossAggregation, MethodSettings, TrainedMethod
from r3l.core.rollout import Arena, Episode, play
from r3l.core.task import Task
from r3l.core.trajectory import Group


class Settings(MethodSettings):
    """Every knob of GRPO; sources stand in configs/methods/grpo.yaml."""

    group_size: int = Field(8, ge=1, description="N: rollouts a task")
    clip_low: float = Field(0.2, ge=0, lt=1)
    clip_high: float = Field(0.2, ge=0)
    loss_agg: LossAggregation = "token_mean"


class GRPO(TrainedMethod[Settings]):
    """The method (see r3l.core.method.Method)."""

    Settings = Settings

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """N plain rollouts in one group."""
        members = range(self.settings.group_size)
        episodes: list[Episode] = await arena.gather(*[play(arena, task, m) for m in members])
        for episode in episodes:
            await episode.close()
        return [Group(task, [episode.trajectory for episode in episodes])]

    def advantages(self, group: Group) -> np.ndarray:
        """(r - mean) / (std + 1e-6)."""
        return standardised(group.rewards())

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """PPO's clipped surrogate against the log-probs of sampling, plus kl_coef times KL."""
        surrogate_B_T, clipped_B_T = losses.clipped_surrogate(
            logprobs_B_T,
            batch.old_logprobs_B_T,
            batch.advantages_B,
            self.settings.clip_low,
            self.settings.clip_high,
        )
        policy = (batch.weight_B_T * surrogate_B_T).sum()
        metrics = {
            "loss/policy": policy.item(),
            "clip_fraction": (batch.weight_B_T * clipped_B_T).sum().item(),
        }
        if batch.ref_logprobs_B_T is None:
            return policy, metrics
        kl_B_T = losses.kl(logprobs_B_T, batch.ref_logprobs_B_T, self.settings.kl)
        kl = (batch.weight_B_T * kl_B_T).sum()
        return policy + self.settings.kl_coef * kl, {**metrics, "loss/kl": kl.item()}
