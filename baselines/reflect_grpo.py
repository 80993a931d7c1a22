"""Reflect-GRPO (Reflect-Retry-Reward as the R3L paper re-implements it): failures are retried from the start.

Base rollouts and distilled retries form one group, without pivot, credit mask or imitation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import field_validator
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.option import option
from r3l.core.rollout import RolloutContext, play, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.feedback.feedback import ParsedReflection
from r3l.reflection import Reflection, ReflectionSettings, reflect
from r3l.retry import Restart, Retry, RetrySettings, guidance_text, retry


class RestartSettings(ReflectionSettings, RetrySettings):
    """Options of a reflection and of a retry from the start: those of both base classes, and no others.

    ``reflect_when`` is R3L's alone and must stay at its default (ValidationError): these methods reflect on
    failures, whatever it says.
    """

    @field_validator("reflect_when")
    @classmethod
    def _left_at_its_default(cls, value: str) -> str:
        if value != "always":
            raise ValueError("this method reflects on failures alone; reflect_when is R3L's: leave it out")
        return value


@dataclass(frozen=True)
class ReflectedAttempt:
    """A rollout and, if it failed, the reflection on it and the retry from the start that it guides.

    ``reflection`` is None if the rollout succeeded or its environment failed. ``retry`` is None in the same
    cases, if the reflection is invalid or finds nothing to improve, and if no retry was wanted.
    """

    first: Trajectory
    reflection: Reflection | None = None
    retry: Retry | None = None


async def reflect_and_restart(
    ctx: RolloutContext, task: Task, settings: RestartSettings, retries: bool, member: int
) -> ReflectedAttempt:
    """Play a rollout; if it fails, reflect on it and, if ``retries``, retry under the reflection.

    A retry starts over. There is none if the reflection is invalid or finds nothing to improve, and no
    reflection if the environment failed. ``member``: index of the rollout within its task, part of its seed
    address. All is counted and logged in ``ctx``.
    """
    episode = await play(ctx, task, member)
    first = episode.trajectory
    reflection = None
    second = None
    if not (first.success or first.failed):
        reflection = await reflect(ctx, episode, settings)
        parsed = reflection.parsed
        if isinstance(parsed, ParsedReflection) and not parsed.perfect and retries:
            restart = Restart(0, guidance_text(parsed, settings, ctx.dialogue.release))
            second = await retry(ctx, episode, restart, settings)
    await episode.close()
    return ReflectedAttempt(first, reflection, second)


class ReflectGRPOSettings(GRPOSettings, RestartSettings):
    """Settings of Reflect-GRPO: how many rollouts are reflected on and retried, and how.

    ``group_size`` does not include ``reflected_rollouts``: with both at N/2, a task has N rollouts before
    retries. Codes in the descriptions, such as (A-8) or (audit 0.6), are entries of docs/audit.md.
    """

    group_size: int = option(
        4, "rollouts that are never reflected on (audit 1.9)", "paper and released code: N/2", ge=0, le=4096
    )
    reflected_rollouts: int = option(
        4,
        "more rollouts; a failed one is reflected on and retried (A-17)",
        "paper and released code: N/2",
        ge=1,
        le=4096,
    )
    retry: Literal["works", "released_noop"] = option(
        "works",
        "works: retries are played; released_noop: never (B-2)",
        "paper (the released code fails in three environments)",
    )
    rescore_distilled: bool = option(
        True,
        "old log-probs of a distilled retry are computed again, without the guidance",
        "released code: computed again without the guidance (audit 0.2)",
    )


class ReflectGRPO(GRPO):
    """GRPO in which some of the failed rollouts are retried from the start under a reflection.

    Rollouts and retries are one group. A retry trains under its prompt without the reflection (distilled).
    """

    Settings = ReflectGRPOSettings
    settings: ReflectGRPOSettings

    @property
    def max_rollouts(self) -> int:
        """Rollouts of a task: ``group_size``, plus ``reflected_rollouts`` and at most one retry of each."""
        return self.settings.group_size + 2 * self.settings.reflected_rollouts

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play ``group_size`` rollouts and ``reflected_rollouts`` more, and retry the latter if they fail.

        Returns one group of all rollouts and retries. Retries are in it in their distilled form, without the
        guidance in the prompt.
        """
        s = self.settings
        plain = await play_group(ctx, task, s.group_size)
        members = range(s.group_size, s.group_size + s.reflected_rollouts)
        attempts = await ctx.gather(partial(reflect_and_restart, ctx, task, s, s.retry == "works"), members)
        trajectories = list(plain)
        for attempt in attempts:
            trajectories.append(attempt.first)
            if attempt.retry is not None:
                trajectories.append(attempt.retry.distilled)
        return [Group(task, trajectories)]
