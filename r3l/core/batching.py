"""Groups to rows to padded micro-batches. The loss of a step does not depend on how rows are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import numpy as np
import torch

from r3l.core.advantages import Advantage, mean_advantage
from r3l.core.method import Batch, Criterion, LossAggregation, Method
from r3l.core.policy import Samples
from r3l.core.trajectory import Group, Objective, Trajectory
from r3l.core.validation import advantages_of


@dataclass(frozen=True)
class Row:
    """Tokens to train on: a training sample as the optimiser step needs it; arrays have shape (T,)."""

    ids: np.ndarray
    mask: np.ndarray
    weight: np.ndarray
    old_logprobs: np.ndarray
    advantage: Advantage
    sft: bool

    @property
    def no_signal(self) -> bool:
        """Contributes nothing to a loss without KL: zero advantage, or no trainable token."""
        return not np.any(self.mask * (1.0 if self.sft else self.advantage))

    @property
    def kind(self) -> str:
        return "sft"

    @property
    def name(self) -> str:
        return "a row to imitate"

    @property
    def off_policy(self) -> bool:
        """Sampled under another context than this one."""
        return False

    @property
    def rescore(self) -> bool:
        """The old log-probs are those of another context: the engine computes them under this one."""
        return False


@dataclass(frozen=True)
class TrajectoryRow(Row):
    """The row of a trajectory, or of one turn of it."""

    trajectory: Trajectory

    @property
    def kind(self) -> str:
        """That of the trajectory, unless it is imitated."""
        return "sft" if self.sft else self.trajectory.kind

    @property
    def name(self) -> str:
        t = self.trajectory
        return f"task {t.task.id}, {t.kind} {'.'.join(map(str, (t.member, *t.attempt)))}"

    @property
    def off_policy(self) -> bool:
        return self.trajectory.off_policy

    @property
    def rescore(self) -> bool:
        return self.trajectory.rescore

    @property
    def mean_advantage(self) -> float:
        return mean_advantage(self.trajectory, self.advantage)


R = TypeVar("R", bound=Row)


def rows_of(method: Method, groups: Sequence[Group], samples: Samples = "trajectory") -> list[TrajectoryRow]:
    """All rows of a step with their advantages and token weights.

    ``traj_mean``: every token weighs 1 / (its trajectory's sampled tokens) / trajectories (paper: 1/|tau|; masked
    tokens count in |tau|). ``token_mean``: 1 / (all trainable tokens). ``token_sum``: 1. Policy and sft
    trajectories are normalised apart, so the sft coefficient means the same whatever the number of improvements.
    ``microbatch_released`` weighs tokens when rows are packed (:func:`microbatches`).
    With ``samples: turn`` every turn is a row of its own, with the weights that its tokens have in the trajectory.
    """
    rows: list[TrajectoryRow] = []
    for objective in (Objective.POLICY, Objective.SFT):
        of_objective = [g for g in groups if g.objective is objective]
        trajectories = [t for g in of_objective for t in g.trajectories]
        sft = objective is Objective.SFT
        advantages = [1.0] * len(trajectories) if sft else [a for g in advantages_of(method, of_objective) for a in g]
        weights = _token_weights(trajectories, method.loss_agg)
        for t, weight, advantage in zip(trajectories, weights, advantages, strict=True):
            pieces = _pieces(t, samples)
            rows += [_row(p, weight, a, sft) for p, a in zip(pieces, _cut(advantage, pieces), strict=True)]
    return rows


def rows_to_score(trajectories: Sequence[Trajectory], samples: Samples) -> list[TrajectoryRow]:
    """Rows of which only the log-probs are wanted, in the order of ``trajectories``."""
    return [_row(piece, 1.0, 0.0, False) for t in trajectories for piece in _pieces(t, samples)]


def trainable_rows(criterion: Criterion, rows: Sequence[R]) -> list[R]:
    """Rows that an update needs: a KL term moves all of them, and released micro-batches are diluted by all."""
    all_count = criterion.kl_coef > 0 or criterion.loss_agg == "microbatch_released"
    return [row for row in rows if all_count or not row.no_signal]


def _pieces(trajectory: Trajectory, samples: Samples) -> list[Trajectory]:
    if samples == "trajectory":
        return [trajectory]
    return [
        replace(trajectory, turns=[turn], trainable=None if trajectory.trains(k) else range(0))
        for k, turn in enumerate(trajectory.turns)
    ]


def _cut(advantage: Advantage, pieces: Sequence[Trajectory]) -> list[Advantage]:
    """Of each piece of a trajectory the part that is over its tokens."""
    if not isinstance(advantage, np.ndarray):
        return [advantage] * len(pieces)
    lengths = [len(piece.token_ids()) for piece in pieces]
    return [advantage[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]


def _row(t: Trajectory, weight: float, advantage: Advantage, sft: bool) -> TrajectoryRow:
    mask = t.credit_mask()
    return TrajectoryRow(t.token_ids(), mask, mask * np.float32(weight), t.old_logprobs(), advantage, sft, t)


def _token_weights(trajectories: Sequence[Trajectory], rule: LossAggregation) -> list[float]:
    """The weight of a trainable token of each trajectory."""
    if rule in ("token_sum", "microbatch_released"):
        return [1.0] * len(trajectories)
    if rule == "token_mean":
        total = sum(float(t.credit_mask().sum()) for t in trajectories)
        return [1 / max(total, 1.0)] * len(trajectories)
    return [1 / max(float(t.response_mask().sum()), 1.0) / len(trajectories) for t in trajectories]


def microbatches(rows: Sequence[R], budget: int, rule: LossAggregation = "traj_mean") -> list[list[R]]:
    """Rows sorted by length, cut so that rows x longest <= ``budget`` tokens (a longer row stands alone).

    ``microbatch_released``: each micro-batch is a token mean of its own and counts by its share of the rows, so the
    loss depends on packing (released trainer, audit A-8).
    """
    batches = [[rows[k] for k in part] for part in packed([len(row.ids) for row in rows], budget)]
    if rule == "microbatch_released":
        return [[_reweighed(row, part, len(rows)) for row in part] for part in batches]
    return batches


def packed(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of rows of these lengths, shortest first, cut so that rows x longest <= ``budget`` tokens."""
    parts: list[list[int]] = []
    for k in sorted(range(len(lengths)), key=lambda k: lengths[k]):
        if parts and (len(parts[-1]) + 1) * lengths[k] <= budget:
            parts[-1].append(k)
        else:
            parts.append([k])
    return parts


