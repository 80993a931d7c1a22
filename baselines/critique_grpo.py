"""Critique-GRPO: failures are refined under a critique; the best joins, off-policy (arXiv 2506.03106).

N rollouts, at most N refinements, and always N samples: a refinement replaces the rollout that it refines.
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
    """Settings of Critique-GRPO. Codes such as (A-8) or (audit 0.6) are entries of docs/audit.md.

    A refinement is a second attempt at a failed rollout's task, under a critique of it.
    """

    refined_group: Literal["joint", "separate"] = option(
        "joint",
        "baseline of the refinement (A-16)",
        "Critique-GRPO paper: one group (released code: the refinement is a group of one)",
    )
    shaping_gamma: float = option(0.1, "gamma of p / (p + gamma) (audit 0.6)", "released code: 0.1", gt=0)


class CritiqueGRPO(GRPO):
    """GRPO in which the best refinement, a second attempt under a critique, replaces its failed rollout.

    Only one refinement of a task trains, with the loss -A p / (p + gamma); rollouts have GRPO's loss.
    """

    Settings = CritiqueGRPOSettings
    settings: CritiqueGRPOSettings

    @property
    def max_rollouts(self) -> int:
        """2 N rollouts of a task: N first attempts, and at most one refinement of each."""
        return 2 * self.settings.group_size

    @property
    def max_samples(self) -> int:
        """N trajectories of a task: a refinement takes the place of the rollout that it refines."""
        return self.settings.group_size

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts, refine the failed ones, and let the best refinement replace its rollout.

        A refinement is a second attempt under a critique; it replaces its rollout only if its reward is
        higher. Returns one group of N trajectories. With ``refined_group: separate`` a refinement that
        replaces a rollout is a second group.
        """
        s = self.settings
        tries = await ctx.gather(partial(try_twice, ctx, task, s), range(s.group_size))

        improved = []
        for one in tries:
            if one.second and one.second.distilled.reward > one.first.reward:
                improved.append(one.second.distilled)
        if not improved:
            return [Group(task, [one.first for one in tries])]

        best = max(improved, key=lambda t: t.reward)  # of equals the first
        others = [one.first for one in tries if one.first.member != best.member]
        refined = replace(best, kind=TrajectoryKind.REFINED)
        if s.refined_group == "joint":
            return [Group(task, [*others, refined])]
        return [Group(task, others), Group(task, [refined])]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """(loss, metrics) per token, shape (B, T) each.

        The loss is PPO's clipped surrogate on rollouts and -A p / (p + gamma) on refinements, with p the
        token's probability under the policy in training. The metric ``clip_fraction`` is 0 on refinements.
        """
        on_B_T, parts = super().surrogate(batch, logprobs_B_T)
        off_B_T = losses.shaped_probability(logprobs_B_T, batch.advantages_B_T, self.settings.shaping_gamma)
        refined_B_1 = batch.off_policy_B[:, None]
        metrics = {name: values_B_T * ~refined_B_1 for name, values_B_T in parts.items()}
        return off_B_T.where(refined_B_1, on_B_T), metrics
