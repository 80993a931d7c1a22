"""R3L: reflect-then-retry exploration, pivotal credit, positive amplification, one plain objective.

Paper: arXiv 2601.03715. Each step of :meth:`R3L.explore` is a section of the paper and a file beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import Field

from r3l.amplification import AmplifyRule, amplify
from r3l.core import losses
from r3l.core.advantages import centred
from r3l.core.method import Batch, MethodSettings, TrainedMethod
from r3l.core.rollout import Arena, Episode, play
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.credit import assign_pivotal_credit
from r3l.reflection import Reflection, Report, reflect
from r3l.retry import GuidanceForm, GuidancePlace, distil, guidance_text, retry, with_guidance


class Settings(MethodSettings):
    """Every knob of R3L; sources stand in configs/methods/r3l.yaml."""

    group_size: int = Field(8, ge=2, multiple_of=2, description="N: N/2 base rollouts and at most N/2 retries")
    alpha: float = Field(3.0, gt=0, description="amplification factor")
    amplify_rule: AmplifyRule = "paper"
    pivotal_credit: bool = Field(True, description="mask the prefix shared by base and retry")
    guidance: GuidanceForm = "full_report"
    guidance_place: GuidancePlace = "user_turn"
    sft_coef: float = Field(1.0, ge=0, description="weight of the auxiliary imitation loss")


@dataclass
class Attempt:
    """One base trajectory and what came of it."""

    base: Trajectory
    reflection: Reflection
    guided: Trajectory | None = None
    distilled: Trajectory | None = None

    @property
    def improved(self) -> bool:
        """The retry earned more than its base: the verified improvement that SFT learns from."""
        return self.guided is not None and self.guided.reward > self.base.reward


class R3L(TrainedMethod[Settings]):
    """The method (see r3l.core.method.Method)."""

    Settings = Settings

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """N/2 base rollouts, a reflection on each, at most N/2 guided retries, and the verified SFT pairs."""
        members = range(self.settings.group_size // 2)
        attempts: list[Attempt] = await arena.gather(*[self._attempt(task, arena, m) for m in members])
        explored = [a.base for a in attempts] + [a.distilled for a in attempts if a.distilled is not None]
        lessons = [lesson for a in attempts if a.improved for lesson in (a.reflection.trajectory, a.guided)]
        groups = [Group(task, explored)]
        if lessons and self.settings.sft_coef > 0:
            groups.append(Group(task, [t for t in lessons if t is not None], "sft"))
        return groups

    async def _attempt(self, task: Task, arena: Arena, member: int) -> Attempt:
        episode = await play(arena, task, member)
        attempt = Attempt(episode.trajectory, await reflect(arena, episode))
        report = attempt.reflection.verdict
        if isinstance(report, Report) and report.pivot is not None:
            await self._retry(arena, episode, attempt, report, report.pivot)
        await episode.close()
        return attempt

    async def _retry(self, arena: Arena, base: Episode, attempt: Attempt, report: Report, pivot: int) -> None:
        decorate = with_guidance(guidance_text(report, self.settings.guidance), self.settings.guidance_place)
        attempt.guided = await retry(arena, base, pivot, decorate, replace(arena.sampling, phase=2))
        attempt.distilled = distil(attempt.guided, attempt.base)
        if self.settings.pivotal_credit:
            assign_pivotal_credit(attempt.base, attempt.distilled, pivot)
        else:
            attempt.distilled.pivot = 0
        _count(arena, attempt, pivot)

    def advantages(self, group: Group) -> np.ndarray:
        """Group-centred rewards, amplified."""
        rewards_G = group.rewards()
        return amplify(centred(rewards_G), rewards_G, self.settings.amplify_rule, self.settings.alpha)

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """-A log p on explored rows plus sft_coef times -log p on verified improvements; no ratio, no clip."""
        policy_B_T = losses.policy_gradient(logprobs_B_T, batch.advantages_B)
        sft_B_T = -logprobs_B_T
        is_sft_B_1 = batch.sft_B[:, None].float()
        policy = (batch.weight_B_T * (1 - is_sft_B_1) * policy_B_T).sum()
        sft = (batch.weight_B_T * is_sft_B_1 * sft_B_T).sum()
        total = policy + self.settings.sft_coef * sft
        metrics = {"loss/policy": policy.item(), "loss/sft": sft.item()}
        if batch.ref_logprobs_B_T is not None:
            kl_B_T = losses.kl(logprobs_B_T, batch.ref_logprobs_B_T, self.settings.kl)
            kl = (batch.weight_B_T * (1 - is_sft_B_1) * kl_B_T).sum()
            total = total + self.settings.kl_coef * kl
            metrics["loss/kl"] = kl.item()
        return total, metrics


def _count(arena: Arena, attempt: Attempt, pivot: int) -> None:
    assert attempt.guided is not None
    arena.counters["retry/count"] += 1
    arena.counters["retry/success"] += int(attempt.guided.success)
    arena.counters["retry/improved"] += int(attempt.improved)
    arena.counters["retry/worse"] += int(attempt.guided.reward < attempt.base.reward)
    arena.counters["retry/after_failure"] += int(not attempt.base.success)
    arena.counters["retry/rescued"] += int(attempt.guided.success and not attempt.base.success)
    arena.counters["pivot/turns"] += pivot
    arena.counters["pivot/of_turns"] += len(attempt.base.turns)
