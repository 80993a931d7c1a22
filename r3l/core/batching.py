"""Groups to rows to padded micro-batches. The loss of a step does not depend on how its rows are packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch

from r3l.core.advantages import Advantage, mean_advantage
from r3l.core.method import Batch, Criterion, Method
from r3l.core.method_validation import advantages_checked
from r3l.core.policy import Samples
from r3l.core.trajectory import Group, HintKind, Objective, Trajectory


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training sample of T tokens; arrays have shape (T,). Defaults fit a row of the SFT stage.

    - ``ids``: token ids. ``mask``: 1.0 on trainable tokens. ``weight``: factor of each token's loss in the
      sum that is the loss of the step. ``advantage``: one number, or one per token.
    - ``old_logprobs``: at sampling time. ``sft``: whether the row is imitated, without advantage.
    - ``kind``: trajectory kind, or "sft" of a row that is imitated. ``name``: for messages. ``task``: the
      task's id, for metrics.
    - ``success``: whether the row's episode succeeded.
    - ``off_policy``: sampled under another context than the one it is trained in. ``rescore``: for the same
      reason the engine must compute the old log-probs again.
    - ``taught``: has a teacher. ``teacher_logprobs``: log-probs in its context; without one ``old_logprobs``.
      ``untaught_advantage``: the advantage that the row would have without teachers; None: the same.
      ``hint_kind``: kind of hint that the teacher reads, for metrics (see Trajectory).
    """

    ids: np.ndarray
    mask: np.ndarray
    weight: np.ndarray
    old_logprobs: np.ndarray
    teacher_logprobs: np.ndarray
    advantage: Advantage
    sft: bool
    kind: str = "sft"
    name: str = "a row to imitate"
    task: str = ""
    success: bool = False
    off_policy: bool = False
    rescore: bool = False
    taught: bool = False
    untaught_advantage: Advantage | None = None
    hint_kind: HintKind | None = None

    @property
    def no_signal(self) -> bool:
        """True if the row has no gradient in a loss without KL: no trainable token, or advantage 0 on all.

        Rows that are imitated, and rows with a teacher that are not off-policy, have a gradient whatever
        their advantage.
        """
        by_teacher = self.taught and not self.off_policy
        if self.sft or by_teacher:
            return not np.any(self.mask)
        return not np.any(self.mask * self.advantage)


@dataclass(frozen=True, kw_only=True)
class TrajectoryRow(Row):
    """The row of a complete trajectory or of one of its turns.

    ``trajectory``: the trajectory, or a copy of it that has only this turn.
    """

    trajectory: Trajectory

    @property
    def mean_advantage(self) -> float:
        """Mean of ``advantage`` over the sampled tokens, 0 without any."""
        return mean_advantage(self.trajectory, self.advantage)


R = TypeVar("R", bound=Row)


def rows_of(
    method: Method,
    groups: Sequence[Group],
    samples: Samples = "trajectory",
) -> list[TrajectoryRow]:
    """All rows of a step, with advantages and token weights; groups with objective NONE give none.

    ``samples``: whether a row is a trajectory or one of its turns. Raises ContractError if the method's
    advantages have a wrong shape. Weight of a trainable token by ``method.loss_agg``:

    - ``traj_mean``: 1 / |tau| / number of trajectories; |tau|: all sampled tokens, masked ones too (paper).
    - ``token_mean``: 1 / (all trainable tokens).
    - ``token_sum``: 1.
    - ``microbatch_released``: 1 until the step is complete; then :func:`weighted_as_released` sets it.

    Policy and SFT rows are counted separately, so ``sft_coef`` means the same for any number of imitated
    trajectories. With ``samples: turn`` every turn is a row; its tokens have the same weights.
    """
    rows: list[TrajectoryRow] = []
    for objective in (Objective.POLICY, Objective.SFT):
        # One advantage per trajectory; imitated ones have none.
        own_groups = [group for group in groups if group.objective is objective]
        trajectories = [t for group in own_groups for t in group.trajectories]

        advantages: list[Advantage] = [1.0] * len(trajectories)
        if objective is Objective.POLICY:
            advantages = [a for of_group in advantages_checked(method, own_groups) for a in of_group]

        # A method may weigh its advantages by what teachers say: compute them without, for metrics.
        untaught: Sequence[Advantage | None] = [None] * len(trajectories)
        if objective is Objective.POLICY and any(t.taught and not t.off_policy for t in trajectories):
            silent = [
                replace(g, trajectories=[t.with_silent_teacher() for t in g.trajectories]) for g in own_groups
            ]
            untaught = [a for of_group in advantages_checked(method, silent) for a in of_group]

        # One weight per trajectory, for each of its trainable tokens.
        if method.loss_agg == "traj_mean":
            weights = [1 / max(float(t.response_mask().sum()), 1.0) / len(trajectories) for t in trajectories]
        elif method.loss_agg == "token_mean":
            tokens = sum(float(t.credit_mask().sum()) for t in trajectories)
            weights = [1 / max(tokens, 1.0)] * len(trajectories)
        else:
            weights = [1.0] * len(trajectories)

        columns = zip(trajectories, weights, advantages, untaught, strict=True)
        for trajectory, weight, advantage, alone in columns:
            # Under ``samples: turn`` an advantage per token is cut into the parts of the turns.
            start = 0
            for piece in _pieces(trajectory, samples):
                end = start + len(piece.token_ids())
                part = advantage[start:end] if isinstance(advantage, np.ndarray) else advantage
                row = _row(piece, weight, part, sft=objective is Objective.SFT)
                untaught_part = alone[start:end] if isinstance(alone, np.ndarray) else alone
                rows.append(replace(row, untaught_advantage=untaught_part))
                start = end
    return rows


