"""Turn, Trajectory, Group: what sampling produced, token by token, and nothing derived from it.

Tokens are never re-rendered: a turn keeps the ids that entered the model (``prompt_ids``) and the ids that
were sampled (``response_ids``); the token sequence of a trajectory is their concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from r3l.core.environment import StopReason
from r3l.core.policy import Completion, FinishReason, Usage
from r3l.core.task import Task

UNLIKELY = -5.0  # nats: how little a taught token may be likely before it is counted (RLTF's release leaves it out)


class TrajectoryKind(StrEnum):
    """What a trajectory is to the others of its task."""

    BASE = "base"  # a plain rollout
    DISTILLED = "distilled"  # a guided retry as if it had needed no guidance
    REFLECTION = "reflection"  # an episode and the reflection on it
    CRITIQUE = "critique"  # an episode and the critique of it
    GUIDED_RETRY = "guided_retry"
    REFINED = "refined"  # a distilled retry in place of its base (Critique-GRPO)


class Objective(StrEnum):
    """Which loss a group feeds."""

    POLICY = "policy"  # weighted by advantages
    SFT = "sft"  # imitation
    NONE = "none"  # no loss: counted only


class Feedback(Protocol):
    """What a reflection or critique says (``r3l.feedback.feedback`` has its kinds)."""

    def as_json(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Turn:
    """One exchange. ``prompt_ids`` are the tokens added to the dialog since the previous response.

    With turn samples (``samples: turn``) they are the whole context of the response instead. A turn played beside an
    unguided dialog (see r3l.retry) records the ``unguided_prompt_ids`` that it has there. ``refused``: the engine
    did not carry its action out. ``admissible``: what could be done, where the environment has such a list.
    """

    observation: str
    response: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    action: str | None = None
    error: StopReason | None = None
    unguided_prompt_ids: tuple[int, ...] | None = None
    usage: Usage | None = None  # of a response without ids
    refused: bool = False
    admissible: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it was played: a retry may show a refused action of its base that it does not play (audit B-18)."""
        return self.action is not None or self.error is not None

    @classmethod
    def of(
        cls, completion: Completion, observation: str, action: str | None = None, error: StopReason | None = None
    ) -> Turn:
        """The exchange in which ``completion`` answered ``observation``."""
        return cls(
            observation=observation,
            response=completion.text,
            prompt_ids=completion.prompt_ids,
            response_ids=completion.response_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            action=action,
            error=error,
            usage=completion.usage,
        )

    def __post_init__(self) -> None:
        if len(self.logprobs) != len(self.response_ids):
            raise ValueError(f"{len(self.response_ids)} response ids but {len(self.logprobs)} log-probs")


@dataclass
class Trajectory:
    """A dialog with its outcome.

    A reflection or critique has no ``stop_reason`` but the ``finish_reason`` of its last turn. ``feedback`` is the
    environment's closing message; the policy never sees it, a reflection does. ``restart_turn``: how many leading
    turns are the base's own (0 for a base). ``trainable``: the turns that carry gradient; None for all. ``rescore``:
    the log-probs belong to another context than this one (a distilled retry was sampled under guidance), and the
    engine is to compute those of the sampling policy under this context instead. ``attempt`` tells several retries of
    one member apart. ``parsed`` is what a reflection or critique says; for readers only.
    """

    task: Task
    member: int
    kind: TrajectoryKind
    turns: list[Turn] = field(default_factory=list)
    reward: float = 0.0
    success: bool = False
    stop_reason: StopReason | None = None
    feedback: str = ""
    restart_turn: int = 0
    trainable: range | None = None
    rescore: bool = False
    attempt: tuple[int, ...] = ()
    parsed: Feedback | None = None

    @property
    def off_policy(self) -> bool:
        """Sampled under another context than the one it is trained in."""
        return self.kind in (TrajectoryKind.DISTILLED, TrajectoryKind.REFINED)

    @property
    def actions(self) -> list[str]:
        return [turn.action for turn in self.turns if turn.action is not None]

    @property
    def played(self) -> int:
        """How many turns count towards the limit."""
        return sum(turn.counts for turn in self.turns)

    def token_ids(self) -> np.ndarray:
        """All tokens in order, int64, shape (T,)."""
        ids = [token for turn in self.turns for token in (*turn.prompt_ids, *turn.response_ids)]
        return np.asarray(ids, dtype=np.int64)

    def response_mask(self) -> np.ndarray:
        """1.0 on every sampled token, shape (T,), trainable or not."""
        return self._over_turns(lambda turn, _: np.ones(len(turn.response_ids)))

    def trains(self, k: int) -> bool:
        """Whether turn ``k`` carries gradient."""
        return self.trainable is None or k in self.trainable

    def credit_mask(self) -> np.ndarray:
        """1.0 on sampled tokens of trainable turns, else 0, shape (T,)."""
        return self._over_turns(lambda turn, k: np.full(len(turn.response_ids), float(self.trains(k))))

    def old_logprobs(self) -> np.ndarray:
        """Log-probabilities at sampling time, 0 on tokens that were not sampled, shape (T,)."""
        return self._over_turns(lambda turn, _: np.asarray(turn.logprobs, dtype=float))

    def spread(self, values_K: Sequence[float]) -> np.ndarray:
        """A number of each of the K turns on its sampled tokens, 0 on the others, shape (T,)."""
        return self._over_turns(lambda turn, k: np.full(len(turn.response_ids), values_K[k]))

    def _over_turns(self, values: Callable[[Turn, int], np.ndarray]) -> np.ndarray:
        parts: list[np.ndarray] = [np.zeros(0)]
        for k, turn in enumerate(self.turns):
            parts += [np.zeros(len(turn.prompt_ids)), values(turn, k)]
        return np.concatenate(parts).astype(np.float32)


@dataclass
class Group:
    """Trajectories that share one task and one advantage baseline.

    ``returns``, one a member, where a method does not learn from the plain rewards; ``baseline``: one that is not made
    from this group's own returns; ``weight`` scales the advantages (RLTF's self-distillation); ``progress``: the share
    of training that was done when it was played, 0 in the first step and 1 in the last.
    """

    task: Task
    trajectories: list[Trajectory]
    objective: Objective = Objective.POLICY
    returns: Sequence[float] | None = None
    baseline: float | None = None
    weight: float = 1.0
    progress: float = 0.0

    def rewards_G(self) -> np.ndarray:
        """Rewards of the members, shape (G,)."""
        return np.asarray([t.reward for t in self.trajectories], dtype=float)

    def returns_G(self) -> np.ndarray:
        """What advantages are made from: ``returns``, else the rewards; shape (G,)."""
        return self.rewards_G() if self.returns is None else np.asarray(self.returns, dtype=float)
