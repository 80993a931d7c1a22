"""The measures of a probe, SECTIONS: what is printed, and how it is estimated from the table of attempts.

Each measure has an interval over tasks (r3l.probe.bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from r3l.core.environment import StopReason
from r3l.core.trajectory import UNLIKELY
from r3l.probe.attempt_table import attempt_table
from r3l.probe.attempts import ProbeAttempts
from r3l.probe.bootstrap import (
    Measure,
    bounded_share,
    difference,
    mean,
    paired_difference,
    ratio,
    resampled,
    share,
)
from r3l.report.teachers import TEACHERS
from r3l.stats.intervals import wilson_bounds


def per_token(table: pd.DataFrame, count: str, tokens: str) -> Measure:
    """Mean per token, with an interval over tasks: sum of column ``count`` / sum of ``tokens``."""
    return resampled(table, [count, tokens], lambda s, c: s[..., 0] / s[..., 1])


def difference_per_token(
    table: pd.DataFrame, gap: str, tokens: str, other_gap: str, other_tokens: str
) -> Measure:
    """Difference of two means per token, with a bootstrap interval over tasks.

    It is sum(``gap``) / sum(``tokens``) - sum(``other_gap``) / sum(``other_tokens``), over columns.
    """
    columns = [gap, tokens, other_gap, other_tokens]
    return resampled(table, columns, lambda s, c: s[..., 0] / s[..., 1] - s[..., 2] / s[..., 3])


def difference_same_task(
    table: pd.DataFrame, gap: str, tokens: str, other_gap: str, other_tokens: str
) -> Measure:
    """The same difference between attempts at one task, averaged over the tasks that have both kinds.

    Successes are mostly of easy tasks and failures of hard ones, so that the difference over all attempts
    also compares tasks. Of a task with m tokens of the one kind and n of the other, the difference of the two
    means weighs m n / (m + n): the weights of a regression on the kind with an effect for each task. ``n``:
    the number of tasks with both; the bootstrap draws from these.
    """
    sums = table.groupby("task", as_index=False)[[gap, tokens, other_gap, other_tokens]].sum(min_count=1)
    both = sums.dropna()
    weight = both[tokens] * both[other_tokens] / (both[tokens] + both[other_tokens])
    lead = both[gap] / both[tokens] - both[other_gap] / both[other_tokens]
    of_tasks = pd.DataFrame({"task": both.task, "lead": weight * lead, "weight": weight})
    return resampled(of_tasks, ["lead", "weight"], lambda s, c: s[..., 0] / s[..., 1])


def share_of_actions(table: pd.DataFrame, count: str, actions: str) -> Measure:
    """A share of actions, the sum of column ``count`` / the sum of ``actions``; ``n`` counts actions.

    The interval is from the bootstrap over tasks, or Wilson's if the share is 0 or 1 in every task.
    """
    copied = bounded_share(per_token(table, count, actions))
    return replace(copied, n=int(table[actions].sum()))


def per_1000(table: pd.DataFrame, success: str, tokens: str) -> Measure:
    """Successes per 1,000 generated tokens, with an interval: 1000 x sum ``success`` / sum ``tokens``."""
    return resampled(table, [success, tokens], lambda s, c: 1000 * s[..., 0] / s[..., 1])


def _expert(probe: ProbeAttempts) -> Measure:
    """Success of the error-free expert, which plays each task once."""
    if not probe.expert:
        return Measure(None, 0, 0)
    n = len(probe.expert)
    rate = sum(probe.expert.values()) / n
    return Measure(rate, n, n, *wilson_bounds(rate, n), "Wilson over tasks")


def _distinct(probe: ProbeAttempts) -> Measure:
    """Different reflections among all; without an interval, since tasks drawn twice hold the same texts."""
    texts = [attempt.own.text for attempt in probe.attempts if attempt.own]
    return Measure(len(set(texts)) / len(texts) if texts else None, len(texts), 0)


def _p99(probe: ProbeAttempts, hinted: bool) -> Measure:
    """The 99th percentile of -log p over the tokens of successful guided retries, without an interval."""
    surprises = []
    tasks = []
    for attempt in probe.attempts:
        guided = attempt.own and attempt.own.guided
        if guided and guided.success and guided.logprobs:
            tasks.append(attempt.task)
            logprobs = guided.logprobs.under if hinted else guided.logprobs.without
            surprises += [-value for value in logprobs]
    value = float(np.quantile(surprises, 0.99, method="inverted_cdf")) if surprises else None
    return Measure(value, len(tasks), len(set(tasks)))


Estimate = Callable[..., Measure]
SAME_TASK = "the same of attempts at one task"


def _of_teacher(name: str) -> dict[str, tuple[str, Estimate, *tuple[str, ...]]]:
    """The measures of a teacher, as in SECTIONS: D on successes and failures, and its prompts."""
    solved = (f"{name}_gap_solved", f"{name}_tokens_solved")
    failed = (f"{name}_gap_failed", f"{name}_tokens_failed")
    return {
        f"{name}_gap_solved": ("log p with its hint minus without, of successes (nats)", per_token, *solved),
        f"{name}_gap_failed": ("of failures", per_token, *failed),
        f"{name}_difference": ("successes minus failures", difference_per_token, *solved, *failed),
        f"{name}_difference_same_task": (SAME_TASK, difference_same_task, *solved, *failed),
        f"{name}_shown": ("its prompt contains the hint", share, f"{name}_shown"),
    }


# Of the printed table: by the key in stored files a label, what is estimated, and from which columns.
# Estimates without columns read the attempts themselves.
SECTIONS: dict[str, dict[str, tuple[str, Estimate, *tuple[str, ...]]]] = {
    "Attempts": {
        "success": ("success", share, "success"),
        "success_easy": ("success, easy half", share, "success_easy"),
        "success_hard": ("success, hard half", share, "success_hard"),
        "easy_minus_hard": ("easy minus hard", difference, "success_easy", "success_hard"),
        "reward": ("mean reward", mean, "reward"),
        "expert_success": ("success of the error-free expert", _expert),
        "unusable": ("ended by an invalid response", share, "unusable"),
        "turns": ("turns", mean, "turns"),
        "tokens": ("generated tokens", mean, "tokens"),
    },
    "How attempts end": {f"stop_{stop}": (stop.value, share, f"stop_{stop}") for stop in StopReason},
    "Reflections on all attempts": {
        "reflections_valid_all": ("valid", share, "valid_all"),
        "reflections_distinct": ("different texts among all", _distinct),
        "outcome_right": ("outcome right, of the valid", share, "right_all"),
        "outcome_right_failed": ("after a failure", share, "right_failed"),
        "outcome_right_solved": ("after a success", share, "right_solved"),
    },
    "Diagnosis of failures": {
        "critic_names": ("the critic names a cause", share, "critic_names"),
        "reflections_valid": ("valid reflections", share, "valid"),
        "oracle_exact": ("pivot is the critic's", share, "exact"),
        "oracle_near": ("pivot within one turn of the critic's", share, "near"),
        "diagnosis_accurate": ("pivot and cause right", share, "accurate"),
        "diagnosis_partial": ("one of them right", share, "partial"),
        "diagnosis_wrong": ("neither right", share, "wrong"),
    },
    "Retries of failures, own reflection": {
        "retry_success": ("guided, from the pivot", share, "guided"),
        "retry_improved": ("better than the attempt", share, "improved"),
        "retry_right": ("guided, right pivot", share, "guided_right"),
        "retry_wrong": ("guided, wrong pivot", share, "guided_wrong"),
        "right_over_wrong": ("right over wrong", ratio, "guided_right", "guided_wrong"),
        "retry_unusable": ("guided, ended by an invalid response", share, "invalid"),
        "unguided_success": ("unguided, from the same pivot", share, "unguided"),
        "guided_minus_unguided": ("guided minus unguided", paired_difference, "guided_minus_unguided"),
        "from_start_success": ("guided, from the start", share, "from_start"),
        "guided_minus_from_start": (
            "guided minus from the start",
            paired_difference,
            "guided_minus_from_start",
        ),
        "fresh_success": ("a fresh attempt", share, "fresh"),
        "guided_minus_fresh": ("guided minus fresh", paired_difference, "guided_minus_fresh"),
        "fresh_equal": ("fresh attempts of equal tokens", share, "equal"),
        "guided_minus_fresh_equal": (
            "guided minus fresh, equal tokens",
            paired_difference,
            "guided_minus_equal",
        ),
        "fresh_short": ("too few fresh attempts for its tokens", share, "short"),
        "guided_per_1000": ("successes in 1,000 tokens: guided", per_1000, "guided", "guided_tokens"),
        "unguided_per_1000": ("unguided", per_1000, "unguided", "unguided_tokens"),
        "from_start_per_1000": ("guided, from the start", per_1000, "from_start", "from_start_tokens"),
        "fresh_per_1000": ("a fresh attempt", per_1000, "fresh", "fresh_tokens"),
    },
    "Retries of all attempts, own reflection": {
        "retry_success_all": ("guided, from the pivot", share, "guided_all"),
        "unguided_success_all": ("unguided, from the same pivot", share, "unguided_all"),
        "guided_minus_unguided_all": (
            "guided minus unguided",
            paired_difference,
            "guided_minus_unguided_all",
        ),
        "fresh_success_all": ("a fresh attempt", share, "fresh_all"),
        "guided_minus_fresh_all": ("guided minus fresh", paired_difference, "guided_minus_fresh_all"),
    },
    "Tokens of guided retries, with and without the hint": {
        "hint_gap": ("log p with minus without, of successes (nats)", per_token, "gap", "scored"),
        "hint_gap_all": ("the same of all", per_token, "gap_all", "scored_all"),
        "hint_gap_failed": ("the same of failures", per_token, "gap_failed", "scored_failed"),
        "hint_gap_difference": (
            "successes minus failures",
            difference_per_token,
            *("gap", "scored", "gap_failed", "scored_failed"),
        ),
        "hint_gap_difference_same_task": (
            SAME_TASK,
            difference_same_task,
            *("gap", "scored", "gap_failed", "scored_failed"),
        ),
        "hint_p99": ("99th percentile of -log p without, of successes", partial(_p99, hinted=False)),
        "hint_p99_under": ("with", partial(_p99, hinted=True)),
        "hint_unlikely": (f"log p without below {UNLIKELY:g}, of successes", per_token, "unlikely", "scored"),
    },
    **{
        f"Attempts as read by a teacher that sees {sees}": _of_teacher(name)
        for name, sees in TEACHERS.items()
    },
    "Retries of failures, the critic's reflection": {
        "critic_guided": ("guided, from its pivot", share, "critic_guided"),
        "critic_unguided": ("unguided, from its pivot", share, "critic_unguided"),
        "critic_guided_minus_unguided": (
            "guided minus unguided",
            paired_difference,
            "critic_guided_minus_unguided",
        ),
    },
    "Actions": {
        "hint_followed": ("the critic's hint is the first action", share, "critic_followed"),
        "own_hint_followed": ("the model's own hint is the first action", share, "followed"),
        "names_shown": ("name only what was shown", share_of_actions, "shown", "actions"),
    },
}
OF_HALVES = {"success_easy", "success_hard", "easy_minus_hard"}
COLUMNS = sorted(
    {column for keys in SECTIONS.values() for _, _, *columns in keys.values() for column in columns}
)


def measures(probe: ProbeAttempts) -> dict[str, Measure]:
    """Estimate every measure of a probe (a key of SECTIONS) from its attempts; the result is by that key.

    The measures that compare easy with hard tasks are left out if the tasks are not in exactly two groups.
    """
    table = attempt_table(probe, COLUMNS)
    found = {}
    for keys in SECTIONS.values():
        for key, (_, estimate, *columns) in keys.items():
            if len(probe.halves) == 2 or key not in OF_HALVES:
                found[key] = estimate(table, *columns) if columns else estimate(probe)
    return found