def packed_by_prefix(rows: Sequence[np.ndarray], budget: int) -> list[list[int]]:
    """Indices of rows (token ids) in an order in which those that begin alike are neighbours, cut so that a part has
    at most ``budget`` tokens; what a row shares with the one before it counts once."""
    parts: list[list[int]] = []
    tokens = 0
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
    """Indices of rows (token ids), sorted by their ids: no earlier row shares more with a row than its neighbour."""
    return sorted(range(len(rows)), key=lambda k: rows[k].astype(">i8").tobytes())


def common_length(a: np.ndarray, b: np.ndarray) -> int:
    """Of how many tokens ``a`` and ``b`` have the same beginning."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def _reweighed(row: R, part: Sequence[R], rows: int) -> R:
    tokens = max(float(sum(r.mask.sum() for r in part)), 1.0)
    return replace(row, weight=row.mask * np.float32(len(part) / rows / tokens))


def collate(rows: Sequence[Row], device: torch.device) -> Batch:
    """Pad on the right to the longest row."""
    width = max(len(r.ids) for r in rows)

    def padded(arrays: Sequence[np.ndarray], dtype: torch.dtype) -> torch.Tensor:
        out = np.zeros((len(arrays), width), dtype=arrays[0].dtype)
        for line, array in zip(out, arrays, strict=True):
            line[: len(array)] = array
        return torch.from_numpy(out).to(device=device, dtype=dtype)

    return Batch(
        ids_B_T=padded([r.ids for r in rows], torch.int64),
        mask_B_T=padded([r.mask for r in rows], torch.float32),
        weight_B_T=padded([r.weight for r in rows], torch.float32),
        old_logprobs_B_T=padded([r.old_logprobs for r in rows], torch.float32),
        advantages_B_T=padded([np.broadcast_to(r.advantage, r.ids.shape) for r in rows], torch.float32),
        sft_B=torch.tensor([r.sft for r in rows], device=device),
        off_policy_B=torch.tensor([r.off_policy for r in rows], device=device),
    )
