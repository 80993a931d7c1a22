"""Critique-GRPO: failures are refined under a critique; the best refinement joins, off-policy (arXiv 2506.03106).

N rollouts, at most N refinements, and always N samples: the refinement takes the place of the rollout it refines.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from r3l.baselines.critique import CritiqueSettings, try_twice
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core import losses
from r3l.core.method import Batch, Tokens
from r3l.core.option import option
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group, TrajectoryKind

if TYPE_CHECKING:
    import torch


class CritiqueGRPOSettings(GRPOSettings, CritiqueSettings):
    """Every option of Critique-GRPO."""

    refined_group: Literal["joint", "separate"] = option(
        "joint",
        "baseline of the refinement (A-16)",
        "Critique-GRPO paper: one group (released code: the refinement stands alone)",
    )
    shaping_gamma: float = option(0.1, "gamma of p / (p + gamma) (audit 0.6)", "released code: 0.1", gt=0)


class CritiqueGRPO(GRPO):
    """The method (see r3l.core.method.Method)."""

    Settings = CritiqueGRPOSettings
    settings: CritiqueGRPOSettings

    @property
    def max_rollouts(self) -> int:
        """N rollouts and a refinement of each."""
        return 2 * self.settings.group_size

    @property
    def max_samples(self) -> int:
        """N: a refinement takes the place of its rollout."""
        return self.settings.group_size

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """The rollouts, one of them replaced by the best refinement if any improved."""
        members = range(self.settings.group_size)
        s = self.settings
        tries = await ctx.gather(partial(try_twice, ctx, task, s), members)
        improved = [t.second.distilled for t in tries if t.second and t.second.distilled.reward > t.first.reward]
        if not improved:
            return [Group(task, [t.first for t in tries])]
        best = max(improved, key=lambda t: t.reward)  # the first of the best
        others = [t.first for t in tries if t.first.member != best.member]
        refined = replace(best, kind=TrajectoryKind.REFINED)
        if s.refined_group == "joint":
            return [Group(task, [*others, refined])]
        return [Group(task, others), Group(task, [refined])]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """PPO's clipped surrogate on rollouts, -A p / (p + gamma) on refinements."""
        on_B_T, parts = super().surrogate(batch, logprobs_B_T)
        off_B_T = losses.shaped_probability(logprobs_B_T, batch.advantages_B_T, self.settings.shaping_gamma)
        refined_B_1 = batch.off_policy_B[:, None]
        return off_B_T.where(refined_B_1, on_B_T), {k: v * ~refined_B_1 for k, v in parts.items()}
