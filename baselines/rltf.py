"""RLTF: learning from text feedback (arXiv 2602.02482). A failed attempt is criticised and tried once more.

Both attempts learn by policy gradient; the second also teaches the first what it would have written without the
critique: ``sd`` by advantage (self-distillation), ``sft`` by imitation of what was right; ``fm`` learns to write the
critique (feedback modelling). An attempt is one trajectory, of one turn or many.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from r3l.algorithm import count_retry
from r3l.core import losses
from r3l.core.advantages import centred
from r3l.core.method import Batch, LossAggregation, MethodSettings, Tokens, TrainedMethod
from r3l.core.rollout import Arena, play
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.critique import Critic, Critique, criticise
from r3l.retry import Retry, RetrySettings, retry


class Settings(MethodSettings, RetrySettings):
    """Every switch of RLTF; sources stand in configs/methods/rltf_*.yaml."""

    group_size: int = Field(8, ge=1, description="first attempts; each failed one gets a second")
    learn: Literal["sd", "fm", "sft"] = Field(description="what the second attempt teaches beside itself")
    critic: Critic = Field("environment_or_model", description="who writes the critique (RLTF audit 4)")
    gamma: float = Field(0.1, ge=0, description="share of the second reward in the first return (RLTF audit 2)")
    sd_coef: float = Field(0.1, ge=0, description="weight of self-distillation (RLTF audit 2)")
    first_turn_baseline: bool = Field(True, description="baseline of sd: mean first reward (RLTF defect 1)")
    min_logprob: float | None = Field(-5.0, description="sd drops tokens less likely without critique (RLTF audit 2)")
    ratio: Literal["is", "ppo", "cispo"] = Field("is", description="importance ratio: plain, clipped, or as a weight")
    clip_low: float = Field(0.2, ge=0, description="of ppo and cispo (RLTF audit 2)")
    clip_high: float = Field(0.2, ge=0, description="of ppo and cispo (RLTF audit 2)")
    loss_agg: LossAggregation = Field("token_mean", description="how token losses are averaged (RLTF audit 2)")


Pair = tuple[Trajectory, Critique | None, Retry | None]


class RLTF(TrainedMethod[Settings]):
    """The method (see r3l.core.method.Method)."""

    Settings = Settings

    @property
    def max_rollouts(self) -> int:
        """Two attempts each."""
        return 2 * self.settings.group_size

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """Groups: first attempts, second attempts, and what ``learn`` adds."""
        members = range(self.settings.group_size)
        pairs: list[Pair] = await arena.gather(*[self._attempt(task, arena, m) for m in members])
        return self.groups(task, pairs)

    def groups(self, task: Task, pairs: list[Pair]) -> list[Group]:
        """R1 = r1 + gamma r2 for first attempts; each turn is centred over those that reached it."""
        s = self.settings
        first = [base for base, _, _ in pairs]
        returns = [base.reward + (s.gamma * again.guided.reward if again else 0.0) for base, _, again in pairs]
        second = [again for _, _, again in pairs if again is not None]
        groups = [Group(task, first, shaped=returns)]
        if not second:
            return groups
        groups.append(Group(task, [again.guided for again in second]))
        distilled = [again.distilled for again in second]
        if s.learn == "sd":
            baseline = float(np.mean([base.reward for base in first])) if s.first_turn_baseline else None
            groups.append(Group(task, distilled, baseline=baseline))
        elif s.learn == "sft":
            groups.append(Group(task, [t for t in distilled if t.success], "sft"))
        else:
            groups.append(Group(task, [critique.trajectory for _, critique, _ in pairs if critique], "sft"))
        return [group for group in groups if group.trajectories]

    async def _attempt(self, task: Task, arena: Arena, member: int) -> Pair:
        episode = await play(arena, task, member)
        base, done = episode.trajectory, None
        critique = None if base.success else await criticise(arena, episode, self.settings.critic)
        if critique is not None:
            done = await retry(arena, episode, 0, critique.guidance, self.settings)
            count_retry(arena, base, done.guided, 0)
        await episode.close()
        return base, critique, done

    def advantages(self, group: Group) -> np.ndarray:
        """r - b without standard deviation; self-distillation is weighted by ``sd_coef``."""
        distilled = group.trajectories[0].kind == "distilled"
        return centred(group.returns(), group.baseline) * (self.settings.sd_coef if distilled else 1.0)

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """-A rho, clipped or not; self-distillation leaves out tokens that are too unlikely without the critique."""
        s, a_B = self.settings, batch.advantages_B
        ratio_B_T = losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)
        loss_B_T, clipped_B_T = losses.clipped_surrogate(ratio_B_T, a_B, s.clip_low, s.clip_high)
        if s.ratio == "is":
            loss_B_T, clipped_B_T = -a_B[:, None] * ratio_B_T, torch.zeros_like(ratio_B_T)
        elif s.ratio == "cispo":
            loss_B_T = losses.clipped_weight(ratio_B_T, logprobs_B_T, a_B, s.clip_low, s.clip_high)
        if s.min_logprob is not None:
            unlikely_B_T = batch.off_policy_B[:, None] & (batch.old_logprobs_B_T < s.min_logprob)
            loss_B_T = loss_B_T.masked_fill(unlikely_B_T, 0.0)
        return loss_B_T, {"clip_fraction": clipped_B_T}
