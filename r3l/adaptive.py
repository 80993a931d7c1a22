"""Adaptive R3L: reflect and retry only as often as that solves more failures per token than another fresh attempt.

R3L spends half of its rollouts on guided retries from the first update to the last. Whether that pays changes while a
model trains: at first its hints solve failures that fresh attempts do not, later fresh attempts solve most tasks, and
reflections get worse. This method measures both on its own rollouts and follows the better one. Our own; no paper.

A group has N // 2 places for an attempt with its retry. With the probability ``share`` a place is used as R3L uses it,
else for two fresh attempts. After the first update ``share`` is the probability, given the last ``window`` updates,
that a guided retry of a failed attempt is worth more per sampled token than a fresh attempt at its task::

    guided = rescued failures / failures that were reflected on     cost: reflection and retry, tokens a place
    fresh  = successes of the other attempts at tasks with a failure, one failure left out at a time
             / such attempts                                        cost: tokens of an attempt
    share  = P(guided / cost > fresh / cost), by normal approximation, at least ``floor``

The floor keeps measuring where retries have stopped paying. Window and floor are fixed here, before any run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import erf, sqrt

from r3l.algorithm import R3L, R3LSettings
from r3l.core.option import option
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.trajectory import Group, TrajectoryKind


class AdaptiveSettings(R3LSettings):
    """R3L's options, and how the share follows what is measured."""

    window: int = option(10, "updates that the share is estimated from", "our choice, before any run", ge=1)
    floor: float = option(
        0.125, "least share of attempts that are reflected on", "our choice, before any run", gt=0, le=1
    )


class AdaptiveR3L(R3L):
    """R3L whose share of reflected attempts follows the measured worth of its retries."""

    Settings = AdaptiveSettings
    settings: AdaptiveSettings
    needs_history = True

    def reflected_now(self, task: Task, ctx: RolloutContext) -> int:
        """Places of this task's group that are reflected on: each with the probability ``share``."""
        draws = generator(*ctx.address, "adaptive", task.address).random(super().reflected_now(task, ctx))
        return int((draws < self.share(ctx.history)).sum())

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """R3L's groups; what the share is made from is counted."""
        groups = await super().explore(task, ctx)
        bases = [t for t in groups[0].trajectories if t.kind is TrajectoryKind.BASE]
        reflected = {t.member for t in ctx.trajectories if t.kind is TrajectoryKind.REFLECTION and t.task == task}
        failures, solved = sum(not t.success for t in bases), sum(t.success for t in bases)
        counted = {
            "bases": len(bases),
            "reflected": len(reflected),
            "failures_reflected": sum(not t.success for t in bases if t.member in reflected),
            "fresh": failures * (len(bases) - 1),  # pairs of a failure and another attempt at its task
            "fresh_solved": failures * solved,
        }
        for name, count in counted.items():
            ctx.counters[f"adaptive/{name}"] += count
        return groups

    def share(self, history: Sequence[Mapping[str, float]]) -> float:
        """The share of attempts to reflect on, from the metrics of earlier updates; 1 before there are any."""
        recent = history[-self.settings.window :]

        def total(*names: str) -> float:
            return sum(metrics.get(name, 0.0) for name in names for metrics in recent)

        failures, pairs = total("adaptive/failures_reflected"), total("adaptive/fresh")
        if not failures or not pairs:
            return 1.0
        # Every failure is paired with several attempts, so pairs are no independent draws: failures are.
        attempts = min(pairs, total("adaptive/bases"))
        place = total("tokens/reflection", "tokens/retry") / total("adaptive/reflected")
        attempt = total("tokens/rollout") / total("adaptive/bases")
        guided, guided_variance = _rate(total("retry/rescued"), failures)
        fresh, fresh_variance = _rate(total("adaptive/fresh_solved") * attempts / pairs, attempts)
        difference = guided / place - fresh / attempt
        deviation = sqrt(guided_variance / place**2 + fresh_variance / attempt**2)
        return max(self.settings.floor, 0.5 * (1 + erf(difference / deviation / sqrt(2))))


def _rate(successes: float, trials: float) -> tuple[float, float]:
    """Mean and variance of a rate after ``trials``, one success and one failure added (Laplace's rule)."""
    mean = (successes + 1) / (trials + 2)
    return mean, mean * (1 - mean) / (trials + 3)
