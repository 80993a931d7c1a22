"""Groups to rows to padded micro-batches. The loss of a step does not depend on how rows are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from r3l.core.method import Batch, LossAggregation, Method
from r3l.core.trajectory import Group


@dataclass(frozen=True)
class Row:
    """One trajectory ready for training; arrays have shape (T,)."""

    ids: np.ndarray
    mask: np.ndarray
    weight: np.ndarray
    old_logprobs: np.ndarray
    advantage: float
    sft: bool

    @property
    def idle(self) -> bool:
        """Contributes nothing to a loss without KL: zero advantage, or no trainable token."""
        return not self.sft and (self.advantage == 0 or not self.mask.any())


def rows_of(method: Method, groups: Sequence[Group]) -> list[Row]:
    """All rows of a step with their advantages and token weights.

    ``traj_mean``: every token weighs 1 / (its trajectory's sampled tokens) / rows (paper: 1/|tau|; masked
    tokens count in |tau|). ``token_mean``: 1 / (all trainable tokens). Policy and sft rows are normalised
    apart, so the sft coefficient means the same whatever the number of improvements.
    """
    rows: list[Row] = []
    for objective in ("policy", "sft"):
        chosen = [g for g in groups if g.objective == objective]
        trajectories = [t for g in chosen for t in g.trajectories]
        if objective == "policy":
            advantages = [float(a) for g in chosen for a in method.advantages(g)]
        else:
            advantages = [1.0] * len(trajectories)
        masks = [t.credit_mask() for t in trajectories]
        lengths = [float(t.response_mask().sum()) for t in trajectories]
        for t, mask, weight, advantage in zip(
            trajectories, masks, _weights(masks, lengths, method.loss_agg), advantages, strict=True
        ):
            ids, old = t.token_ids(), t.old_logprobs()
            rows.append(Row(ids, mask, weight, old, advantage, objective == "sft"))
    return rows


def _weights(masks: list[np.ndarray], lengths: list[float], rule: LossAggregation) -> list[np.ndarray]:
    if rule == "token_mean":
        total = max(float(sum(m.sum() for m in masks)), 1.0)
        return [m / total for m in masks]
    return [m / max(n, 1.0) / len(masks) for m, n in zip(masks, lengths, strict=True)]


def microbatches(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Rows sorted by length, cut so that rows x longest <= ``budget`` tokens (a longer row stands alone)."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: len(r.ids)):
        if batches and (len(batches[-1]) + 1) * len(row.ids) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


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
        advantages_B=torch.tensor([r.advantage for r in rows], dtype=torch.float32, device=device),
        sft_B=torch.tensor([r.sft for r in rows], device=device),
    )