def rows_to_score(trajectories: Sequence[Trajectory], samples: Samples) -> list[TrajectoryRow]:
    """Rows of which only log-probs are needed (advantage 0, weight 1), in the order of ``trajectories``.

    One row per trajectory, or under ``samples: turn`` one per turn.
    """
    pieces = [piece for t in trajectories for piece in _pieces(t, samples)]
    return [_row(piece, weight=1.0, advantage=0.0, sft=False) for piece in pieces]


def trainable_rows(criterion: Criterion, rows: Sequence[R]) -> list[R]:
    """The rows among ``rows`` that an update by ``criterion`` needs.

    Rows without signal (``Row.no_signal``) are left out, unless the loss has a KL term or averages by
    ``microbatch_released``.
    """
    # A KL moves every row, and the released average counts every row.
    all_count = criterion.kl_coef > 0 or criterion.loss_agg == "microbatch_released"
    return [row for row in rows if all_count or not row.no_signal]


def _pieces(trajectory: Trajectory, samples: Samples) -> list[Trajectory]:
    """The trajectory, or under ``samples: turn`` each of its turns as a trajectory."""
    if samples == "trajectory":
        return [trajectory]
    return [
        replace(trajectory, turns=[turn], trainable=None if trajectory.trains(k) else range(0))
        for k, turn in enumerate(trajectory.turns)
    ]


def _row(t: Trajectory, weight: float, advantage: Advantage, sft: bool) -> TrajectoryRow:
    """The row of a trajectory; ``weight``: weight of each of its trainable tokens."""
    mask = t.credit_mask()
    return TrajectoryRow(
        ids=t.token_ids(),
        mask=mask,
        weight=mask * np.float32(weight),
        old_logprobs=t.old_logprobs(),
        teacher_logprobs=t.teacher_logprobs(),
        advantage=advantage,
        sft=sft,
        kind="sft" if sft else t.kind,
        name=f"task {t.task.id}, {t.kind} {'.'.join(map(str, (t.member, *t.attempt)))}",
        task=t.task.id,
        success=t.success,
        off_policy=t.off_policy,
        rescore=t.rescore,
        taught=t.taught,
        hint_kind=t.hint_kind,
        trajectory=t,
    )


def microbatches(rows: Sequence[R], budget: int) -> list[list[R]]:
    """Rows sorted by length, the shortest first, cut into micro-batches of at most ``budget`` tokens.

    Padding counts. A row that is longer than ``budget`` is a micro-batch by itself.
    """
    return [[rows[k] for k in part] for part in batches_by_length([len(row.ids) for row in rows], budget)]


def weighted_as_released(rows: Sequence[R], budget: int) -> list[R]:
    """Copies of all rows of a step, in their order, with the weights of ``loss_agg: microbatch_released``.

    The released trainer (verl) cuts a step into as few micro-batches as ``budget`` tokens allow and balances
    them. Each is a token mean that counts by its share of the rows, so the loss depends on this cut (audit
    A-8). With these weights the loss is the same even if rows are then computed in other micro-batches.
    """
    lengths = [len(row.ids) for row in rows]
    count = min(len(rows), math.ceil(sum(lengths) / budget))
    weighted = list(rows)
    for part in balanced(lengths, count):
        tokens = max(float(sum(rows[k].mask.sum() for k in part)), 1.0)
        weight = np.float32(len(part) / len(rows) / tokens)
        for k in part:
            weighted[k] = replace(rows[k], weight=rows[k].mask * weight)
    return weighted


_Part = tuple[int, int, tuple[tuple[int, int], ...]]  # sum, number of items, items: (index, length)


