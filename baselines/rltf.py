"""RLTF: learning from text feedback (arXiv 2602.02482). A failed attempt is criticised and tried again.

Both attempts learn by policy gradient. The setting ``learn`` says what else is trained:

- ``sd``: the second attempt under the first prompt, by its advantage (self-distillation);
- ``sft``: the same by imitation, if it succeeded;
- ``fm``: writing the critique (feedback modelling);
- ``none``: nothing; the baseline, GRPO with two attempts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from r3l.baselines.critique import CritiqueSettings, SecondTry, try_twice

from r3l.core import losses
from r3l.core.advantages import centred, mean_of
from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import REQUIRED, option
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective

if TYPE_CHECKING:
    import torch

RELEASED = "RLTF released code"


class RLTFSettings(MethodSettings, CritiqueSettings):
    """Settings of RLTF. Codes such as (A-8) or (audit 0.6) are entries of docs/audit.md."""

    learn: Literal["none", "sd", "fm", "sft"] = option(
        REQUIRED,
        "additional training on the second attempt: none, self-distillation, feedback modelling or SFT",
    )
    gamma: float = option(
        0.1,
        "share of the second reward in the first return (RLTF audit 2)",
        RELEASED,
        ge=0,
    )
    sd_coef: float = option(0.1, "weight of self-distillation (RLTF audit 2)", f"{RELEASED}, puzzles", ge=0)
    sd_coef_start: float | None = option(
        None,
        "its weight in the first step, linear to sd_coef in the last step; none: always sd_coef",
        f"{RELEASED}, puzzles: constant (mathematics: from 0, RLTF audit 2)",
        ge=0,
    )
    first_turn_baseline: bool = option(
        True,
        "baseline of sd: mean first reward (RLTF defect 1)",
        "RLTF paper (its released code never applies it)",
    )
    min_logprob: float | None = option(
        -5.0,
        "sd drops tokens less likely without critique (RLTF audit 2)",
        RELEASED,
    )
    ratio: Literal["is", "ppo", "cispo"] = option(
        "is",
        "importance ratio: plain, clipped, or as a weight (RLTF audit 2)",
        f"{RELEASED}: importance_sampling",
    )
    clip_low: float = option(
        0.2,
        "lower clip epsilon of ppo and cispo (RLTF audit 2)",
        f"{RELEASED}: 0.8 to 1.2",
        ge=0,
    )
    clip_high: float = option(
        0.2,
        "upper clip epsilon of ppo and cispo (RLTF audit 2)",
        f"{RELEASED}: 0.8 to 1.2",
        ge=0,
    )
    sft_coef: float = option(
        0.1,
        "weight of the imitation loss (RLTF audit 2)",
        f"{RELEASED}; there of a sum over tokens, here of a mean (docs/methods.md, detail 13)",
        ge=0,
    )
    rescore_distilled: bool = option(
        True,
        "old log-probs of a distilled retry are computed again, without the guidance",
        "RLTF: log-probs under the first prompt, so that the ratio is 1 (RLTF audit 2)",
    )
    loss_agg: LossAggregation = option(
        "token_mean",
        "how token losses are averaged (RLTF audit 2)",
        "our choice: a mean, so that one learning rate fits all methods (RLTF: sum)",
    )


class RLTF(TrainedMethod[RLTFSettings]):
    """Policy gradient on a first attempt and on a second one under a critique of the first.

    First and second attempts are two groups, in each A = r minus the mean return; the return of a first
    attempt is r1 + gamma r2, of a second one r2. The setting ``learn`` adds a loss: self-distillation or SFT
    of the second attempt without the critique in its prompt, or SFT of the critique.
    """

    Settings = RLTFSettings

    @property
    def max_rollouts(self) -> int:
        """2 N rollouts of a task: N first attempts, and at most one second attempt after each."""
        return 2 * self.settings.group_size

    @property
    def max_samples(self) -> int:
        """2 N trajectories of a task, first and second attempts; 3 N if ``learn`` adds a third group."""
        return (2 if self.settings.learn == "none" else 3) * self.settings.group_size

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N = ``group_size`` rollouts, a second attempt after each that fails; returns :meth:`groups`.

        No second attempt is kept if the critique is invalid, or if the environment failed in either attempt.
        """
        members = range(self.settings.group_size)
        tries = await ctx.gather(partial(try_twice, ctx, task, self.settings), members)
        return self.groups(task, tries, ctx.progress)

    def sd_weight(self, progress: float) -> float:
        """Weight of self-distillation at ``progress``, the share of training done (0 to 1).

        Linear from ``sd_coef_start`` to ``sd_coef``, as in RLTF's released code; constant without
        ``sd_coef_start``.
        """
        start = self.settings.sd_coef_start
        end = self.settings.sd_coef
        return end if start is None else start + (end - start) * progress

    def groups(self, task: Task, tries: list[SecondTry], progress: float = 0.0) -> list[Group]:
        """Groups of first attempts, of second attempts, and of what ``learn`` adds, without empty ones.

        The return of a first attempt is r1 + gamma * r2, with the rewards of both attempts (r2 is 0 without a
        second). ``progress``: the share of training done, for the weight of self-distillation. First attempts
        in which the environment failed are left out.
        """
        s = self.settings
        tries = [t for t in tries if not t.first.failed]
        first = [t.first for t in tries]
        second = [t.second for t in tries if t.second is not None]
        returns = [t.first.reward + (s.gamma * t.second.guided.reward if t.second else 0.0) for t in tries]
        groups = [Group(task, first, returns=returns), Group(task, [t.guided for t in second])]
        distilled = [t.distilled for t in second]
        if s.learn == "sd":
            baseline = mean_of([t.reward for t in first]) if s.first_turn_baseline else None
            groups.append(Group(task, distilled, baseline=baseline, weight=self.sd_weight(progress)))
        elif s.learn == "sft":
            groups.append(Group(task, [t for t in distilled if t.success], Objective.SFT))
        elif s.learn == "fm":
            groups.append(Group(task, [t.critique.trajectory for t in tries if t.critique], Objective.SFT))
        return [group for group in groups if group.trajectories]

    def advantages(self, group: Group) -> np.ndarray:
        """(r - baseline) * weight, shape (G,), with the group's ``weight`` and ``baseline``.

        A group without a baseline uses the mean of its returns. A second attempt that is alone in its group
        equals the mean, so its advantage is 0 (RLTF audit 2).
        """
        returns_G = group.returns_G()
        baseline = mean_of(returns_G) if group.baseline is None else group.baseline
        return centred(returns_G, baseline) * group.weight

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Loss per token by the setting ``ratio``: -A rho, PPO's clipped surrogate, or CISPO; shape (B, T).

        Self-distillation drops tokens that are too unlikely without the critique (``min_logprob``). The
        metric ``clip_fraction`` is 0 for ``is``.
        """
        s = self.settings
        a_B_T = batch.advantages_B_T
        ratio_B_T = losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)
        loss_B_T, clipped_B_T = losses.clipped_surrogate(ratio_B_T, a_B_T, s.clip_low, s.clip_high)
        if s.ratio == "is":
            loss_B_T = -a_B_T * ratio_B_T
            clipped_B_T = ratio_B_T.new_zeros(ratio_B_T.shape)
        elif s.ratio == "cispo":
            loss_B_T = losses.clipped_weight(ratio_B_T, logprobs_B_T, a_B_T, s.clip_low, s.clip_high)
        old_B_T = batch.old_logprobs_B_T
        loss_B_T = losses.without_unlikely(loss_B_T, old_B_T, batch.off_policy_B, s.min_logprob)
        return loss_B_T, {"clip_fraction": clipped_B_T}
