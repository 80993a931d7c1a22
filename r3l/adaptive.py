"""Adaptive R3L: reflect and retry only as long as that solves more failures per token than a fresh attempt.

R3L spends half of its rollouts on guided retries throughout training. Whether that pays changes while a model
trains: at first its hints solve failures that fresh attempts do not; later fresh attempts solve most tasks
and reflections get worse. This method measures both on its own rollouts and follows the better one. Our own
method.

A group has N // 2 slots for an attempt with its retry. A slot is used as in R3L with probability ``share``,
else for two fresh attempts. After the first update, ``share`` is the probability, given the last ``window``
updates, that a guided retry of a failed attempt is worth more per sampled token than a fresh attempt at its
task::

    guided = rescued failures / retries of failures reflected on   cost: reflection and retry, tokens per slot
    fresh  = successes of the other attempts at tasks with a failure, one failure left out at a time
             / such attempts                                       cost: tokens per attempt
    share  = P(guided / cost > fresh / cost), by normal approximation, at least ``floor``

The floor keeps measuring retries after they have stopped paying. Window and floor were fixed before any run.
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
    """R3L's options, and two for ``share``, the probability with which an attempt is reflected on.

    ``window``: number of latest updates from which it is estimated. ``floor``: its smallest value.
    """

    window: int = option(
        10,
        "recent updates from which the share is estimated",
        "our choice, before any run",
        ge=1,
    )
    floor: float = option(
        0.125,
        "smallest share of attempts to reflect on",
        "our choice, before any run",
        gt=0,
        le=1,
    )


class AdaptiveR3L(R3L):
    """R3L that reflects on each of its attempts only with probability :meth:`share`, estimated as it trains.

    The probability is that of a retry solving more failures per token than a fresh attempt, by the metrics of
    the last updates. The fewer it reflects on, the more of its N rollouts are fresh attempts instead of
    retries.
    """

    Settings = AdaptiveSettings
    settings: AdaptiveSettings
    needs_history = True

    def reflected_now(self, task: Task, ctx: RolloutContext) -> int:
        """Number of attempts at ``task`` to reflect on in this step, drawn by seed.

        Each attempt on which R3L would reflect is kept with probability :meth:`share` of ``ctx.history``.
        """
        draws = generator(*ctx.address, "adaptive", task.address).random(super().reflected_now(task, ctx))
        return int((draws < self.share(ctx.history)).sum())

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play a task as R3L does, and add the counts that :meth:`share` needs to ``ctx.counters``.

        The groups are R3L's; the counts are ``adaptive/...``, which reach ``ctx.history`` in later steps.
        """
        groups = await super().explore(task, ctx)
        bases = [t for t in groups[0].trajectories if t.kind is TrajectoryKind.BASE and not t.failed]
        reflections = (t for t in ctx.trajectories if t.kind is TrajectoryKind.REFLECTION)
        reflected = {t.member for t in reflections if t.task == task}
        failures = sum(not t.success for t in bases)
        solved = len(bases) - failures
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
        """The probability with which an attempt is reflected on, from ``floor`` to 1.

        It is the probability that a guided retry solves more failures per token than a fresh attempt, if
        their difference is normally distributed. ``history``: metrics of the earlier updates, of which only
        the last ``window`` are used. Returns 1 if in these updates no failure was reflected on, none of these
        failures has another attempt to compare with, or reflecting cost no tokens.
        """
        recent = history[-self.settings.window :]

        def total(*names: str) -> float:
            return sum(metrics.get(name, 0.0) for name in names for metrics in recent)

        # Each failure that is reflected on has ``retries`` trials.
        retries = self.settings.retries
        trials = total("adaptive/failures_reflected") * retries
        pairs = total("adaptive/fresh")
        if not trials or not pairs:
            return 1.0

        # Success rates. Every failure is paired with several attempts, so pairs are not independent: count
        # attempts.
        attempts = min(pairs, total("adaptive/bases"))
        guided, guided_variance = _rate(total("retry/rescued"), trials)
        fresh, fresh_variance = _rate(total("adaptive/fresh_solved") * attempts / pairs, attempts)

        # Costs in sampled tokens: a reflection, whoever samples it, with its retry; and a fresh attempt.
        guided_tokens = total("tokens/reflection", "tokens/judge", "tokens/retry")
        guided_cost = guided_tokens / (total("adaptive/reflected") * retries)
        fresh_cost = total("tokens/rollout") / total("adaptive/bases")
        if not guided_cost:  # the critic's reflections cost nothing, and none of them led to a retry
            return 1.0

        difference = guided / guided_cost - fresh / fresh_cost
        deviation = sqrt(guided_variance / guided_cost**2 + fresh_variance / fresh_cost**2)
        return max(self.settings.floor, 0.5 * (1 + erf(difference / deviation / sqrt(2))))


def _rate(successes: float, trials: float) -> tuple[float, float]:
    """Posterior mean and variance of a success rate under a uniform prior (Laplace's rule of succession)."""
    mean = (successes + 1) / (trials + 2)
    return mean, mean * (1 - mean) / (trials + 3)
