"""R3L: reflect-then-retry exploration, pivotal credit, positive amplification and a plain policy gradient.

Paper: arXiv 2601.03715. :meth:`R3L.explore` calls the sections of the paper in order. Each section is a file
in this folder (reflection, retry, credit, amplification) and declares its own options.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import model_validator

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
from r3l.retry import PivotSettings, choose_pivot, guidance_text, restart_at, retry

if TYPE_CHECKING:
    import torch


class R3LSettings(MethodSettings, ReflectionSettings, PivotSettings, CreditSettings, AmplificationSettings):
    """Every option of R3L: of reflections, pivots, credit, amplification (base classes), and its own.

    Codes such as (A-8), (B-13) or (audit 0.6) refer to docs/audit.md, the list of differences between paper
    and released code. ``baseline``: ``mean`` or ``logavgexp`` (:func:`r3l.core.advantages.baseline_of`).
    Refused (ValidationError): as many ``retries`` as rollouts, and another baseline than the mean with
    ``advantage: standardised``.
    """

    retries: int = option(
        1,
        "retries of each base rollout; N // (1 + retries) base rollouts are reflected on",
        "paper: one; its appendix varies it in {0, 1, 2, 4} at N = 8",
        ge=0,
        le=4096,
    )
    retries_until: float = option(
        1.0,
        "share of training after which no rollout is reflected on",
        "our ablation (paper: never)",
        gt=0,
        le=1,
    )
    amplify_until: float = option(
        1.0,
        "share of training after which advantages are no longer amplified",
        "our ablation (paper: never)",
        gt=0,
        le=1,
    )
    missing_retry: Literal["none", "resample_base"] = option(
        "none", "replacement for a retry that was not made (A-18)", "released code: nothing"
    )
    train_on: Literal["distilled", "guided"] = option(
        "distilled",
        "which form of a retry trains (B-13)",
        "paper: context distillation (released turn-level code keeps the guidance)",
    )
    advantage: Literal["centred", "standardised"] = option(
        "centred",
        "scale of advantages (A-12)",
        "paper: r - mean",
    )
    baseline: BaselineRule = option(
        "mean",
        "baseline of centred advantages (audit 0.7)",
        "paper and released code",
    )
    baseline_tau: float = option(
        1.0,
        "temperature of the logavgexp baseline (audit 0.7)",
        "Trinity-RFT: 1",
        gt=0,
    )
    importance: Literal["none", "clipped"] = option(
        "none",
        "importance ratio in the objective (A-7)",
        "paper: none",
    )
    clip_low: float = option(0.2, "lower clip epsilon (audit 0.6)", "released baselines: 0.2", ge=0, lt=1)
    clip_high: float = option(0.2, "upper clip epsilon (audit 0.6)", "released baselines: 0.2", ge=0)
    min_logprob: float | None = option(
        None,
        "distilled tokens below this log-prob without their hint are dropped from the loss (nats)",
        "paper: none (RLTF's released code: -5)",
        lt=0,
    )
    opmd_tau: float = option(
        0.0,
        "divides the policy loss by 1 + tau (A-6)",
        "paper: no such factor (released code: tau = 1)",
        ge=0,
    )
    sft_mode: Literal["separate", "reward1_singleton"] = option(
        "separate",
        "how the imitation loss is formed (A-9, A-11)",
        "paper: a separate loss (released code: groups of one with reward 1)",
    )
    sft_trigger: Literal["improve", "solved_improve", "solved_improve_or_shorter"] = option(
        "improve",
        "which retries are imitated (A-10)",
        "paper: any improvement (released code: solved, and better; in agentic environments also shorter)",
    )
    imitated_retry: Literal["verified", "resampled"] = option(
        "verified",
        "imitated for a retry that improved: the retry, or a fresh sample from its pivot (B-15)",
        "paper: the retry (released turn-level code: a fresh sample, with any reward)",
    )
    sft_perfect_reflection: bool = option(
        False,
        "imitate reflections that find nothing to improve (A-10)",
        "paper: not mentioned (released code: imitated)",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Raise ValueError for options that would silently do nothing."""
        if self.retries >= self.group_size:
            raise ValueError(
                f"retries is {self.retries}, which leaves no rollout to reflect on: it must be below "
                f"group_size, {self.group_size}"
            )
        if self.advantage == "standardised" and self.baseline != "mean":
            raise ValueError(
                f"baseline is {self.baseline!r}, but standardised advantages are around the mean: leave it "
                "out, or set advantage=centred"
            )
        return self


