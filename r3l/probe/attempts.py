"""Results of a probe: attempts, the reflections on them, and the retries that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from r3l.core.environment import StopReason
from r3l.feedback.audits import Agreement

INVALID = frozenset({StopReason.FORMAT, StopReason.INADMISSIBLE, StopReason.TRUNCATED})  # ends by an invalid response


@dataclass(frozen=True)
class Logprobs:
    """Log-probs (nats) of a guided retry's tokens: as sampled ``under`` the hint, and ``without`` it."""

    under: tuple[float, ...]
    without: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a retry. ``improved``: its reward is higher than the attempt's.

    ``tokens``: generated for it, with those of the reflection that gave its pivot or hint.
    ``followed``: whether its first action was the hinted one; None where no possible action was hinted.
    ``invalid``: it ended by an invalid response. ``logprobs``: of a guided retry, where the policy can tell.
    """

    success: bool
    improved: bool
    tokens: int
    followed: bool | None = None
    invalid: bool = False
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class OwnReflection:
    """The model's reflection on an attempt. ``invalid``: why it could not be used. ``right``: its outcome is the
    attempt's.

    ``agrees``: with the critic; None where one of them names no pivot. The retries start at the pivot, with its hint
    and without, and at the start with the hint; None where there is no pivot. ``fresh``: another attempt.
    ``equal``: chance that one of the further attempts succeeds for which the tokens of ``guided`` are enough;
    ``short``: they would have been enough for more than there are.
    """

    invalid: str | None = None
    right: bool | None = None
    text: str = ""
    agrees: Agreement | None = None
    guided: Outcome | None = None
    unguided: Outcome | None = None
    from_start: Outcome | None = None
    fresh: Outcome | None = None
    equal: float | None = None
    short: bool = False


@dataclass(frozen=True)
class CriticReflection:
    """The environment's critic on a failed attempt, and retries from its pivot with and without its hint.

    ``cause`` is None where it found no wrong action.
    """

    cause: str | None
    guided: Outcome
    unguided: Outcome


@dataclass(frozen=True)
class Attempt:
    """A base rollout. ``actions`` that could be read, and how many of them name only what was ``shown`` before;
    None where responses are answers, not actions.

    ``critic`` belongs to a failed attempt; it is None where the critic has nothing to say.
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


@dataclass(frozen=True)
class Played:
    """Everything that was played. ``expert``: successes of the error-free expert by task; ``seconds`` by activity, of
    the ``now`` attempts that were not there before."""

    attempts: list[Attempt]
    expert: Mapping[str, bool] | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    now: int = 0

    @property
    def halves(self) -> list[str]:
        """The task groups, the easier one first: their names sort that way."""
        return sorted({attempt.group for attempt in self.attempts})
