"""RAFT: rejection-sampling fine-tuning; of N rollouts imitate those that succeed (arXiv 2304.06767)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from r3l.core.method import ImitationMethod, LossAggregation, MethodSettings
from r3l.core.option import option
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective


class RAFTSettings(MethodSettings):
    """Settings of RAFT. Codes such as (A-8) or (audit 0.6) are entries of docs/audit.md.

    ``loss_agg``: ``token_mean``, ``traj_mean``, ``token_sum`` or ``microbatch_released``.
    """

    keep_reward: float = option(
        1.0,
        "rollouts with at least this reward are imitated (audit 1.6)",
        "released code: 1 (ScienceWorld: > 0)",
    )
    rejected: Literal["drop", "released_dilute"] = option(
        "drop",
        "treatment of the other rollouts (B-40)",
        "our choice (released code keeps empty placeholders in the batch)",
    )
    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged (A-8)",
        "released code: token-mean (audit 0.6), here over the complete step",
    )


class RAFT(ImitationMethod[RAFTSettings]):
    """Imitation of rollouts with a reward of at least ``keep_reward``: loss -log p, no policy gradient."""

    Settings = RAFTSettings

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts; imitate those with at least ``keep_reward``.

        Returns two groups: all rollouts in which the environment did not fail, which have no loss and only
        count in the metrics, and those to imitate (SFT loss), if any. Under ``rejected: released_dilute`` the
        others are in the second group too, with nothing to train; else ``dropped/rejected`` counts them.
        """
        trajectories = await play_group(ctx, task, self.settings.group_size)
        trajectories = [t for t in trajectories if not t.failed]
        examples = [t for t in trajectories if t.reward >= self.settings.keep_reward]
        if self.settings.rejected == "released_dilute":
            # The released code keeps rejected rollouts in the batch, without a trainable turn.
            rejected = [t for t in trajectories if t.reward < self.settings.keep_reward]
            examples += [replace(t, trainable=range(0)) for t in rejected]
        ctx.counters["dropped/rejected"] += len(trajectories) - len(examples)
        imitated = [Group(task, examples, Objective.SFT)] if examples else []
        return [Group(task, trajectories, Objective.NONE), *imitated]