@dataclass(frozen=True)
class ReflectedRetry:
    """One retry with the reflection that guided it.

    ``guided``: the retry as it was sampled, with guidance in its prompt; ``distilled``: the same responses
    under the prompts without guidance. ``pivot``: the turn (from 0) from which the *base* rollout carries
    gradient because of this retry. ``imitated``: the trajectory to learn by SFT, ``guided`` or a fresh sample
    (``imitated_retry``); None if the retry does not pass ``sft_trigger``, by default a higher reward than its
    base's.
    """

    reflection: Reflection
    guided: Trajectory
    distilled: Trajectory
    pivot: int
    imitated: Trajectory | None


@dataclass
class BaseWithRetries:
    """A first attempt without guidance, the reflections on it, and the retries that these led to.

    ``substitute``: a further attempt without guidance instead of missing retries, else None.
    """

    base: Trajectory
    reflections: list[Reflection] = field(default_factory=list)
    retries: list[ReflectedRetry] = field(default_factory=list)
    substitute: Trajectory | None = None


class R3L(TrainedMethod[R3LSettings]):
    """The method of the paper, reflect-then-retry.

    By default half of a task's N rollouts are attempts, which are reflected on, half their guided retries.
    All are one group: loss -A log p, A = r - mean; then A = alpha (3) for the group's best reward, and
    alpha A for others above the mean. Of an attempt and its retry only turns from the pivot on train. Retries
    that improve, and their reflections, are also imitated (SFT).
    """

    Settings = R3LSettings

    @property
    def reflected(self) -> int:
        """Number of base rollouts per task that are reflected on: N // (1 + ``retries``), N = ``group_size``.

        Together with their retries they are then at most N rollouts. 0 if there are no retries.
        """
        return self.settings.group_size // (1 + self.settings.retries) if self.settings.retries else 0

    @property
    def max_rollouts(self) -> int:
        """Most rollouts per task: N, retries included; one more for each retry that may be sampled again.

        That is done for imitation (``imitated_retry: resampled``, B-15).
        """
        s = self.settings
        return s.group_size + (self.reflected * s.retries if s.imitated_retry == "resampled" else 0)

    @property
    def max_samples(self) -> int:
        """Most training samples (trajectories) per task: N, plus substitutes and imitated samples.

        A missing retry may be replaced by a further attempt, one per attempt that is reflected on
        (``missing_retry: resample_base``). Each retry may add an imitated reflection and an imitated retry.
        """
        s = self.settings
        substitutes = self.reflected if s.missing_retry == "resample_base" else 0
        return s.group_size + substitutes + 2 * self.reflected * s.retries

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Sample the trajectories of one task: a group for the policy gradient, and one to imitate if any.

        The first group has N // (1 + retries) base rollouts with their retries, and further base rollouts up
        to N rollouts in all. The second group, unless ``sft_coef`` is 0, has the trajectories to learn by
        SFT: retries that pass ``sft_trigger`` (by default a higher reward) with their reflections, and under
        ``sft_perfect_reflection`` reflections that find nothing to improve. (With ``sft_mode:
        reward1_singleton`` each of these is instead a separate policy-gradient group, with return 1.)
        """
        s = self.settings
        reflected = self.reflected_now(task, ctx)

        # Section 3.2: attempt, reflect, retry. All members of the task are played concurrently.
        tried = await ctx.gather(partial(self._attempt, task, ctx), range(reflected))
        plain = await play_group(ctx, task, s.group_size - reflected * (1 + s.retries), first=reflected)

        # The group whose members are contrasted: they share one baseline. A retry trains without its guidance
        # (context distillation), since there is none at test time.
        contrasted: list[Trajectory] = []
        for member in tried:
            contrasted.append(member.base)
            contrasted += [r.distilled if s.train_on == "distilled" else r.guided for r in member.retries]
            if member.substitute is not None:
                contrasted.append(member.substitute)
        groups = [Group(task, [*contrasted, *plain], progress=ctx.progress)]

        # Verified improvements: the reflection and the retry under its guidance are imitated, so that the
        # policy keeps both skills.
        imitated: list[Trajectory] = []
        for member in tried:
            if s.sft_perfect_reflection and member.base.reward >= 1:
                imitated += [reflection.trajectory for reflection in member.reflections if reflection.perfect]
            for retried in member.retries:
                if retried.imitated is not None:
                    imitated += [retried.reflection.trajectory, retried.imitated]
        if imitated and s.sft_mode == "reward1_singleton":
            return groups + [Group(task, [t], returns=(1.0,)) for t in imitated]
        if imitated and s.sft_coef > 0:
            groups.append(Group(task, imitated, Objective.SFT))
        return groups

    def reflected_now(self, task: Task, ctx: RolloutContext) -> int:
        """Number of rollouts of ``task`` to reflect on in this step: :attr:`reflected`, or 0 late in the run.

        It is 0 once more than the share ``retries_until`` (a setting) of training is done. ``task`` is not
        used; a subclass may adapt the number to it.
        """
        return self.reflected if ctx.progress <= self.settings.retries_until else 0

    async def _attempt(self, task: Task, ctx: RolloutContext, member: int) -> BaseWithRetries:
        """Play one base rollout, reflect on it and retry, ``retries`` times."""
        s = self.settings
        episode = await play(ctx, task, member)
        attempt = BaseWithRetries(episode.trajectory)
        if not attempt.base.failed and (s.reflect_when == "always" or not attempt.base.success):
            for number in range(s.retries):
                # The seed address of the first retry, and so its draws, ignore the number of retries.
                address = (number,) if number else ()
                reflection = await reflect(ctx, episode, s, address)
                attempt.reflections.append(reflection)
                retried = await self._retry(ctx, episode, reflection, address)
                if retried is not None:
                    attempt.retries.append(retried)
        await episode.close()

        # Section 3.3: base and retries share every token before the pivot; with several retries, the
        # earliest.
        if attempt.retries:
            assign_pivotal_credit(attempt.base, min(retried.pivot for retried in attempt.retries), s)
        elif s.missing_retry == "resample_base":
            (attempt.substitute,) = await play_group(ctx, task, 1, first=s.group_size + member)
        return attempt

    async def _retry(
        self, ctx: RolloutContext, base: Episode, reflection: Reflection, address: tuple[int, ...]
    ) -> ReflectedRetry | None:
        """Retry the base rollout from the pivot that ``reflection`` names, under its guidance.

        ``address``: tells several retries of one rollout apart in seed addresses. None if there is no pivot,
        or if the environment failed.
        """
        s = self.settings
        parsed = reflection.parsed
        if not isinstance(parsed, ParsedReflection) or parsed.pivot is None:
            return None
        oracle = grade_reflection(ctx, base, parsed)
        pivot = choose_pivot(s.pivot, parsed.pivot, oracle, base.trajectory, ctx, address)
        if pivot is None:
            return None

        # Play on from the pivot, with the guidance in the prompt of its turn.
        guidance = guidance_text(parsed, s, ctx.dialogue.release)
        restart = restart_at(pivot, guidance, base.trajectory, s, address)
        played = await retry(ctx, base, restart, s)
        if played.guided.failed:
            return None
        count_retry(ctx, pivot, oracle, played.guided.success)

        # Imitate the retry if it improved. The released triggers ask for a solution, which may also be
        # shorter. The released turn-level code imitates a fresh sample instead of the retry (B-15).
        improved = played.guided.reward > base.trajectory.reward
        if s.sft_trigger == "solved_improve_or_shorter":
            improved = improved or len(played.guided.turns) < len(base.trajectory.turns)
        if s.sft_trigger != "improve":
            improved = improved and played.guided.reward >= 1
        imitated = played.guided if improved else None
        if imitated is not None and s.imitated_retry == "resampled":
            again = replace(restart, attempt=(*(address or (0,)), 1), counted=False)
            fresh = (await retry(ctx, base, again, s)).guided
            imitated = None if fresh.failed else fresh

        # Section 3.3: only turns from the pivot on carry gradient. A retry may restart before the pivot,
        # after an action that was refused (B-18).
        retry_pivot = restart.turn if s.credit_from == "restart" else parsed.pivot
        base_pivot = pivot if s.credit_from == "restart" else parsed.pivot
        for trajectory in (played.distilled, played.guided, imitated):
            if trajectory is not None:
                assign_pivotal_credit(trajectory, retry_pivot, s)
        return ReflectedRetry(reflection, played.guided, played.distilled, base_pivot, imitated)

    def advantages(self, group: Group) -> np.ndarray:
        """Advantages of a group's members, shape (G,): centred or standardised returns, then amplified.

        Amplification (:func:`r3l.amplification.amplify`) raises advantages above 0 and of the best reward.
        It ends when more than the share ``amplify_until`` of training is done (``group.progress``).
        """
        returns_G = group.returns_G()
        plain_G = self._unamplified(returns_G)
        if group.progress > self.settings.amplify_until:
            return plain_G
        return amplify(plain_G, returns_G, self.settings)  # section 3.4

    def _unamplified(self, returns_G: np.ndarray) -> np.ndarray:
        s = self.settings
        if s.advantage == "standardised":
            return standardised(returns_G)
        return centred(returns_G, baseline_of(returns_G, s.baseline, s.baseline_tau))

    def explained_advantages(self, returns_G: np.ndarray) -> list[tuple[float, str]]:
        """(advantage, its arithmetic as text) for each member of a group, amplification always included.

        ``returns_G``: the members' returns, shape (G,). For reports and examples; training does not call it.
        """
        s = self.settings
        baseline = baseline_of(returns_G, s.baseline, s.baseline_tau)
        name = "baseline" if s.baseline != "mean" or len(returns_G) == 1 else "mean"
        arithmetic = f"r - {name} = {{:.2f}} - {baseline:.2f}"
        if s.advantage == "standardised":
            deviation = np.std(returns_G, ddof=1) if len(returns_G) > 1 else 1.0
            arithmetic = f"(r - mean) / standard deviation = ({{:.2f}} - {baseline:.2f}) / {deviation:.2f}"
        plain_G = self._unamplified(returns_G)
        values = zip(amplify(plain_G, returns_G, s), explain(plain_G, returns_G, s), returns_G, strict=True)
        return [(float(advantage), text.format(arithmetic.format(r))) for advantage, text, r in values]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """(loss per token, metrics per token), all of shape (B, T).

        The loss is -A log p / (1 + tau) with tau = ``opmd_tau``, and there are no metrics; with ``importance:
        clipped`` it is PPO's clipped surrogate, with the metric ``clip_fraction``. Distilled tokens with
        log p below ``min_logprob`` get loss 0.
        """
        s = self.settings
        if s.importance == "clipped":
            ratio_B_T = losses.token_ratio(logprobs_B_T, batch.old_logprobs_B_T)
            loss_B_T, clipped_B_T = losses.clipped_surrogate(
                ratio_B_T, batch.advantages_B_T, clip_low=s.clip_low, clip_high=s.clip_high
            )
            metrics = {"clip_fraction": clipped_B_T}
        else:
            loss_B_T = losses.policy_gradient(logprobs_B_T, batch.advantages_B_T, s.opmd_tau)
            metrics = {}
        # A token that only its hint made likely would have a large gradient without it.
        return losses.without_unlikely(loss_B_T, logprobs_B_T, batch.off_policy_B, s.min_logprob), metrics
