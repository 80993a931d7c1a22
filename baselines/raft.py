"""RAFT: rejection-sampling fine-tuning. N rollouts a task; imitate those that succeed (arXiv 2304.06767)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory


class RAFTSettings(MethodSettings):
    """Every option of RAFT."""

    keep_reward: float = option(
        1.0, "rollouts with at least this reward are imitated (audit 1.6)", "released code: 1 (ScienceWorld: > 0)"
    )
    rejected: Literal["drop", "released_dilute"] = option(
        "drop", "what becomes of the others (B-40)", "our choice (released code keeps empty placeholders in the batch)"
    )
    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged (A-8)",
        "released code: token-mean (audit 0.6), here over the whole step",
    )


class RAFT(TrainedMethod[RAFTSettings]):
    """The method (see r3l.core.method.Method)."""

    Settings = RAFTSettings

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """N plain rollouts, for the metrics, and the kept ones as what is imitated."""
        trajectories = await play_group(ctx, task, self.settings.group_size)
        kept = [t for t in trajectories if t.reward >= self.settings.keep_reward]
        examples = kept
        if self.settings.rejected == "released_dilute":
            examples = kept + [_silent(t) for t in trajectories if t.reward < self.settings.keep_reward]
        ctx.counters["dropped/rejected"] += len(trajectories) - len(examples)
        return [Group(task, trajectories, "none"), *([Group(task, examples, "sft")] if examples else [])]

    def advantages(self, group: Group) -> np.ndarray:
        """Nothing is weighted by advantages."""
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """There are no policy rows."""
        return torch.zeros_like(logprobs_B_T), {}


def _silent(trajectory: Trajectory) -> Trajectory:
    """Takes a place in the batch and trains nothing, as the released code's placeholders do."""
    return replace(trajectory, pivot=len(trajectory.turns))
