"""R3L: reflect-then-retry exploration, pivotal credit, positive amplification, one plain objective.

Paper: arXiv 2601.03715. Each step of :meth:`R3L.explore` is a section of the paper and a file beside this one, which
also declares that section's options.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from r3l.amplification import AmplificationSettings, amplify, explain
from r3l.core import losses
from r3l.core.advantages import BaselineRule, baseline_of, centred, standardised
from r3l.core.method import Batch, MethodSettings, Tokens, TrainedMethod
from r3l.core.option import option
from r3l.core.rollout import Episode, RolloutContext, play, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective, Trajectory
from r3l.credit import CreditSettings, assign_pivotal_credit
from r3l.feedback.audits import count_retry, grade_reflection
from r3l.feedback.feedback import ParsedReflection
from r3l.reflection import Reflection, ReflectionSettings, reflect
from r3l.retry import PivotSettings, Retry, choose_pivot, guidance_text, restart_at, retry

if TYPE_CHECKING:
    import torch


class R3LSettings(MethodSettings, ReflectionSettings, PivotSettings, CreditSettings, AmplificationSettings):
    """Every option of R3L: those of the paper's sections, and those that combine them."""

    retries: int = option(
        1,
        "retries of each base; N // (1 + retries) bases are reflected on",
        "paper: one; its appendix varies it in {0, 1, 2, 4} at N = 8",
        ge=0,
        le=4096,
    )
    retries_until: float = option(
        1.0,
        "share of training after which no attempt is reflected on any more",
        "our ablation (paper: never)",
        gt=0,
        le=1,
    )
    amplify_until: float = option(
        1.0,
        "share of training after which advantages are not amplified any more",
        "our ablation (paper: never)",
        gt=0,
        le=1,
    )
    missing_retry: Literal["none", "resample_base"] = option(
        "none", "what takes the place of a retry that was not made (A-18)", "released code: nothing"
    )
    train_on: Literal["distilled", "guided"] = option(
        "distilled",
        "which form of a retry trains (B-13)",
        "paper: context distillation (released turn-level code keeps the guidance)",
    )
    advantage: Literal["centred", "standardised"] = option("centred", "scale of advantages (A-12)", "paper: r - mean")
    baseline: BaselineRule = option("mean", "baseline of centred advantages (audit 0.7)", "paper and released code")
    baseline_tau: float = option(1.0, "temperature of the logavgexp baseline (audit 0.7)", "Trinity-RFT: 1", gt=0)
    importance: Literal["none", "clipped"] = option("none", "importance ratio in the objective (A-7)", "paper: none")
    clip_low: float = option(0.2, "of the ratio, where there is one (audit 0.6)", "released baselines: 0.2", ge=0, lt=1)
    clip_high: float = option(0.2, "of the ratio, where there is one (audit 0.6)", "released baselines: 0.2", ge=0)
    min_logprob: float | None = option(
        None,
        "leaves out distilled tokens that are less likely than this without their hint (nats)",
        "paper: none (RLTF's released code: -5)",
        lt=0,
    )
    opmd_tau: float = option(
        0.0, "divides the policy loss by 1 + tau (A-6)", "paper: no such factor (released code: tau = 1)", ge=0
    )
    sft_mode: Literal["separate", "reward1_singleton"] = option(
        "separate",
        "form of imitation (A-9, A-11)",
        "paper: a loss of its own (released code: groups of one with reward 1)",
    )
    sft_trigger: Literal["improve", "solved_improve", "solved_improve_or_shorter"] = option(
        "improve",
        "which retries are imitated (A-10)",
        "paper: any improvement (released code: solved, and better; in agentic environments also shorter)",
    )
    imitated_retry: Literal["verified", "resampled"] = option(
        "verified",
        "what is imitated of a retry that improved: itself, or another one from there, whatever comes of it (B-15)",
        "paper: itself (released turn-level code: another one, as if it had been right)",
    )
    sft_perfect_reflection: bool = option(
        False,
        "imitate reflections that find nothing to do (A-10)",
        "paper: not mentioned (released code: imitated)",
    )


