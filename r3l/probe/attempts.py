"""Results of a probe: attempts, reflections, retries; the lines of the file that holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from r3l.core.environment import StopReason
from r3l.core.errors import DataError, first_line
from r3l.feedback.audits import Agreement

# In the seed address of every draw of a probe; "regime" was the probe's first name. Another word would change
# every stored attempt, choice of tasks and interval.
SEED_WORD = "regime"


@dataclass(frozen=True)
class Logprobs:
    """Log-probs (nats) of a guided retry's tokens: ``under`` the hint, as sampled, and ``without`` it."""

    under: tuple[float, ...]
    without: tuple[float, ...]


@dataclass(frozen=True)
class RetryOutcome:
    """Result of a retry of an attempt. ``improved``: its reward is higher than the attempt's.

    ``tokens``: generated for it, including the model's reflection that gave its pivot or hint (a critic's
    costs none). ``followed``: whether its first action was the hinted one; None if there is no hint, or it
    names no possible action. ``invalid``: it ended by an invalid response. ``logprobs``: only of the guided
    retry of a policy that can compute them.
    """

    success: bool
    improved: bool
    tokens: int
    followed: bool | None = None
    invalid: bool = False
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class OwnReflection:
    """The model's reflection on one of its attempts, and the retries that follow from it.

    ``text``: the reflection as written. ``invalid``: why it could not be used, else None. ``right``: it
    states the attempt's outcome correctly; None if it is invalid. ``agrees``: agreement with the
    environment's critic; None if reflection or critic names no pivot (the turn to retry from), or if the
    attempt succeeded.

    Retries, None without a pivot: ``guided`` and ``unguided`` start at the pivot, with and without the hint,
    ``from_start`` at the first turn with the hint. ``fresh``: another attempt at the task, to compare with.
    ``equal``: chance that fresh attempts succeed with as many tokens as ``guided`` and its reflection took;
    ``short``: there were too few attempts to use up those tokens. The last three are set by
    with_fresh_attempts; without a retry or another attempt they are None (``short``: False).
    """

    invalid: str | None = None
    right: bool | None = None
    text: str = ""
    agrees: Agreement | None = None
    guided: RetryOutcome | None = None
    unguided: RetryOutcome | None = None
    from_start: RetryOutcome | None = None
    fresh: RetryOutcome | None = None
    equal: float | None = None
    short: bool = False


@dataclass(frozen=True)
class CriticReflection:
    """The judgement of the environment's critic on a failed attempt, and two retries from the turn it names.

    ``guided`` has the critic's hint, ``unguided`` has none. ``cause``: what went wrong, None if it found no
    wrong action.
    """

    cause: str | None
    guided: RetryOutcome
    unguided: RetryOutcome


@dataclass(frozen=True)
class TeacherReading:
    """How likely a teacher, the same model with a hint in its prompt, finds the tokens of an attempt.

    ``gap``: sum over the attempt's ``tokens`` (their number) of D = log p with the hint minus log p without
    (nats). ``shown``: the teacher's prompt really contains the hint.
    """

    gap: float
    tokens: int
    shown: bool


@dataclass(frozen=True)
class Attempt:
    """One attempt of a probe at a task, from the start and without guidance, and what followed it.

    ``group``: the task's, such as easy. ``member``: its number among the attempts at the task, from 0.
    ``stop``: why it ended. ``turns``, ``tokens``: number of turns and of sampled tokens. ``actions``: number
    of readable actions, None if responses are answers; ``shown``: how many of them name only objects that
    were shown before. ``own``: the model's reflection and its retries, None without turns or if the
    environment failed. ``critic``: the critique by the environment's critic, and retries, after a failure;
    None if it names no turn. ``teachers``: by what they see (r3l.probe.teachers).
    """

    task: str
    group: str
    member: int
    success: bool
    reward: float
    stop: StopReason
    turns: int
    tokens: int
    actions: int | None = None
    shown: int = 0
    own: OwnReflection | None = None
    critic: CriticReflection | None = None
    teachers: Mapping[str, TeacherReading] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeAttempts:
    """All attempts of a probe. ``expert``: success of the error-free expert by task id, None without one.

    ``now``: number of attempts that this call played itself; an earlier call, which was stopped, played the
    others. ``seconds``: the time of this call by activity, ``attempts`` and ``retries``.
    """

    attempts: list[Attempt]
    expert: Mapping[str, bool] | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    now: int = 0

    @property
    def halves(self) -> list[str]:
        """Names of the attempts' task groups, sorted; such as ``["easy", "hard"]``, the easier one first."""
        return sorted({attempt.group for attempt in self.attempts})


class BatchLine(TypedDict):
    """A finished batch of a probe, as a line of its file of attempts.

    ``probed``: digests that identify the probe (model, settings, tasks). ``attempts``: each an Attempt as
    JSON. ``sha256``: of the attempts; r3l 0.1 wrote none.
    """

    probed: dict[str, str | None]
    attempts: list[dict[str, Any]]
    sha256: NotRequired[str]


_ATTEMPTS = TypeAdapter(list[Attempt])


def attempts_in(line: BatchLine, where: str) -> list[Attempt]:
    """The attempts of a line of the file. Raises DataError naming the line if it was changed or damaged."""
    try:
        if line.get("sha256", attempts_sha256(line["attempts"])) != attempts_sha256(line["attempts"]):
            raise ValueError("their digest is another")
        return _ATTEMPTS.validate_python(line["attempts"])
    except ValueError as error:
        reason = first_line(error)
        raise DataError(
            f"{where}: these are not the attempts that were written ({reason}); delete this line, and they "
            "are played again"
        ) from error


def attempts_sha256(attempts: list[dict[str, Any]]) -> str:
    """Hex sha256 of the attempts of a BatchLine, as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(attempts, sort_keys=True).encode()).hexdigest()
