"""Critique-GRPO: failures are refined under a critique; the best refinement joins, off-policy (arXiv 2506.03106).

N rollouts, at most N refinements, and always N samples: the refinement takes the place of the rollout it refines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from baselines.grpo import ClippedMethod
from baselines.grpo import Settings as GRPOSettings
from r3l.algorithm import count_retry
from r3l.core import losses
from r3l.core.method import Batch, Tokens
from r3l.core.rollout import Arena, play
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.critique import Critic, criticise
from r3l.retry import RetrySettings, retry


class Settings(GRPOSettings, RetrySettings):
    """Every switch of Critique-GRPO; sources stand in configs/methods/critique_grpo.yaml."""

    critic: Critic = Field("model", description="who writes the critique (audit 1.10)")
    refined_group: Literal["joint", "separate"] = Field("joint", description="baseline of the refinement (A-16)")
    shaping_gamma: float = Field(0.1, gt=0, description="gamma of p / (p + gamma) (audit 0.6)")


class CritiqueGRPO(ClippedMethod[Settings]):
    """The method (see r3l.core.method.Method)."""

    Settings = Settings

    @property
    def max_rollouts(self) -> int:
        """N rollouts and a refinement of each."""
        return 2 * self.settings.group_size

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """The rollouts, one of them replaced by the best refinement if any improved."""
        members = range(self.settings.group_size)
        pairs = await arena.gather(*[self._attempt(task, arena, m) for m in members])
        initial = [base for base, _ in pairs]
        better = [refined for base, refined in pairs if refined is not None and refined.reward > base.reward]
        if not better:
            return [Group(task, initial)]
        best = max(better, key=lambda t: t.reward)  # the first of the best
        others = [base for base in initial if base.member != best.member]
        if self.settings.refined_group == "joint":
            return [Group(task, [*others, best])]
        return [Group(task, others), Group(task, [best])]

    async def _attempt(self, task: Task, arena: Arena, member: int) -> tuple[Trajectory, Trajectory | None]:
        episode = await play(arena, task, member)
        base, refined = episode.trajectory, None
        critique = None if base.success else await criticise(arena, episode, self.settings.critic)
        if critique is not None:
            done = await retry(arena, episode, 0, critique.guidance, self.settings)
            count_retry(arena, base, done.guided, 0)
            refined = replace(done.distilled, kind="refined")
        await episode.close()
        return base, refined

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """PPO's clipped surrogate on rollouts, -A p / (p + gamma) on refinements."""
        on_B_T, parts = super().surrogate(batch, logprobs_B_T)
        off_B_T = losses.shaped_probability(logprobs_B_T, batch.advantages_B, self.settings.shaping_gamma)
        refined_B_1 = batch.off_policy_B[:, None]
        return torch.where(refined_B_1, off_B_T, on_B_T), {k: v * ~refined_B_1 for k, v in parts.items()}
