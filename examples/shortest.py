"""Best of N: imitate the shortest success of a group."""

import numpy as np
import torch
from pydantic import Field

from r3l.core.method import MethodSettings, TrainedMethod
from r3l.core.rollout import play_group
from r3l.core.trajectory import Group


class Settings(MethodSettings):
    """Of configs: ``settings`` in shortest.yaml."""

    group_size: int = Field(4, ge=1)


class Shortest(TrainedMethod[Settings]):
    """N rollouts; the shortest success is imitated."""

    Settings = Settings
    max_rollouts = 4

    async def explore(self, task, ctx):
        tried = await play_group(ctx, task, self.settings.group_size)
        best = sorted((t for t in tried if t.success), key=lambda t: len(t.turns))[:1]
        return [Group(task, tried, "none")] + [Group(task, [t], "sft") for t in best]

    def advantages(self, group):
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch, logprobs_B_T):
        return torch.zeros_like(logprobs_B_T), {}
