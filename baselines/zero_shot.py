"""Zero-shot: the starting model as it is. It explores nothing and is never trained (``steps: 0``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from r3l.core.method import Batch, LossAggregation
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group


class NoSettings(BaseModel):
    """There is nothing to set."""

    model_config = ConfigDict(extra="forbid")


class ZeroShot:
    """The row every other row is measured against."""

    Settings = NoSettings
    kl_coef = 0.0
    loss_agg: LossAggregation = "traj_mean"
    trains = False
    max_rounds = 1
    max_rollouts = 0
    max_samples = 0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.Settings(**settings)

    def describe(self) -> Mapping[str, Any]:
        """There is nothing to set."""
        return {}

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """No training, no samples."""
        return []

    def keep(self, groups: Sequence[Group]) -> bool:
        """There are none."""
        return True

    def advantages(self, group: Group) -> np.ndarray:
        """Zero for everybody."""
        return np.zeros(len(group.trajectories))

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Zero."""
        return logprobs_B_T.sum() * 0.0, {}
