"""From attempts to measures, each with an interval over tasks.

Attempts at one task are alike, so tasks are what is drawn: 95 % percentiles of the measure over tasks drawn with
replacement, all attempts of a drawn task with it (the cluster bootstrap; Davison and Hinkley 1997, Bootstrap Methods
and their Application, section 3.8; Field and Welsh 2007). It serves shares, means, ratios of two rates and paired
differences alike. A share of 0 or 1 has no spread to draw from: its interval is Wilson's over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from r3l.core.audits import GRADES, Agreement
from r3l.core.environment import StopReason
from r3l.core.seeds import generator
from r3l.evaluation.statistics import LEVEL, wilson_bounds
from r3l.probe.records import Attempt, Regime, Try

RESAMPLES = 2000
Floats = NDArray[np.float64]
Read = Callable[[Attempt], float | None]  # None: the attempt has nothing to say
TryOf = Callable[[Attempt], Try | None]


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
    """The mean of something that is so (1) or not (0)."""
    return _of_share(mean(attempts, read))


def _of_share(measure: Measure) -> Measure:
    """With Wilson's interval where a share is 0 or 1 in every task."""
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


def per_1000(attempts: Sequence[Attempt], tried: TryOf) -> Measure:
    """Successes of retries for every 1,000 tokens that they took."""
    reads: list[Read] = [lambda a: _success(tried(a)), lambda a: _tokens(tried(a))]
    return _estimate(attempts, reads, lambda s, c: 1000 * s[..., 0] / s[..., 1])


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
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # a draw in which nothing could be counted
    if seen < 2 or not len(drawn_R):
        return Measure(_finite(value), n, seen)
    bounds = np.quantile(drawn_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Measure(_finite(value), n, seen, _finite(bounds[0]), _finite(bounds[1]), "bootstrap over tasks")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _success(tried: Try | None) -> float | None:
    return None if tried is None else float(tried.success)


def _tokens(tried: Try | None) -> float | None:
    return None if tried is None else float(tried.tokens)


def _own(name: str) -> TryOf:
    return lambda attempt: getattr(attempt.own, name, None)


def _critic(name: str) -> TryOf:
    return lambda attempt: getattr(attempt.critic, name, None)


def _at_pivot(right: bool) -> Read:
    """The success of a guided retry from a right pivot, or from a wrong one."""

    def read(attempt: Attempt) -> float | None:
        agrees = attempt.own.agrees if attempt.own else None
        return _success(attempt.own.guided) if attempt.own and agrees and agrees.near is right else None

    return read


def _minus(first: TryOf, second: TryOf) -> Read:
    def read(attempt: Attempt) -> float | None:
        one, other = first(attempt), second(attempt)
        return None if one is None or other is None else float(one.success) - float(other.success)

    return read


def _failed(read: Callable[[Attempt], float]) -> Read:
    return lambda attempt: None if attempt.success or attempt.own is None else read(attempt)


def _agreement(read: Callable[[Agreement], bool]) -> Read:
    return lambda a: None if a.own is None or a.own.agrees is None else float(read(a.own.agrees))


def _graded(grade: str) -> Read:
    return _agreement(lambda agrees: agrees.grade == grade)


def _stopped_by(stop: StopReason) -> Read:
    return lambda a: float(a.stop is stop)


def measures(regime: Regime) -> dict[str, Measure]:
    """Every measure of a card by its key."""
    attempts = regime.attempts
    return _base(regime) | _reflections(attempts) | _retries(attempts) | _actions(regime)


def _base(regime: Regime) -> dict[str, Measure]:
    attempts, (easy, *others) = regime.attempts, regime.halves

    def success_in(group: str) -> Read:
        return lambda a: float(a.success) if a.group == group else None

    found = {"success": share(attempts, lambda a: float(a.success)), "success_easy": share(attempts, success_in(easy))}
    if others:
        found["success_hard"] = share(attempts, success_in(others[-1]))
        found["easy_minus_hard"] = difference(attempts, success_in(easy), success_in(others[-1]))
    found["reward"] = mean(attempts, lambda a: a.reward)
    found["unusable"] = share(attempts, lambda a: float(a.unusable))
    for stop in StopReason:
        found[f"stop_{stop}"] = share(attempts, _stopped_by(stop))
    found["turns"] = mean(attempts, lambda a: float(a.turns))
    found["tokens"] = mean(attempts, lambda a: float(a.tokens))
    return found | {"expert_success": _of_expert(regime)}


def _of_expert(regime: Regime) -> Measure:
    """Each task once: Wilson's interval."""
    if not regime.expert:
        return Measure(None, 0, 0)
    n, rate = len(regime.expert), sum(regime.expert.values()) / len(regime.expert)
    return Measure(rate, n, n, *wilson_bounds(rate, n), "Wilson over tasks")


def _reflections(attempts: Sequence[Attempt]) -> dict[str, Measure]:
    return {
        "critic_names": share(attempts, _failed(lambda a: float(a.critic is not None and a.critic.cause is not None))),
        "reflections_valid": share(attempts, lambda a: None if a.own is None else float(a.own.invalid is None)),
        "oracle_exact": share(attempts, _agreement(lambda agrees: agrees.exact)),
        "oracle_near": share(attempts, _agreement(lambda agrees: agrees.near)),
        **{f"diagnosis_{grade}": share(attempts, _graded(grade)) for grade in GRADES},
    }


def _retries(attempts: Sequence[Attempt]) -> dict[str, Measure]:
    guided, unguided, from_start = _own("guided"), _own("unguided"), _own("from_start")
    shown, alone = _critic("guided"), _critic("unguided")
    fresh = fresh_samples(attempts)

    def fresh_of(attempt: Attempt) -> Try | None:
        return fresh.get((attempt.task, attempt.member)) if guided(attempt) else None

    found = {
        "retry_success": share(attempts, lambda a: _success(guided(a))),
        "retry_improved": share(attempts, lambda a: None if (t := guided(a)) is None else float(t.improved)),
        "retry_right": share(attempts, _at_pivot(True)),
        "retry_wrong": share(attempts, _at_pivot(False)),
        "right_over_wrong": ratio(attempts, _at_pivot(True), _at_pivot(False)),
        "retry_unusable": share(attempts, lambda a: None if (t := guided(a)) is None else float(t.unusable)),
        "unguided_success": share(attempts, lambda a: _success(unguided(a))),
        "guided_minus_unguided": mean(attempts, _minus(guided, unguided)),
        "from_start_success": share(attempts, lambda a: _success(from_start(a))),
        "fresh_success": share(attempts, lambda a: _success(fresh_of(a))),
        "guided_minus_fresh": mean(attempts, _minus(guided, fresh_of)),
    }
    by_name = {"guided": guided, "unguided": unguided, "from_start": from_start, "fresh": fresh_of}
    for name, tried in by_name.items():
        found[f"{name}_per_1000"] = per_1000(attempts, tried)
    return found | {
        "critic_guided": share(attempts, lambda a: _success(shown(a))),
        "critic_unguided": share(attempts, lambda a: _success(alone(a))),
        "critic_guided_minus_unguided": mean(attempts, _minus(shown, alone)),
    }


def fresh_samples(attempts: Iterable[Attempt]) -> dict[tuple[str, int], Try]:
    """To each attempt, by task and number, another at the same task: the next one, to the last the first."""
    of_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        of_task.setdefault(attempt.task, []).append(attempt)
    return {
        (one.task, one.member): Try(other.success, other.reward > one.reward, other.tokens)
        for several in of_task.values()
        if len(several) > 1
        for one, other in zip(several, [*several[1:], several[0]], strict=True)
    }


def _actions(regime: Regime) -> dict[str, Measure]:
    """What is about actions; nothing of it where responses are answers."""
    attempts = regime.attempts if regime.has_actions else []

    def followed(tried: TryOf) -> Measure:
        return share(attempts, lambda a: None if (t := tried(a)) is None or t.followed is None else float(t.followed))

    def shown(attempt: Attempt) -> float:
        return float(attempt.shown)

    copied = _estimate(attempts, [shown, lambda a: float(a.actions)], lambda s, c: s[..., 0] / s[..., 1])
    return {
        "hint_followed": followed(_critic("guided")),
        "own_hint_followed": followed(_own("guided")),
        "names_shown": replace(_of_share(copied), n=sum(attempt.actions for attempt in attempts)),
    }
