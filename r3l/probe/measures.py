"""The measures of a probe (:data:`SECTIONS`), each with an interval over tasks (r3l.probe.bootstrap)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from r3l.core.environment import StopReason
from r3l.core.trajectory import UNLIKELY
from r3l.feedback.audits import Agreement
from r3l.probe.attempts import INVALID, Attempt, Logprobs, Outcome, OwnReflection, Played
from r3l.probe.bootstrap import (
    Measure,
    Read,
    bounded_share,
    difference,
    mean,
    paired_difference,
    ratio,
    resampled,
    share,
)
from r3l.stats.intervals import wilson_bounds

OutcomeOf = Callable[[Attempt], Outcome | None]
T = TypeVar("T")
Estimate = Callable[[Played], Measure]


def _of(get: Callable[[Attempt], T | None], value: Callable[[T], float]) -> Read:
    """``value`` of a part of an attempt, for the attempts that have the part."""
    return lambda attempt: None if (part := get(attempt)) is None else float(value(part))


def _own(name: str) -> OutcomeOf:
    """After a failure."""
    return lambda attempt: None if attempt.success else getattr(attempt.own, name, None)


def _any(name: str) -> OutcomeOf:
    """After any attempt, a success too."""
    return lambda attempt: getattr(attempt.own, name, None)


def _critic(name: str) -> OutcomeOf:
    return lambda attempt: getattr(attempt.critic, name, None)


def _agrees(attempt: Attempt) -> Agreement | None:
    return own.agrees if (own := _failed(attempt)) else None


def _success(of: OutcomeOf) -> Read:
    return _of(of, lambda outcome: outcome.success)


def _followed(of: OutcomeOf) -> Read:
    def read(attempt: Attempt) -> float | None:
        outcome = of(attempt)
        return None if outcome is None or outcome.followed is None else float(outcome.followed)

    return read


def _graded(grade: str) -> Read:
    return _of(_agrees, lambda agrees: agrees.grade == grade)


def _at_pivot(right: bool) -> Read:
    """Success of a guided retry from a right pivot, or from a wrong one."""
    return lambda a: _success(_own("guided"))(a) if (agrees := _agrees(a)) and agrees.near is right else None


def _names_cause(attempt: Attempt) -> float | None:
    critic = attempt.critic
    return None if _failed(attempt) is None else float(critic is not None and critic.cause is not None)


def _of_critic(played: Played) -> Measure:
    """Of failures, those whose cause it names; nothing where it never spoke, as where the environment has none."""
    spoke = any(attempt.critic for attempt in played.attempts)
    return share(played.attempts if spoke else [], _names_cause)


def _failed(attempt: Attempt) -> OwnReflection | None:
    """The reflection on a failure."""
    return None if attempt.success else attempt.own


def _right(success: bool | None = None) -> Read:
    """Whether a valid reflection says how the attempt went; ``success``: of attempts that went so."""

    def read(attempt: Attempt) -> float | None:
        if attempt.own is None or attempt.own.right is None or success not in (None, attempt.success):
            return None
        return float(attempt.own.right)

    return read


def _share(read: Read) -> Estimate:
    return lambda played: share(played.attempts, read)


def _mean(read: Read) -> Estimate:
    return lambda played: mean(played.attempts, read)


def _minus(first: OutcomeOf, second: OutcomeOf) -> Estimate:
    """The mean difference of two successes after one attempt, where both were tried."""

    def read(attempt: Attempt) -> float | None:
        one, other = first(attempt), second(attempt)
        return None if one is None or other is None else float(one.success) - float(other.success)

    return _difference(read)


def _difference(read: Read) -> Estimate:
    return lambda played: paired_difference(played.attempts, read)


def _equal(attempt: Attempt) -> float | None:
    return None if attempt.success or attempt.own is None else attempt.own.equal


def _guided_minus_equal(attempt: Attempt) -> float | None:
    """Success of a guided retry minus that of fresh attempts of as many tokens."""
    equal, guided = _equal(attempt), _own("guided")(attempt)
    return None if equal is None or guided is None else guided.success - equal


def _short(attempt: Attempt) -> float | None:
    return None if attempt.own is None or _equal(attempt) is None else float(attempt.own.short)


def _scored(attempt: Attempt, success: bool) -> Logprobs | None:
    """Of the guided retry after any attempt; ``success``: where it succeeded."""
    guided = _any("guided")(attempt)
    return guided.logprobs if guided and (guided.success or not success) else None


def _over_tokens(total: Callable[[Logprobs], float], success: bool = True) -> Estimate:
    """The mean over the tokens of guided retries."""
    reads = [_of(partial(_scored, success=success), of) for of in (total, lambda logprobs: len(logprobs.under))]
    return lambda played: resampled(played.attempts, reads, lambda s, c: s[..., 0] / s[..., 1])


def _gap(logprobs: Logprobs) -> float:
    return sum(logprobs.under) - sum(logprobs.without)


def _unlikely(logprobs: Logprobs) -> int:
    return sum(value < UNLIKELY for value in logprobs.without)


def _p99(tokens: Callable[[Logprobs], Sequence[float]]) -> Estimate:
    """The 99th percentile of -log p over the tokens of successful guided retries, without an interval."""

    def estimate(played: Played) -> Measure:
        found = [(a.task, logprobs) for a in played.attempts if (logprobs := _scored(a, True))]
        surprises = [-value for _, logprobs in found for value in tokens(logprobs)]
        value = float(np.quantile(surprises, 0.99, method="inverted_cdf")) if surprises else None
        return Measure(value, len(found), len({task for task, _ in found}))

    return estimate


def _per_1000(of: OutcomeOf) -> Estimate:
    """Successes for every 1,000 generated tokens."""
    reads = [_success(of), _of(of, lambda outcome: outcome.tokens)]
    return lambda played: resampled(played.attempts, reads, lambda s, c: 1000 * s[..., 0] / s[..., 1])


def _success_in(played: Played, half: int) -> Read:
    group = played.halves[half]
    return lambda a: float(a.success) if a.group == group else None


def _of_expert(played: Played) -> Measure:
    if not played.expert:
        return Measure(None, 0, 0)
    n, rate = len(played.expert), sum(played.expert.values()) / len(played.expert)
    return Measure(rate, n, n, *wilson_bounds(rate, n), "Wilson over tasks")  # each task once


def _names_shown(played: Played) -> Measure:
    reads = [_of(lambda a: a.actions and a.shown, float), lambda a: a.actions]
    copied = bounded_share(resampled(played.attempts, reads, lambda s, c: s[..., 0] / s[..., 1]))
    return replace(copied, n=sum(attempt.actions or 0 for attempt in played.attempts))


def _distinct(played: Played) -> Measure:
    """As the metric of training; without an interval, since tasks drawn twice hold the same texts."""
    texts = [a.own.text for a in played.attempts if a.own]
    return Measure(len(set(texts)) / len(texts) if texts else None, len(texts), 0)


SECTIONS: dict[str, dict[str, tuple[str, Estimate]]] = {  # of the table: (label, estimate) by the key in stored files
    "Attempts": {
        "success": ("success", _share(lambda a: a.success)),
        "success_easy": ("success, easy half", lambda p: share(p.attempts, _success_in(p, 0))),
        "success_hard": ("success, hard half", lambda p: share(p.attempts, _success_in(p, -1))),
        "easy_minus_hard": (
            "easy minus hard",
            lambda p: difference(p.attempts, _success_in(p, 0), _success_in(p, -1)),
        ),
        "reward": ("mean reward", _mean(lambda a: a.reward)),
        "expert_success": ("success of the error-free expert", _of_expert),
        "unusable": ("ended by an invalid response", _share(lambda a: a.stop in INVALID)),
        "turns": ("turns", _mean(lambda a: a.turns)),
        "tokens": ("generated tokens", _mean(lambda a: a.tokens)),
    },
    "How attempts end": {
        f"stop_{stop}": (stop.value, _share(partial(lambda stop, a: a.stop is stop, stop))) for stop in StopReason
    },
    "Reflections on all attempts": {
        "reflections_valid_all": ("valid", _share(_of(lambda a: a.own, lambda own: own.invalid is None))),
        "reflections_distinct": ("different texts among all", _distinct),
        "outcome_right": ("outcome right, of the valid", _share(_right())),
        "outcome_right_failed": ("after a failure", _share(_right(False))),
        "outcome_right_solved": ("after a success", _share(_right(True))),
    },
    "Diagnosis of failures": {
        "critic_names": ("the critic names a cause", _of_critic),
        "reflections_valid": ("valid reflections", _share(_of(_failed, lambda own: own.invalid is None))),
        "oracle_exact": ("pivot is the critic's", _share(_of(_agrees, lambda agrees: agrees.exact))),
        "oracle_near": ("pivot within one turn of the critic's", _share(_of(_agrees, lambda agrees: agrees.near))),
        "diagnosis_accurate": ("pivot and cause right", _share(_graded("accurate"))),
        "diagnosis_partial": ("one of them right", _share(_graded("partial"))),
        "diagnosis_wrong": ("neither right", _share(_graded("wrong"))),
    },
    "Retries of failures, own reflection": {
        "retry_success": ("guided, from the pivot", _share(_success(_own("guided")))),
        "retry_improved": ("better than the attempt", _share(_of(_own("guided"), lambda outcome: outcome.improved))),
        "retry_right": ("guided, right pivot", _share(_at_pivot(True))),
        "retry_wrong": ("guided, wrong pivot", _share(_at_pivot(False))),
        "right_over_wrong": ("right over wrong", lambda p: ratio(p.attempts, _at_pivot(True), _at_pivot(False))),
        "retry_unusable": (
            "guided, ended by an invalid response",
            _share(_of(_own("guided"), lambda outcome: outcome.invalid)),
        ),
        "unguided_success": ("unguided, from the same pivot", _share(_success(_own("unguided")))),
        "guided_minus_unguided": ("guided minus unguided", _minus(_own("guided"), _own("unguided"))),
        "from_start_success": ("guided, from the start", _share(_success(_own("from_start")))),
        "guided_minus_from_start": ("guided minus from the start", _minus(_own("guided"), _own("from_start"))),
        "fresh_success": ("a fresh attempt", _share(_success(_own("fresh")))),
        "guided_minus_fresh": ("guided minus fresh", _minus(_own("guided"), _own("fresh"))),
        "fresh_equal": ("fresh attempts of equal tokens", _share(_equal)),
        "guided_minus_fresh_equal": ("guided minus fresh, equal tokens", _difference(_guided_minus_equal)),
        "fresh_short": ("too few fresh attempts for its tokens", _share(_short)),
        "guided_per_1000": ("successes in 1,000 tokens: guided", _per_1000(_own("guided"))),
        "unguided_per_1000": ("unguided", _per_1000(_own("unguided"))),
        "from_start_per_1000": ("guided, from the start", _per_1000(_own("from_start"))),
        "fresh_per_1000": ("a fresh attempt", _per_1000(_own("fresh"))),
    },
    "Retries of all attempts, own reflection": {
        "retry_success_all": ("guided, from the pivot", _share(_success(_any("guided")))),
        "unguided_success_all": ("unguided, from the same pivot", _share(_success(_any("unguided")))),
        "guided_minus_unguided_all": ("guided minus unguided", _minus(_any("guided"), _any("unguided"))),
        "fresh_success_all": ("a fresh attempt", _share(_success(_any("fresh")))),
        "guided_minus_fresh_all": ("guided minus fresh", _minus(_any("guided"), _any("fresh"))),
    },
    "Tokens of guided retries, with and without the hint": {
        "hint_gap": ("log p with minus without, of successes (nats)", _over_tokens(_gap)),
        "hint_gap_all": ("the same of all", _over_tokens(_gap, success=False)),
        "hint_p99": ("99th percentile of -log p without, of successes", _p99(lambda logprobs: logprobs.without)),
        "hint_p99_under": ("with", _p99(lambda logprobs: logprobs.under)),
        "hint_unlikely": (f"log p without below {UNLIKELY:g}, of successes", _over_tokens(_unlikely)),
    },
    "Retries of failures, the critic's reflection": {
        "critic_guided": ("guided, from its pivot", _share(_success(_critic("guided")))),
        "critic_unguided": ("unguided, from its pivot", _share(_success(_critic("unguided")))),
        "critic_guided_minus_unguided": ("guided minus unguided", _minus(_critic("guided"), _critic("unguided"))),
    },
    "Actions": {
        "hint_followed": ("the critic's hint is the first action", _share(_followed(_critic("guided")))),
        "own_hint_followed": ("the model's own hint is the first action", _share(_followed(_own("guided")))),
        "names_shown": ("name only what was shown", _names_shown),
    },
}
OF_HALVES = {"success_easy", "success_hard", "easy_minus_hard"}


def measures(played: Played) -> dict[str, Measure]:
    """Every measure of a probe by its key."""
    played = replace(played, attempts=with_fresh_attempts(played.attempts))
    found = {key: estimate(played) for keys in SECTIONS.values() for key, (_, estimate) in keys.items()}
    return {key: m for key, m in found.items() if len(played.halves) == 2 or key not in OF_HALVES}


def with_fresh_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Retried attempts with others at the same task beside them: the next ones, after the last the first."""
    of_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        of_task.setdefault(attempt.task, []).append(attempt)
    places: Counter[str] = Counter()
    found = []
    for one in attempts:
        several, place = of_task[one.task], places[one.task]
        places[one.task] += 1
        others = several[place + 1 :] + several[:place]
        if one.own and one.own.guided and others:
            fresh = Outcome(others[0].success, others[0].reward > one.reward, others[0].tokens)
            equal, short = equal_tokens(others, one.own.guided.tokens)
            one = replace(one, own=replace(one.own, fresh=fresh, equal=equal, short=short))
        found.append(one)
    return found


def equal_tokens(others: Sequence[Attempt], tokens: int) -> tuple[float, bool]:
    """Chance that one of ``others``, played one after the other, succeeds within ``tokens``; one that they are not
    enough for counts by the share that they are. Then whether they were enough for more than all of ``others``."""
    for other in others:
        if other.tokens > tokens:
            return other.success * tokens / other.tokens, False
        if other.success:
            return 1.0, False
        tokens -= other.tokens
    return 0.0, tokens > 0