class Tried(NamedTuple):
    """A retry and what led to it; ``imitated``: the guided trajectory to imitate, None where it did not improve."""

    reflection: Reflection
    played: Retry
    imitated: Trajectory | None


@dataclass
class Attempt:
    """A base trajectory with its reflections and retries. ``substitute``: another base in place of missing retries."""

    base: Trajectory
    reflections: list[Reflection] = field(default_factory=list)
    retries: list[Tried] = field(default_factory=list)
    pivots: list[int] = field(default_factory=list)
    substitute: Trajectory | None = None


class R3L(TrainedMethod[R3LSettings]):
    """The method (see r3l.core.method.Method)."""

    Settings = R3LSettings

    @property
    def reflected(self) -> int:
        """Bases that are reflected on: with their retries they cost at most N rollouts."""
        return self.settings.group_size // (1 + self.settings.retries) if self.settings.retries else 0

    @property
    def max_rollouts(self) -> int:
        """N, and one more for each retry where retries are resampled for imitation."""
        s = self.settings
        return s.group_size + (self.reflected * s.retries if s.imitated_retry == "resampled" else 0)

    @property
    def max_samples(self) -> int:
        """N, bases in place of missing retries, and for every retry an imitated reflection and guided retry."""
        s = self.settings
        substitutes = self.reflected if s.missing_retry == "resample_base" else 0
        return s.group_size + substitutes + 2 * self.reflected * s.retries

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Base rollouts, reflections on them, guided retries, and the trajectories to imitate.

        A task costs at most N rollouts: N // (1 + retries) bases with their retries, and plain bases for the rest.
        """
        s, reflected = self.settings, self.reflected_now(task, ctx)
        attempts = await ctx.gather(partial(self._attempt, task, ctx), range(reflected))
        plain = await play_group(ctx, task, s.group_size - reflected * (1 + s.retries), first=reflected)
        attempts += [Attempt(base) for base in plain]
        contrasted = [t for attempt in attempts for t in self._contrasted(attempt)]
        groups = [Group(task, contrasted, progress=ctx.progress)]
        imitated = [t for attempt in attempts for t in self._imitated(attempt)]
        if imitated and s.sft_mode == "reward1_singleton":
            return groups + [Group(task, [t], returns=(1.0,)) for t in imitated]
        if imitated and s.sft_coef > 0:
            groups.append(Group(task, imitated, Objective.SFT))
        return groups

    def reflected_now(self, task: Task, ctx: RolloutContext) -> int:
        """Bases of this task that are reflected on: none after ``retries_until``."""
        return self.reflected if ctx.progress <= self.settings.retries_until else 0

    async def _attempt(self, task: Task, ctx: RolloutContext, member: int) -> Attempt:
        episode = await play(ctx, task, member)
        attempt = Attempt(episode.trajectory)
        if self.settings.reflect_when == "always" or not attempt.base.success:
            for number in range(self.settings.retries):
                await self._reflect_and_retry(ctx, episode, attempt, (number,) if number else ())
        await episode.close()
        if attempt.pivots:
            assign_pivotal_credit(attempt.base, min(attempt.pivots), self.settings)
        if not attempt.retries and self.settings.missing_retry == "resample_base":
            (attempt.substitute,) = await play_group(ctx, task, 1, first=self.settings.group_size + member)
        return attempt

    async def _reflect_and_retry(
        self, ctx: RolloutContext, base: Episode, attempt: Attempt, number: tuple[int, ...]
    ) -> None:
        s = self.settings
        reflection = await reflect(ctx, base, s, number)
        attempt.reflections.append(reflection)
        parsed = reflection.parsed
        if not isinstance(parsed, ParsedReflection) or parsed.pivot is None:
            return
        oracle = grade_reflection(ctx, base, parsed)
        pivot = choose_pivot(s.pivot, parsed.pivot, oracle, attempt.base, ctx)
        if pivot is None:
            return
        guidance = guidance_text(parsed, s, ctx.dialogue.release)
        restart = restart_at(pivot, guidance, attempt.base, s, number)
        played = await retry(ctx, base, restart, s)
        count_retry(ctx, pivot, oracle, played.guided.success)
        imitated = played.guided if self._improved(attempt.base, played.guided) else None
        if imitated and s.imitated_retry == "resampled":
            again = replace(restart, attempt=(*(number or (0,)), 1), counted=False)
            imitated = (await retry(ctx, base, again, s)).guided
        attempt.retries.append(Tried(reflection, played, imitated))
        attempt.pivots.append(pivot if s.credit_from == "restart" else parsed.pivot)
        for trajectory in (played.distilled, played.guided, *([imitated] if imitated else [])):
            assign_pivotal_credit(trajectory, restart.turn if s.credit_from == "restart" else parsed.pivot, s)

    def _improved(self, base: Trajectory, guided: Trajectory) -> bool:
        """Whether a retry is good enough to be imitated."""
        better = guided.reward > base.reward
        if self.settings.sft_trigger == "solved_improve_or_shorter":
            better = better or len(guided.turns) < len(base.turns)
        return better and (self.settings.sft_trigger == "improve" or guided.reward >= 1)

    def _contrasted(self, attempt: Attempt) -> list[Trajectory]:
        """The base and its retries, or their substitute: the trajectories that the policy gradient contrasts."""
        distilled = self.settings.train_on == "distilled"
        retries = [played.distilled if distilled else played.guided for _, played, _ in attempt.retries]
        return [attempt.base, *retries, *([attempt.substitute] if attempt.substitute else [])]

    def _imitated(self, attempt: Attempt) -> list[Trajectory]:
        """The reflections and guided retries to imitate: those of retries that improved."""
        s, base = self.settings, attempt.base
        imitated = []
        if s.sft_perfect_reflection and base.reward >= 1:
            imitated += [reflection.trajectory for reflection in attempt.reflections if reflection.perfect]
        for tried in attempt.retries:
            imitated += [tried.reflection.trajectory, tried.imitated] if tried.imitated else []
        return imitated

    def advantages(self, group: Group) -> np.ndarray:
        """Centred (or standardised) returns, amplified (until ``amplify_until``)."""
        returns_G = group.returns_G()
        plain_G = self._plain(returns_G)
        return amplify(plain_G, returns_G, self.settings) if group.progress <= self.settings.amplify_until else plain_G

    def _plain(self, returns_G: np.ndarray) -> np.ndarray:
        s = self.settings
        if s.advantage == "standardised":
            return standardised(returns_G)
        return centred(returns_G, baseline_of(returns_G, s.baseline, s.baseline_tau))

    def explained_advantages(self, returns_G: np.ndarray) -> list[tuple[float, str]]:
        """Of each member of a group with these returns the advantage and, for readers, how it comes about."""
        s, plain_G = self.settings, self._plain(returns_G)
        baseline = baseline_of(returns_G, s.baseline, s.baseline_tau)
        name = "baseline" if s.baseline != "mean" or len(returns_G) == 1 else "mean"
        words = f"r - {name} = {{:.2f}} - {baseline:.2f}"
        if s.advantage == "standardised":
            deviation = np.std(returns_G, ddof=1) if len(returns_G) > 1 else 1.0
            words = f"(r - mean) / standard deviation = ({{:.2f}} - {baseline:.2f}) / {deviation:.2f}"
        how = explain(plain_G, returns_G, s)
        values = zip(amplify(plain_G, returns_G, s), how, returns_G, strict=True)
        return [(float(advantage), text.format(words.format(r))) for advantage, text, r in values]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """-A log p / (1 + tau), or PPO's clipped surrogate (``importance``); without tokens below ``min_logprob``."""
        s = self.settings
        loss_B_T, observed = losses.policy_gradient(logprobs_B_T, batch.advantages_B_T, s.opmd_tau), {}
        if s.importance == "clipped":
            ratio_B_T = losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)
            loss_B_T, clipped_B_T = losses.clipped_surrogate(ratio_B_T, batch.advantages_B_T, s.clip_low, s.clip_high)
            observed = {"clip_fraction": clipped_B_T}
        return losses.without_unlikely(loss_B_T, logprobs_B_T, batch.off_policy_B, s.min_logprob), observed
