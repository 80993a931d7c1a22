"""The attempts of a probe as a table, a row an attempt, from which r3l.probe.measures estimates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from r3l.core.environment import INVALID_RESPONSES, StopReason
from r3l.core.trajectory import UNLIKELY
from r3l.probe.attempts import Attempt, OwnReflection, ProbeAttempts, RetryOutcome

RETRIES = ("guided", "unguided", "from_start", "fresh")  # after a reflection of the model's own


def attempt_table(probe: ProbeAttempts, columns: Sequence[str]) -> pd.DataFrame:
    """The attempts as a table, one row each, with ``task``, ``group`` and these ``columns``.

    NaN: the attempt does not count for the column. Columns that may be asked for:

    - ``task``, ``group``: the attempt's task id and task group. ``success``, ``reward``, ``turns``,
      ``tokens``, ``unusable`` (ended by an invalid response), ``stop_REASON``; ``success_easy``,
      ``success_hard``: success of the attempts at easy or hard tasks.
    - ``actions``: number of readable actions; ``shown``: how many of them name only what was shown before.
    - ``valid_all``: the reflection can be used; ``right_all``: it states the right outcome;
      ``right_failed``, ``right_solved``: the same after a failure and after a success.
    - After a failure: ``valid``; ``critic_names``: the critic names a cause. The reflection against the
      critic: ``exact``: the same pivot; ``near``: at most one turn apart; ``accurate``: near and the same
      cause; ``partial``: one of the two; ``wrong``: neither.
    - Retries of a failure: ``guided``, ``unguided``, ``from_start``, ``fresh``: success of the retry of this
      kind; with ``_tokens`` its number of tokens; with ``_all`` after a success too. ``improved``,
      ``invalid``, ``followed`` are about the guided retry; ``guided_right``, ``guided_wrong``: its success if
      its pivot is near, or is not. ``equal``: chance that fresh attempts succeed with as many tokens as the
      guided retry took; ``short``: there were too few attempts to use up those tokens. ``guided_minus_X``:
      success of the guided retry minus success of retry X.
    - Tokens of successful guided retries: ``gap``: sum of log p with the hint minus log p without it (nats);
      ``unlikely``: number of tokens with log p below UNLIKELY without the hint; ``scored``: number of all.
      ``gap_all``, ``scored_all``: the same for every guided retry; ``gap_failed``, ``scored_failed``: for
      guided retries that fail.
    - For each teacher (TEACHERS): ``NAME_gap_solved``, ``NAME_tokens_solved``: the sum of D (log p under the
      teacher minus the policy's, nats) over the tokens of an attempt that succeeds, and their number;
      ``NAME_gap_failed``, ``NAME_tokens_failed``: the same for an attempt that fails; ``NAME_shown``: whether
      the teacher's prompt contains its hint.
    - Retries from the critic's pivot: ``critic_guided``, ``critic_unguided``, ``critic_followed``;
      ``critic_guided_minus_unguided``: success of the first minus success of the second.
    """
    critic_spoke = any(attempt.critic for attempt in probe.attempts)
    halves = probe.halves
    rows: list[dict[str, Any]] = []
    for attempt in with_fresh_attempts(probe.attempts):
        own = attempt.own
        critic = attempt.critic
        success = float(attempt.success)
        row: dict[str, Any] = {
            "task": attempt.task,
            "group": attempt.group,
            "success": success,
            "reward": attempt.reward,
            "turns": attempt.turns,
            "tokens": attempt.tokens,
            "unusable": attempt.stop in INVALID_RESPONSES,
            "actions": attempt.actions,
            "shown": attempt.actions and attempt.shown,
            **{f"stop_{stop}": attempt.stop is stop for stop in StopReason},
        }
        if halves:
            row["success_easy"] = success if attempt.group == halves[0] else None
            row["success_hard"] = success if attempt.group == halves[-1] else None
        rows.append(row)

        # What followed the attempt: the critic's retries, teachers' readings, the model's own reflection.
        if critic is not None:
            row["critic_guided"] = critic.guided.success
            row["critic_unguided"] = critic.unguided.success
            row["critic_followed"] = critic.guided.followed
            lead = float(critic.guided.success) - float(critic.unguided.success)
            row["critic_guided_minus_unguided"] = lead
        for name, reading in attempt.teachers.items():
            ending = "solved" if attempt.success else "failed"
            row[f"{name}_gap_{ending}"] = reading.gap
            row[f"{name}_tokens_{ending}"] = reading.tokens
            row[f"{name}_shown"] = reading.shown
        if own is not None:
            row |= _reflection_columns(attempt, own, critic_spoke)
    table = pd.DataFrame(rows, columns=["task", "group", *columns])
    return table.astype(dict.fromkeys(columns, float))


def _reflection_columns(attempt: Attempt, own: OwnReflection, critic_spoke: bool) -> dict[str, Any]:
    """The columns of an attempt's own reflection and the retries after it.

    ``critic_spoke``: the environment has a critic, which names a cause of some attempt.
    """
    row: dict[str, Any] = {"valid_all": own.invalid is None, "right_all": own.right}
    row["right_solved" if attempt.success else "right_failed"] = own.right

    # Retries after any attempt, and those after a failure.
    retries: dict[str, RetryOutcome] = {}
    for name in RETRIES:
        retry = getattr(own, name)
        if retry is not None:
            retries[name] = retry
            row[f"{name}_all"] = retry.success
    for other in RETRIES[1:]:
        if "guided" in retries and other in retries:
            lead = float(retries["guided"].success) - float(retries[other].success)
            row[f"guided_minus_{other}_all"] = lead
            row[f"guided_minus_{other}"] = None if attempt.success else lead

    # The hint gap of the guided retry's tokens, by whether it succeeded.
    guided = retries.get("guided")
    if guided is not None and guided.logprobs is not None:
        scored = guided.logprobs
        gap = sum(scored.under) - sum(scored.without)
        tokens = len(scored.under)
        row |= {"gap_all": gap, "scored_all": tokens}
        if guided.success:
            row |= {"gap": gap, "scored": tokens}
            row["unlikely"] = sum(value < UNLIKELY for value in scored.without)
        else:
            row |= {"gap_failed": gap, "scored_failed": tokens}
    if attempt.success:
        return row

    # After a failure only: the retries again, and the reflection compared with the critic.
    row["valid"] = own.invalid is None
    if critic_spoke:
        row["critic_names"] = attempt.critic is not None and attempt.critic.cause is not None
    for name, retry in retries.items():
        row[name] = retry.success
        row[f"{name}_tokens"] = retry.tokens
    row["equal"] = own.equal
    row["short"] = None if own.equal is None else own.short
    if guided is not None:
        row["improved"] = guided.improved
        row["invalid"] = guided.invalid
        row["followed"] = guided.followed
        row["guided_minus_equal"] = None if own.equal is None else guided.success - own.equal
    if own.agrees is not None:
        row["exact"] = own.agrees.exact
        row["near"] = own.agrees.near
        row |= {grade: own.agrees.grade == grade for grade in ("accurate", "partial", "wrong")}
        if guided is not None:
            row["guided_right" if own.agrees.near else "guided_wrong"] = guided.success
    return row


def with_fresh_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Copies of the attempts, in which each retried one has another attempt at its task as ``own.fresh``.

    It is the next attempt at the task, after the last one the first; retries are compared with it. Sets
    ``own.equal`` and ``own.short`` too (:func:`equal_tokens`). Attempts that were not retried, and attempts
    at tasks with only one, stay as they are.
    """
    of_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        of_task.setdefault(attempt.task, []).append(attempt)
    places: Counter[str] = Counter()
    found = []
    for one in attempts:
        several = of_task[one.task]
        place = places[one.task]
        places[one.task] += 1
        others = several[place + 1 :] + several[:place]
        if one.own and one.own.guided and others:
            fresh = RetryOutcome(others[0].success, others[0].reward > one.reward, others[0].tokens)
            equal, short = equal_tokens(others, one.own.guided.tokens)
            one = replace(one, own=replace(one.own, fresh=fresh, equal=equal, short=short))
        found.append(one)
    return found


def equal_tokens(others: Sequence[Attempt], tokens: int) -> tuple[float, bool]:
    """Chance of a success if ``others`` are played one after another until ``tokens`` are used up.

    If too few tokens are left for an attempt, its success counts only by the fraction of its tokens that fit.
    Returns the chance, and whether tokens were left after all of ``others`` failed.
    """
    for other in others:
        if other.tokens > tokens:
            return other.success * tokens / other.tokens, False
        if other.success:
            return 1.0, False
        tokens -= other.tokens
    return 0.0, tokens > 0
