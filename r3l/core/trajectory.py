"""Turn, Trajectory, Group: the tokens that sampling produced, with their outcome.

Tokens are never rendered again: a turn keeps the ids that the model read (``prompt_ids``) and the ids that it
sampled (``response_ids``); the token sequence of a trajectory is their concatenation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

import numpy as np

from r3l.core.environment import StopReason
from r3l.core.policy import Completion, FinishReason, Usage
from r3l.core.task import Task

# Log-prob in nats below which a token to imitate is counted as unlikely (RLTF's release drops it from the
# loss).
UNLIKELY = -5.0


class TrajectoryKind(StrEnum):
    """The role of a trajectory within its task.

    - ``base``: an attempt from the start, without guidance.
    - ``reflection``, ``critique``: an episode followed by feedback on it.
    - ``guided_retry``: an attempt under the guidance of feedback.
    - ``distilled``: a guided retry under the prompts without guidance.
    - ``refined``: a distilled retry that replaces its base rollout (Critique-GRPO).
    """

    BASE = "base"
    DISTILLED = "distilled"
    REFLECTION = "reflection"
    CRITIQUE = "critique"
    GUIDED_RETRY = "guided_retry"
    REFINED = "refined"


HintKind = Literal["solution", "feedback"]


class Objective(StrEnum):
    """How a group trains: ``policy`` (by advantages), ``sft`` (imitation) or ``none`` (only metrics)."""

    POLICY = "policy"
    SFT = "sft"
    NONE = "none"


class Feedback(Protocol):
    """A parsed reflection or critique, valid or not (r3l.feedback.feedback)."""

    def as_json(self) -> Mapping[str, Any]:
        """The content as a JSON object."""
        ...


@dataclass(frozen=True)
class Turn:
    """One observation and the response to it.

    - ``prompt_ids``: tokens added to the dialog since the previous response; under ``samples: turn`` the
      complete context of the response.
    - ``logprobs``: one per response token, in nats at sampling time; another number raises ValueError.
    - ``action``: parsed from the response; ``error``: why it could not be.
    - ``unguided_prompt_ids``: in a guided retry, the prompt ids without guidance (see r3l.retry).
    - ``teacher_prompt_ids``: the prompt ids that a teacher reads instead (see Trajectory); None: the same.
    - ``teacher_logprobs``: log-probs of the response in the teacher's context; None until they are scored.
    - ``usage``: token counts of a response from a server that reveals no token ids.
    - ``refused``: the engine did not carry out the action.
    - ``admissible``: the actions that were possible, if the environment has such a list.
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
    teacher_prompt_ids: tuple[int, ...] | None = None
    teacher_logprobs: tuple[float, ...] | None = None
    usage: Usage | None = None
    refused: bool = False
    admissible: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """True if the turn counts towards ``max_turns``: it has an action or an error."""
        # A retry may show a refused action of its base rollout without replaying it (docs/audit.md, B-18).
        return self.action is not None or self.error is not None

    @classmethod
    def of(
        cls,
        completion: Completion,
        observation: str,
        action: str | None = None,
        error: StopReason | None = None,
    ) -> Turn:
        """The turn in which ``completion`` answers ``observation``; action or error: parsed from it."""
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

    A *teacher* is the policy with more in its context than the trained prompt has: guidance, or a solved
    attempt. Each turn holds that context in ``teacher_prompt_ids`` and the log-probs of the response in it in
    ``teacher_logprobs``, which the engine computes before the advantages. Only a distilled retry has them
    from sampling, since it was sampled in the teacher's context.

    - ``member``: index of the rollout within its task.
    - ``reward``, ``success``: result of the complete episode.
    - ``stop_reason``: None for a reflection or critique, whose last turn has a ``finish_reason``.
    - ``feedback``: the environment's closing message, which only requests for feedback show to the policy.
    - ``restart_turn``: number of leading turns that a retry copies from its base rollout (0 for a base
      rollout).
    - ``trainable``: the turns that carry gradient; None: all.
    - ``rescore``: the log-probs from sampling belong to another context (a distilled retry was sampled under
      guidance), so the engine computes log-probs, in the trained context, of the policy that sampled it.
    - ``hint``: the text that only the teacher reads. ``hint_kind``: whether it is a solved attempt or
      feedback on this one, for metrics; None: neither, or no hint.
    - ``attempt``: tells several retries of one member apart.
    - ``parsed``: the content of a reflection or critique, for logs.
    - ``failed``: the environment's own error, which ended the episode. Such an episode does not train, and
      gets no reflection and no retry.
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
    hint: str = ""
    hint_kind: HintKind | None = None
    attempt: tuple[int, ...] = ()
    parsed: Feedback | None = None
    failed: str = ""

    @property
    def off_policy(self) -> bool:
        """True if it was sampled under another context than the one it trains in: distilled or refined."""
        return self.kind in (TrajectoryKind.DISTILLED, TrajectoryKind.REFINED)

    @property
    def taught(self) -> bool:
        """True if it has a teacher, that is, a turn has prompt ids or log-probs of the teacher's context."""
        return any(turn.teacher_prompt_ids or turn.teacher_logprobs for turn in self.turns)

    @property
    def awaits_teacher(self) -> bool:
        """Whether the engine still has to compute its log-probs in the teacher's context.

        False without a teacher and for off-policy trajectories.
        """
        unscored = any(turn.teacher_logprobs is None for turn in self.turns)
        return self.taught and unscored and not self.off_policy

    def in_teacher_context(self) -> Trajectory:
        """A copy with the prompts that the teacher reads; all turns are trainable, so all get scored.

        A turn without a teacher's prompt keeps its own.
        """
        turns = []
        for turn in self.turns:
            prompt_ids = turn.prompt_ids if turn.teacher_prompt_ids is None else turn.teacher_prompt_ids
            turns.append(replace(turn, prompt_ids=prompt_ids, teacher_prompt_ids=None))
        return replace(self, turns=turns, trainable=None)

    def set_teacher_logprobs(self, logprobs_S: Sequence[float] | np.ndarray | None) -> None:
        """Set the teacher's log-probs of all S sampled tokens, in order; replaces the trajectory's turns.

        None: the log-probs recorded in sampling, as if the hint changed nothing. Raises ValueError for
        another number of values than S.
        """
        if logprobs_S is None:
            logprobs_S = [value for turn in self.turns for value in turn.logprobs]
        values = self._by_turn(logprobs_S)
        turns = zip(self.turns, values, strict=True)
        self.turns = [replace(turn, teacher_logprobs=of_turn) for turn, of_turn in turns]

    def set_student_logprobs(self, logprobs_S: Sequence[float]) -> None:
        """Replace the turns' ``logprobs`` by ``logprobs_S``, computed in the context that trains.

        ``logprobs_S``: one value for each sampled token of all turns, in order. The log-probs recorded in
        sampling become the turns' ``teacher_logprobs``. Raises ValueError for another number of values.
        """
        turns = zip(self.turns, self._by_turn(logprobs_S), strict=True)
        self.turns = [
            replace(turn, logprobs=of_turn, teacher_logprobs=turn.logprobs) for turn, of_turn in turns
        ]

    def with_silent_teacher(self) -> Trajectory:
        """A copy whose teacher has the policy's own log-probs, as if the hint changed nothing.

        Returns the trajectory itself if it has no teacher or is off-policy.
        """
        if not self.taught or self.off_policy:
            return self
        turns = [replace(turn, teacher_logprobs=turn.logprobs) for turn in self.turns]
        return replace(self, turns=turns)

    def _by_turn(self, values_S: Sequence[float] | np.ndarray) -> list[tuple[float, ...]]:
        """Cut values of all S sampled tokens into a tuple per turn. Raises ValueError if they are not S."""
        values = [float(value) for value in values_S]
        sampled = sum(len(turn.response_ids) for turn in self.turns)
        if len(values) != sampled:
            raise ValueError(f"{len(values)} log-probs for {sampled} sampled tokens")
        found = []
        for turn in self.turns:
            found.append(tuple(values[: len(turn.response_ids)]))
            values = values[len(turn.response_ids) :]
        return found

    @property
    def actions(self) -> list[str]:
        """The parsed actions of its turns, in order; turns without one are left out."""
        return [turn.action for turn in self.turns if turn.action is not None]

    @property
    def played(self) -> int:
        """Number of turns with an action or an error, which count towards ``max_turns``."""
        return sum(turn.counts for turn in self.turns)

    def token_ids(self) -> np.ndarray:
        """All token ids in order, int64, shape (T,)."""
        ids = [token for turn in self.turns for token in (*turn.prompt_ids, *turn.response_ids)]
        return np.asarray(ids, dtype=np.int64)

    def response_mask(self) -> np.ndarray:
        """1.0 on every sampled token, trainable or not, else 0; float32, shape (T,)."""
        return self._over_turns([np.ones(len(turn.response_ids)) for turn in self.turns])

    def trains(self, k: int) -> bool:
        """Whether turn ``k`` (from 0) carries gradient."""
        return self.trainable is None or k in self.trainable

    def credit_mask(self) -> np.ndarray:
        """1.0 on sampled tokens of trainable turns, else 0; float32, shape (T,)."""
        return self.spread([float(self.trains(k)) for k in range(len(self.turns))])

    def old_logprobs(self) -> np.ndarray:
        """Log-probabilities at sampling time, 0 on tokens that were not sampled; float32, shape (T,)."""
        return self._over_turns([turn.logprobs for turn in self.turns])

    def teacher_logprobs(self) -> np.ndarray:
        """Log-probabilities in the teacher's context, 0 on tokens that were not sampled; float32, shape (T,).

        Without a teacher they come from sampling. Raises ValueError if the trajectory has a teacher that
        the engine has not scored yet.
        """
        if self.awaits_teacher:
            raise ValueError(f"task {self.task.id}: the teacher's log-probs have not been scored")
        of_turns = []
        for turn in self.turns:
            of_turns.append(turn.logprobs if turn.teacher_logprobs is None else turn.teacher_logprobs)
        return self._over_turns(of_turns)

    def teacher_gap(self) -> np.ndarray:
        """D: log-prob in the teacher's context minus the one in sampling, 0 on prompt tokens, shape (T,).

        Raises ValueError as :meth:`teacher_logprobs` does.
        """
        return np.asarray(self.teacher_logprobs() - self.old_logprobs())

    def teacher_gaps_by_turn(self) -> np.ndarray:
        """The sum of :meth:`teacher_gap` over the tokens of each of the K turns, shape (K,)."""
        sizes = [len(turn.prompt_ids) + len(turn.response_ids) for turn in self.turns]
        parts = np.split(self.teacher_gap().astype(float), np.cumsum(sizes)[:-1]) if sizes else []
        return np.asarray([part.sum() for part in parts])

    def spread(self, values_K: Sequence[float] | np.ndarray) -> np.ndarray:
        """A value per turn on each of the turn's sampled tokens, 0 on prompt tokens; float32, shape (T,).

        ``values_K``: one for each of the K turns.
        """
        turns = enumerate(self.turns)
        return self._over_turns([np.full(len(turn.response_ids), values_K[k]) for k, turn in turns])

    def _over_turns(self, values_K: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
        """The values of each of the K turns on its sampled tokens, 0 on prompt tokens; float32, (T,)."""
        parts: list[np.ndarray] = [np.zeros(0)]
        for turn, values in zip(self.turns, values_K, strict=True):
            parts += [np.zeros(len(turn.prompt_ids)), np.asarray(values, dtype=float)]
        return np.concatenate(parts).astype(np.float32)


@dataclass
class Group:
    """Trajectories that share one task and one advantage baseline.

    - ``returns``: one per member, for a method that does not learn from the rewards themselves.
    - ``baseline``: given if it is not computed from this group's returns.
    - ``weight``: scales the advantages (RLTF's self-distillation).
    - ``progress``: share of training done when the group was played, 0 in the first step and 1 in the last.
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
        """The returns that advantages are computed from, ``returns`` or else the rewards; shape (G,)."""
        return self.rewards_G() if self.returns is None else np.asarray(self.returns, dtype=float)


def unique(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories in order, each object once (one may be in several groups); equal copies are kept."""
    return list({id(t): t for t in trajectories}.values())
