"""Turn, Trajectory, Group: what sampling produced, token by token, and nothing derived from it.

Tokens are never re-rendered: a turn keeps the ids that entered the model (``prompt_ids``) and the ids that
were sampled (``response_ids``); the token sequence of a trajectory is their concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from r3l.core.policy import Completion
from r3l.core.task import Task

Kind = Literal["base", "distilled", "reflection", "critique", "guided_retry", "refined"]
Objective = Literal["policy", "sft", "none"]


@dataclass(frozen=True)
class Turn:
    """One exchange. ``prompt_ids`` are the tokens added to the dialog since the previous response.

    With turn samples (``samples: turn``) they are the whole context of the response instead.
    """

    observation: str
    response: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: str
    action: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, completion: Completion, observation: str, action: str | None = None, error: str | None = None) -> Turn:
        """The exchange in which ``completion`` answered ``observation``."""
        return cls(
            observation=observation,
            response=completion.text,
            prompt_ids=completion.prompt_ids,
            response_ids=completion.response_ids,
            logprobs=completion.logprobs,
            stop_reason=completion.stop_reason,
            action=action,
            error=error,
        )

    def __post_init__(self) -> None:
        if len(self.logprobs) != len(self.response_ids):
            raise ValueError(f"{len(self.response_ids)} response ids but {len(self.logprobs)} log-probs")


@dataclass
class Trajectory:
    """A dialog with its outcome.

    ``pivot`` is the first trainable turn (0-based; 0 trains every turn), ``until`` the first one after it that is
    not (None: none). ``feedback`` is the environment's closing message; the policy never sees it, a reflection
    does. ``rescore``: the log-probs belong to another context than this one (a distilled retry was sampled under
    guidance), and the engine is to compute those of the sampling policy under this context instead. ``attempt``
    tells several retries of one member apart. ``report`` is what a reflection or critique says, as it was read, or
    ``{"invalid": reason}``; for readers only.
    """

    task: Task
    member: int
    kind: Kind
    turns: list[Turn] = field(default_factory=list)
    reward: float = 0.0
    success: bool = False
    stop_reason: str = "running"
    feedback: str = ""
    pivot: int = 0
    until: int | None = None
    rescore: bool = False
    attempt: tuple[int, ...] = ()
    report: Mapping[str, Any] | None = None

    @property
    def off_policy(self) -> bool:
        """Sampled under another context than the one it is trained in."""
        return self.kind in ("distilled", "refined")

    @property
    def actions(self) -> list[str]:
        """The actions taken, oldest first."""
        return [turn.action for turn in self.turns if turn.action is not None]

    def token_ids(self) -> np.ndarray:
        """All tokens in order, int64, shape (T,)."""
        ids = [token for turn in self.turns for token in (*turn.prompt_ids, *turn.response_ids)]
        return np.asarray(ids, dtype=np.int64)

    def response_mask(self) -> np.ndarray:
        """1.0 on every sampled token, shape (T,), whatever the pivot."""
        return self._over_turns(lambda turn, _: np.ones(len(turn.response_ids)))

    def trains(self, k: int) -> bool:
        """Whether turn ``k`` carries gradient."""
        return k >= self.pivot and (self.until is None or k < self.until)

    def credit_mask(self) -> np.ndarray:
        """1.0 on sampled tokens of trainable turns (paper: 0 before the pivot, 1 from it on), shape (T,)."""
        return self._over_turns(lambda turn, k: np.full(len(turn.response_ids), float(self.trains(k))))

    def old_logprobs(self) -> np.ndarray:
        """Log-probabilities at sampling time, 0 on tokens that were not sampled, shape (T,)."""
        return self._over_turns(lambda turn, _: np.asarray(turn.logprobs, dtype=float))

    def _over_turns(self, values: Callable[[Turn, int], np.ndarray]) -> np.ndarray:
        parts: list[np.ndarray] = [np.zeros(0)]
        for k, turn in enumerate(self.turns):
            parts += [np.zeros(len(turn.prompt_ids)), values(turn, k)]
        return np.concatenate(parts).astype(np.float32)


@dataclass
class Group:
    """Trajectories that share one task and one advantage baseline.

    ``objective`` says which loss they feed: ``policy`` (advantage-weighted), ``sft`` (imitation) or ``none``
    (counted only). ``shaped`` holds the returns of members where a method does not learn from the plain rewards,
    ``baseline`` a baseline that is not made from this group's own returns.
    """

    task: Task
    trajectories: list[Trajectory]
    objective: Objective = "policy"
    shaped: Sequence[float] | None = None
    baseline: float | None = None

    def rewards(self) -> np.ndarray:
        """rewards_G, shape (G,)."""
        return np.asarray([t.reward for t in self.trajectories], dtype=float)

    def returns(self) -> np.ndarray:
        """returns_G, what advantages are made from: ``shaped``, else the rewards; shape (G,)."""
        return self.rewards() if self.shaped is None else np.asarray(self.shaped, dtype=float)
