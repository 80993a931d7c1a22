"""What a regime card is counted from: attempts, and what came of the failed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from r3l.core.audits import Agreement
from r3l.core.environment import StopReason

UNUSABLE = frozenset({StopReason.FORMAT, StopReason.INADMISSIBLE, StopReason.TRUNCATED})


@dataclass(frozen=True)
class Try:
    """A retry of a failed attempt. ``improved``: its reward is higher than the attempt's.

    ``tokens``: generated for it; those of the reflection that gave its pivot or its hint are among them.
    ``followed``: whether its first action was the hinted one; None where no possible action was hinted.
    ``unusable``: it ended as an attempt does that is so.
    """

    success: bool
    improved: bool
    tokens: int
    followed: bool | None = None
    unusable: bool = False


@dataclass(frozen=True)
class OwnReflection:
    """The model's reflection on a failed attempt. ``invalid``: why it cannot be used.

    ``agrees``: with the critic, None where one of them names no pivot. The retries, None where there is no pivot: at
    it with and without its hint, and from the start with the hint.
    """

    invalid: str | None = None
    agrees: Agreement | None = None
    guided: Try | None = None
    unguided: Try | None = None
    from_start: Try | None = None


@dataclass(frozen=True)
class CriticReflection:
    """What the environment's critic says of a failed attempt. ``cause``: None where it found no wrong action.

    The retries are from its pivot, with and without its hint.
    """

    cause: str | None
    guided: Try
    unguided: Try


@dataclass(frozen=True)
class Attempt:
    """A base rollout; ``names`` and ``shown``: in its actions, and how many actions had only names shown before.

    ``own`` and ``critic`` are of failed attempts; ``critic`` is None where the critic has nothing to say.
    """

    task: str
    group: str
    member: int
    success: bool
    reward: float
    stop: StopReason
    turns: int
    tokens: int
    actions: int = 0
    shown: int = 0
    own: OwnReflection | None = None
    critic: CriticReflection | None = None

    @property
    def unusable(self) -> bool:
        """Whether it ended with a response that holds no action, an impossible one, or no end."""
        return self.stop in UNUSABLE


@dataclass(frozen=True)
class Regime:
    """All that was played. ``halves``: the task groups, the easier one first. ``expert``: its successes, by task.

    ``has_actions``: whether responses hold actions, else they are answers. ``seconds``: by what they were spent on.
    """

    attempts: list[Attempt]
    expert: Mapping[str, bool] | None
    has_actions: bool
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def halves(self) -> list[str]:
        """The task groups, the easier one first: their names are in that order."""
        return sorted({attempt.group for attempt in self.attempts})
