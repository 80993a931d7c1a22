"""ERL: reflect on a failure, try again from the start, distil the second attempt (arXiv 2602.13949).

Next to R3L it isolates the pivot: the same reflections and the same distillation, with a retry that always
starts over. Each of four groups has its own baseline: first attempts, second attempts under their reflection,
reflections (their return is the reward of the second attempt), and second attempts without the reflection in
their prompt. ``train_on: reflection_only`` is Reflect, Retry, Reward (arXiv 2505.24726): only reflections
train.

Paper, release (microsoft/experiential_rl at 20cd646, examples/erl_sokoban) and this file:

1. Distillation: the paper imitates second attempts that succeeded. The release gives all of them
   A = max(r, 0) in the clipped loss (``distil``), with old log-probs computed without the reflection, as
   here.
2. Reflections train in the paper and in the release's scripts; its class leaves them out by default
   (``reward_reflection``). One that is invalid has no second attempt and the return 0; the release then plays
   the second attempt under the unchanged prompt. Texts of a judge or critic do not train.
3. Both keep the last instructions that worked as a memory across tasks. This file has none (the release's
   ``no_memory``), so tasks of a step do not depend on each other.
4. The release rewrites the whole system prompt at temperature 0.5; here the reflection is R3L's, placed by
   ``guidance_place``.
5. Attempts: the release has 4, and up to 4 second ones, against 10 of GRPO. Here N and at most N, as in RLTF;
   profile ``fair`` gives N / 2 to each.
6. The release sums token losses and divides by the number of samples; ``token_sum`` does not divide, which
   Adam undoes but for clipped gradients.
7. Reflect, Retry, Reward compares many reflections on one failure; here those on a task's failures.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
from pydantic import ValidationInfo, field_validator
from r3l.baselines.grpo import GRPO, GRPOSettings
from r3l.baselines.reflect_grpo import ReflectedAttempt, RestartSettings, reflect_and_restart

from r3l.core.advantages import centred
from r3l.core.option import option
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective
from r3l.feedback.feedback import FeedbackSource

PAPER = "ERL paper and released scripts"


class ERLSettings(GRPOSettings, RestartSettings):
    """Settings of ERL.

    ``train_on: reflection_only`` is refused unless the policy writes the reflections (``feedback: self``).
    """

    train_on: Literal["all", "reflection_only"] = option(
        "all", "what trains: attempts and reflections, or reflections only (Reflect, Retry, Reward)", PAPER
    )
    reward_reflection: bool = option(
        True, "reflections of the policy learn from the reward of the retry that they guide", PAPER
    )
    train_guided: bool = option(True, "retries under their reflection learn from their reward", PAPER)
    distil: Literal["sft", "policy", "none"] = option(
        "sft",
        "retries without reflection: imitated if they succeed, or in the policy loss with A = max(r, 0)",
        "ERL paper (released code: policy)",
    )
    rescore_distilled: bool = option(
        True,
        "old log-probs of a distilled retry are computed again, without the guidance",
        "ERL released code",
    )

    @field_validator("train_on")
    @classmethod
    def _needs_own_reflections(cls, value: str, fields: ValidationInfo) -> str:
        if value == "reflection_only" and fields.data.get("feedback") is not FeedbackSource.SELF:
            raise ValueError("reflection_only trains what the policy writes: set feedback=self")
        return value


class ERL(GRPO):
    """GRPO over first attempts, reflections and guided second attempts, each kind in its own group.

    A second attempt that succeeds is also imitated without its guidance (``distil``).
    """

    Settings = ERLSettings
    settings: ERLSettings

    @property
    def max_rollouts(self) -> int:
        """2 N rollouts of a task: N first attempts, and at most one second attempt after each."""
        return 2 * self.settings.group_size

    @property
    def max_samples(self) -> int:
        """4 N trajectories of a task, reflections included.

        Each of N first attempts may have a reflection, a guided retry and a distilled retry.
        """
        return 4 * self.settings.group_size

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts, and after each that fails a reflection and a second attempt from the start.

        Returns :meth:`groups` of them. No second attempt follows a reflection that is invalid or finds
        nothing to improve.
        """
        play = partial(reflect_and_restart, ctx, task, self.settings, True)
        return self.groups(task, await ctx.gather(play, range(self.settings.group_size)))

    def groups(self, task: Task, attempts: list[ReflectedAttempt]) -> list[Group]:
        """Up to four groups: first attempts, guided retries, reflections, and distilled retries.

        A reflection's return is the reward of its guided retry, 0 without one; reflections that the policy
        did not write are left out. Distilled retries (the same responses without guidance in the prompt) are
        imitated if they succeed, or have the return max(r, 0), by ``distil``. First attempts have no loss
        under ``train_on: reflection_only``. Groups that the settings exclude and empty groups are left out.
        If the environment broke off a retry, the retry and its reflection are left out.
        """
        s = self.settings
        alone = s.train_on == "reflection_only"
        groups = [Group(task, [a.first for a in attempts], Objective.NONE if alone else Objective.POLICY)]

        # A retry that the environment itself ended says nothing about its reflection.
        attempts = [a for a in attempts if not (a.retry and a.retry.guided.failed)]
        retries = [a.retry for a in attempts if a.retry]
        if s.train_guided and not alone:
            groups.append(Group(task, [r.guided for r in retries]))

        # A reflection is worth what the retry under it earns.
        if s.reward_reflection or alone:
            written = [
                (a.reflection.trajectory, a.retry.guided.reward if a.retry else 0.0)
                for a in attempts
                if a.reflection and a.reflection.author is FeedbackSource.SELF
            ]
            groups.append(Group(task, [t for t, _ in written], returns=[reward for _, reward in written]))

        # Context distillation: the same responses under the prompt without reflection.
        distilled = [r.distilled for r in retries]
        if s.distil == "sft" and not alone:
            groups.append(Group(task, [t for t in distilled if t.success], Objective.SFT))
        elif s.distil == "policy" and not alone:
            groups.append(
                Group(task, distilled, returns=[max(t.reward, 0.0) for t in distilled], baseline=0.0)
            )
        return [group for group in groups if group.trajectories]

    def advantages(self, group: Group) -> np.ndarray:
        """GRPO's advantage in the group; for distilled retries the return itself. Shape (G,)."""
        if group.baseline is not None:
            return centred(group.returns_G(), group.baseline)
        return np.asarray(super().advantages(group))
