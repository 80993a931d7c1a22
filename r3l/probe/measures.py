"""From attempts to measures, each with an interval over tasks.

Attempts at one task are alike, so tasks are resampled: 95 % percentiles of the measure over tasks drawn with
replacement, all attempts of a drawn task with it (the cluster bootstrap; Davison and Hinkley 1997, Bootstrap Methods
and their Application, section 3.8; Field and Welsh 2007). The same interval serves shares, means, ratios of two rates
and paired differences. A share that is 0 or 1 in every task has no spread to resample: its interval is Wilson's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from r3l.core.audits import GRADES, Agreement
from r3l.core.environment import StopReason
from r3l.core.seeds import generator
from r3l.evaluation.statistics import LEVEL, wilson_bounds
from r3l.probe.play import INVALID, Attempt, Outcome, Played

RESAMPLES = 2000
Floats = NDArray[np.float64]
Read = Callable[[Attempt], float | None]  # None: the attempt does not count
OutcomeOf = Callable[[Attempt], Outcome | None]
T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """``value`` is None where nothing could be counted. ``n`` observations of ``tasks`` tasks; bounds of 95 %, None
    where they do not exist (a ratio whose lower rate may be 0 has no upper bound).
    """

    value: float | None
    n: int
    tasks: int
    low: float | None = None
    high: float | None = None
    interval: str = ""


def mean(attempts: Sequence[Attempt], read: Read) -> Measure:
    """Of ``read`` over attempts."""
    return _estimate(attempts, [read], lambda sums, counts: sums[..., 0] / counts[..., 0])


def share(attempts: Sequence[Attempt], read: Read) -> Measure:
    """The mean of something that is true (1) or false (0)."""
    return _of_share(mean(attempts, read))


def _of_share(measure: Measure) -> Measure:
    if measure.value not in (0.0, 1.0) or measure.low != measure.high:
        return measure
    low, high = wilson_bounds(measure.value, measure.tasks)
    return replace(measure, low=low, high=high, interval="Wilson over tasks")


def ratio(attempts: Sequence[Attempt], upper: Read, lower: Read) -> Measure:
    """The mean of ``upper`` over the mean of ``lower``, each over the attempts that have it."""
    return _estimate(attempts, [upper, lower], lambda s, c: (s[..., 0] / c[..., 0]) / (s[..., 1] / c[..., 1]))


def difference(attempts: Sequence[Attempt], first: Read, second: Read) -> Measure:
    """The mean of ``first`` minus that of ``second``, each over the attempts that have it."""
    return _estimate(attempts, [first, second], lambda s, c: s[..., 0] / c[..., 0] - s[..., 1] / c[..., 1])


def _estimate(
    attempts: Sequence[Attempt], reads: Sequence[Read], combine: Callable[[Floats, Floats], Floats]
) -> Measure:
    """``combine`` of the sums and counts of ``reads`` over attempts (last axis), with its interval."""
    tasks = {task: k for k, task in enumerate(sorted({attempt.task for attempt in attempts}))}
    sums_T_C, counts_T_C = np.zeros((2, len(tasks), len(reads)))
    for attempt in attempts:
        for c, read in enumerate(reads):
            if (value := read(attempt)) is not None:
                sums_T_C[tasks[attempt.task], c] += value
                counts_T_C[tasks[attempt.task], c] += 1
    n, seen = int(counts_T_C.sum(axis=0).max(initial=0)), int(counts_T_C.any(axis=1).sum())
    if not n:
        return Measure(None, 0, 0)
    drawn_R_T = generator("regime", "bootstrap").multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), RESAMPLES)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(combine(sums_T_C.sum(axis=0), counts_T_C.sum(axis=0)))
        drawn_R = combine(drawn_R_T @ sums_T_C, drawn_R_T @ counts_T_C)
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # a resample in which nothing could be counted
    if seen < 2 or not len(drawn_R):
        return Measure(_finite(value), n, seen)
    bounds = np.quantile(drawn_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Measure(_finite(value), n, seen, _finite(bounds[0]), _finite(bounds[1]), "bootstrap over tasks")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def measures(played: Played) -> dict[str, Measure]:
    """Every measure of a probe by its key, as stored files have it."""
    return _attempts(played) | _reflections(played.attempts) | _retries(played.attempts) | _actions(played.attempts)


def _attempts(played: Played) -> dict[str, Measure]:
    attempts, halves = played.attempts, played.halves

    def success_in(group: str) -> Read:
        return lambda a: float(a.success) if a.group == group else None

    found = {
        "success": share(attempts, lambda a: float(a.success)),
        "success_easy": share(attempts, success_in(halves[0])),
    }
    if len(halves) > 1:
        found["success_hard"] = share(attempts, success_in(halves[-1]))
        found["easy_minus_hard"] = difference(attempts, success_in(halves[0]), success_in(halves[-1]))
    found["reward"] = mean(attempts, lambda a: a.reward)
    found["unusable"] = share(attempts, lambda a: float(a.stop in INVALID))
    for stop in StopReason:
        found[f"stop_{stop}"] = share(attempts, lambda a, stop=stop: float(a.stop is stop))  # type: ignore[misc]
    found["turns"] = mean(attempts, lambda a: float(a.turns))
    found["tokens"] = mean(attempts, lambda a: float(a.tokens))
    found["expert_success"] = Measure(None, 0, 0)
    if expert := played.expert:  # each task once: Wilson's interval
        n, rate = len(expert), sum(expert.values()) / len(expert)
        found["expert_success"] = Measure(rate, n, n, *wilson_bounds(rate, n), "Wilson over tasks")
    return found


def _of(get: Callable[[Attempt], T | None], value: Callable[[T], float]) -> Read:
    """``value`` of a part of an attempt, for the attempts that have the part."""
    return lambda attempt: None if (part := get(attempt)) is None else float(value(part))


def _own(name: str) -> OutcomeOf:
    return lambda attempt: getattr(attempt.own, name, None)


def _critic(name: str) -> OutcomeOf:
    return lambda attempt: getattr(attempt.critic, name, None)


def _agrees(attempt: Attempt) -> Agreement | None:
    return attempt.own.agrees if attempt.own else None


def _success(of: OutcomeOf) -> Read:
    return _of(of, lambda outcome: outcome.success)


def _minus(first: OutcomeOf, second: OutcomeOf) -> Read:
    """The difference of two successes after one attempt, where both were tried."""

    def read(attempt: Attempt) -> float | None:
        one, other = first(attempt), second(attempt)
        return None if one is None or other is None else float(one.success) - float(other.success)

    return read


def _reflections(attempts: Sequence[Attempt]) -> dict[str, Measure]:
    def named(attempt: Attempt) -> float | None:
        critic = attempt.critic
        return None if attempt.own is None else float(critic is not None and critic.cause is not None)

    return {
        "critic_names": share(attempts, named),
        "reflections_valid": share(attempts, _of(lambda a: a.own, lambda own: own.invalid is None)),
        "oracle_exact": share(attempts, _of(_agrees, lambda agrees: agrees.exact)),
        "oracle_near": share(attempts, _of(_agrees, lambda agrees: agrees.near)),
        **{
            f"diagnosis_{grade}": share(attempts, _of(_agrees, lambda agrees, grade=grade: agrees.grade == grade))  # type: ignore[misc]
            for grade in GRADES
        },
    }


def _retries(attempts: Sequence[Attempt]) -> dict[str, Measure]:
    guided, unguided, from_start = _own("guided"), _own("unguided"), _own("from_start")
    by_critic, unguided_by_critic = _critic("guided"), _critic("unguided")
    others = fresh_attempts(attempts)

    def fresh(attempt: Attempt) -> Outcome | None:
        return others.get((attempt.task, attempt.member)) if guided(attempt) else None

    def at_pivot(right: bool) -> Read:
        return lambda a: _success(guided)(a) if (agrees := _agrees(a)) and agrees.near is right else None

    def per_1000(of: OutcomeOf) -> Measure:
        """Successes for every 1,000 generated tokens."""
        reads = [_success(of), _of(of, lambda outcome: outcome.tokens)]
        return _estimate(attempts, reads, lambda s, c: 1000 * s[..., 0] / s[..., 1])

    tried = {"guided": guided, "unguided": unguided, "from_start": from_start, "fresh": fresh}
    return {
        "retry_success": share(attempts, _success(guided)),
        "retry_improved": share(attempts, _of(guided, lambda outcome: outcome.improved)),
        "retry_right": share(attempts, at_pivot(True)),
        "retry_wrong": share(attempts, at_pivot(False)),
        "right_over_wrong": ratio(attempts, at_pivot(True), at_pivot(False)),
        "retry_unusable": share(attempts, _of(guided, lambda outcome: outcome.invalid)),
        "unguided_success": share(attempts, _success(unguided)),
        "guided_minus_unguided": mean(attempts, _minus(guided, unguided)),
        "from_start_success": share(attempts, _success(from_start)),
        "fresh_success": share(attempts, _success(fresh)),
        "guided_minus_fresh": mean(attempts, _minus(guided, fresh)),
        **{f"{name}_per_1000": per_1000(of) for name, of in tried.items()},
        "critic_guided": share(attempts, _success(by_critic)),
        "critic_unguided": share(attempts, _success(unguided_by_critic)),
        "critic_guided_minus_unguided": mean(attempts, _minus(by_critic, unguided_by_critic)),
    }


def fresh_attempts(attempts: Sequence[Attempt]) -> dict[tuple[str, int], Outcome]:
    """For each attempt, by task and number, another one at the same task: the next, and for the last the first."""
    of_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        of_task.setdefault(attempt.task, []).append(attempt)
    return {
        (one.task, one.member): Outcome(other.success, other.reward > one.reward, other.tokens)
        for several in of_task.values()
        if len(several) > 1
        for one, other in zip(several, [*several[1:], several[0]], strict=True)
    }


def _actions(attempts: Sequence[Attempt]) -> dict[str, Measure]:
    def followed(of: OutcomeOf) -> Measure:
        return share(attempts, _of(lambda a: (outcome := of(a)) and outcome.followed, float))

    reads = [_of(lambda a: a.actions and a.shown, float), lambda a: a.actions]
    copied = _estimate(attempts, reads, lambda s, c: s[..., 0] / s[..., 1])
    return {
        "hint_followed": followed(_critic("guided")),
        "own_hint_followed": followed(_own("guided")),
        "names_shown": replace(_of_share(copied), n=sum(attempt.actions or 0 for attempt in attempts)),
    }