def balanced(lengths: Sequence[int], count: int) -> list[list[int]]:
    """Indices of ``lengths`` in ``count`` parts of nearly equal sums, by Karmarkar and Karp's differencing.

    The part of the largest sum comes first. Parts may differ in their number of items, and may be empty. The
    result is verl's, ties included: among candidates of equal spread the one with the largest part comes
    first, and parts are compared by sum, number of items, and items.
    """
    # A candidate has ``count`` parts, the largest first.
    candidates: list[list[_Part]] = [
        [(length, 1, ((k, length),)), *[(0, 0, ())] * (count - 1)] for k, length in enumerate(lengths)
    ]

    def order(candidate: list[_Part]) -> tuple[int, _Part]:
        return candidate[0][0] - candidate[-1][0], candidate[0]

    # Join the two candidates that spread most, the largest part of one with the smallest of the other.
    while len(candidates) > 1:
        first = candidates.pop(candidates.index(max(candidates, key=order)))
        second = candidates.pop(candidates.index(max(candidates, key=order)))
        joined = []
        for a, b in zip(first, reversed(second), strict=True):
            joined.append((a[0] + b[0], a[1] + b[1], a[2] + b[2]))
        candidates.append(sorted(joined, reverse=True))
    return [sorted(k for k, _ in items) for candidate in candidates for _, _, items in candidate]


def batches_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divide rows of these ``lengths`` (in tokens) into padded batches: the indices of each batch's rows.

    The shortest rows come first. Number of rows x longest row is at most ``budget`` in each batch; a row that
    is longer than ``budget`` is a batch by itself.
    """
    parts: list[list[int]] = []
    # Neighbours in length pad each other least.
    for k in sorted(range(len(lengths)), key=lambda k: lengths[k]):
        if parts and (len(parts[-1]) + 1) * lengths[k] <= budget:
            parts[-1].append(k)
        else:
            parts.append([k])
    return parts


def batches_by_prefix(rows: Sequence[np.ndarray], budget: int) -> list[list[int]]:
    """Divide rows (token ids) into micro-batches that compute common prefixes once (a prefix tree).

    Returns the indices of each micro-batch's rows, sorted so that rows with a common prefix are neighbours. A
    micro-batch has at most ``budget`` tokens, where a prefix shared with the row before counts once; a row
    that is longer than ``budget`` is a micro-batch by itself.
    """
    parts: list[list[int]] = []
    tokens = 0  # of the last part
    for k in in_tree_order(rows):
        own = len(rows[k]) - (common_length(rows[parts[-1][-1]], rows[k]) if parts else 0)
        if parts and tokens + own <= budget:
            parts[-1].append(k)
            tokens += own
        else:
            parts.append([k])
            tokens = len(rows[k])
    return parts


def in_tree_order(rows: Sequence[np.ndarray]) -> list[int]:
    """Indices that put ``rows`` (token ids) in lexicographic order; ``rows`` itself is not reordered.

    In that order each row shares its longest prefix with a neighbour.
    """
    # Big-endian bytes compare as the ids do.
    return sorted(range(len(rows)), key=lambda k: rows[k].astype(">i8").tobytes())


def common_length(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common prefix of two rows of token ids, in tokens."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def collate(rows: Sequence[Row], device: torch.device) -> Batch:
    """One or more rows as one batch on ``device``, padded with zeros on the right to the longest row.

    Padding so has mask and weight 0. ``ref_logprobs_B_T`` is None.
    """
    width = max(len(r.ids) for r in rows)

    def padded(arrays: Sequence[np.ndarray], dtype: torch.dtype) -> torch.Tensor:
        filled = np.zeros((len(arrays), width), dtype=np.result_type(*arrays))
        for row, array in zip(filled, arrays, strict=True):
            row[: len(array)] = array
        return torch.from_numpy(filled).to(device=device, dtype=dtype)

    return Batch(
        ids_B_T=padded([r.ids for r in rows], torch.int64),
        mask_B_T=padded([r.mask for r in rows], torch.float32),
        weight_B_T=padded([r.weight for r in rows], torch.float32),
        old_logprobs_B_T=padded([r.old_logprobs for r in rows], torch.float32),
        advantages_B_T=padded([np.broadcast_to(r.advantage, r.ids.shape) for r in rows], torch.float32),
        teacher_logprobs_B_T=padded([r.teacher_logprobs for r in rows], torch.float32),
        taught_B=torch.tensor([r.taught for r in rows], device=device),
        sft_B=torch.tensor([r.sft for r in rows], device=device),
        off_policy_B=torch.tensor([r.off_policy for r in rows], device=device),
    )
