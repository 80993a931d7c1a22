"""Measures of one update besides its loss, collected over its micro-batches; the trainer logs them.

How far training's log-probs are from sampling's, how likely the tokens are that the policy did not sample
itself, what teachers say of successes and failures, and how much of the gradient is due to teachers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.core.batching import Row, collate
from r3l.core.method import Batch
from r3l.core.trajectory import UNLIKELY, HintKind
from r3l.local.model.precision import MasterWeights


class LogprobMismatch:
    """Mean and maximum of |log-prob in training - log-prob recorded at sampling| (nats) over micro-batches.

    Only tokens that were sampled in the context in which they train count. With ``train.sync_interval`` 1
    the weights are the same until the step's one update, so the mismatch is only numerical error, which an
    importance ratio or a KL has too; above 1 it also has the updates that the sampler lags behind.
    """

    def __init__(self) -> None:
        self.sum = 0.0
        self.max = 0.0
        self.tokens = 0

    def add(self, batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Add the masked tokens of a micro-batch, except imitated rows and rows sampled in another context.

        ``logprobs_B_T``: log-probs in training.
        """
        sampled_B_T = batch.mask_B_T.bool() & ~(batch.sft_B | batch.off_policy_B)[:, None]
        if sampled_B_T.any():
            differences = (logprobs_B_T.detach() - batch.old_logprobs_B_T)[sampled_B_T].abs()
            self.sum += differences.sum().item()
            self.max = max(self.max, differences.max().item())
            self.tokens += len(differences)

    @property
    def mean(self) -> float:
        """Mean absolute difference per token, in nats; 0 if no token was added."""
        return self.sum / max(self.tokens, 1)

    def metrics(self) -> dict[str, float]:
        """``logprob_mismatch/mean`` and ``logprob_mismatch/max`` (nats); {} if no token was added."""
        return {"logprob_mismatch/mean": self.mean, "logprob_mismatch/max": self.max} if self.tokens else {}


class OffPolicyLogprobs:
    """Collects the policy's log-probs of trained tokens that it did not sample in their present context.

    *Distilled* tokens were sampled under a hint that their row no longer shows; *imitated* tokens are
    learned by SFT. A policy gradient without an importance ratio pushes each of them with full weight,
    however unlikely it is, so these metrics show how unlikely they are: mean and 99th percentile of -log p,
    the share of tokens with log p below -5, and what the hint adds to the log p of distilled tokens.
    """

    def __init__(self) -> None:
        self.logprobs: dict[str, list[torch.Tensor]] = {"distilled": [], "imitated": []}
        self.hinted: list[torch.Tensor] = []

    def add(self, batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Keep the log-probs of a micro-batch's trained distilled and imitated tokens, for :meth:`metrics`.

        ``logprobs_B_T``: the policy's log-probs, in nats. The log-probs of distilled tokens under the hint,
        which the batch holds, are kept too.
        """
        trained_B_T = batch.mask_B_T.bool() & (batch.weight_B_T != 0)
        distilled_B_T = trained_B_T & (batch.off_policy_B & ~batch.sft_B)[:, None]
        self.hinted.append(batch.teacher_logprobs_B_T[distilled_B_T].cpu())
        imitated_B_T = trained_B_T & batch.sft_B[:, None]
        for name, chosen_B_T in (("distilled", distilled_B_T), ("imitated", imitated_B_T)):
            self.logprobs[name].append(logprobs_B_T.detach()[chosen_B_T].float().cpu())

    def metrics(self) -> dict[str, float]:
        """Metrics of each kind that has tokens, NAME being ``distilled`` or ``imitated``; {} without any.

        ``NAME/nll`` and ``NAME/nll_p99``: mean and 99th percentile of -log p (nats). ``NAME/unlikely``:
        share of tokens with log p below -5. ``distilled/hint_gap``: mean of log p with the hint minus log p
        without it (nats).
        """
        found = {}
        for name, parts in self.logprobs.items():
            logprobs_S = torch.cat(parts).numpy() if parts else np.zeros(0)
            if len(logprobs_S):
                found[f"{name}/nll"] = float(-logprobs_S.mean())
                found[f"{name}/nll_p99"] = float(np.quantile(-logprobs_S, 0.99))
                found[f"{name}/unlikely"] = float((logprobs_S < UNLIKELY).mean())
        if "distilled/nll" in found:
            found["distilled/hint_gap"] = float(torch.cat(self.hinted).mean()) + found["distilled/nll"]
        return found


class TeacherGaps:
    """Collects D = log p by the teacher minus log p by the policy, over trained tokens with a teacher.

    A teacher is the policy with more in its context, such as a hint. Successful and failed episodes are
    collected separately: a teacher with the same D on both does not distinguish them. They are also collected
    by kind of hint, since successes and failures may read different hints, and by task, since successes are
    mostly of easy tasks.
    """

    def __init__(self) -> None:
        # By task and kind of hint, then by success: the sum of D and the number of tokens.
        self.cells: dict[tuple[str, HintKind | None], dict[bool, NDArray[np.float64]]] = {}
        # By success and kind of hint; None: whatever the hint.
        self.sums: dict[tuple[bool, HintKind | None], float] = {}
        self.tokens: dict[tuple[bool, HintKind | None], int] = {}

    def add(self, rows: Sequence[Row], batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Add D of a micro-batch's trained tokens with a teacher to the sums of successes and failures.

        ``rows``: the rows of the batch, in its order. ``logprobs_B_T``: the policy's log-probs.
        """
        counted_B_T = batch.mask_B_T.bool() & (batch.weight_B_T != 0) & batch.taught_B[:, None]
        gap_B_T = (batch.teacher_logprobs_B_T - logprobs_B_T.detach()) * counted_B_T
        sums_B = gap_B_T.sum(1).tolist()
        tokens_B = counted_B_T.sum(1).tolist()
        for row, of_row, tokens in zip(rows, sums_B, tokens_B, strict=True):
            if tokens:
                cell = self.cells.setdefault((row.task, row.hint_kind), {})
                cell[row.success] = cell.get(row.success, np.zeros(2)) + (of_row, tokens)
                for kind in {None, row.hint_kind}:
                    key = (row.success, kind)
                    self.sums[key] = self.sums.get(key, 0.0) + of_row
                    self.tokens[key] = self.tokens.get(key, 0) + tokens

    def metrics(self) -> dict[str, float]:
        """Mean D per token, in nats: ``teacher/gap_success`` and ``teacher/gap_failure``.

        ``teacher/gap_difference``: the first minus the second. A mean without tokens is left out, and then
        the difference too. The same of hints that are solved attempts alone, and of feedback alone: names
        with ``_by_solution`` and ``_by_feedback``. ``teacher/gap_difference_same_task``: the difference
        between attempts at one task with the same kind of hint, a mean over the tasks that have both, weighted
        by m n / (m + n) for m and n tokens (as r3l.probe.measures.difference_same_task).
        """
        found: dict[str, float] = {}
        for kind in (None, *get_args(HintKind)):
            means = {
                success: self.sums[success, kind] / self.tokens[success, kind]
                for success in (True, False)
                if (success, kind) in self.sums
            }
            ending = "" if kind is None else f"_by_{kind}"
            if True in means:
                found[f"teacher/gap_success{ending}"] = means[True]
            if False in means:
                found[f"teacher/gap_failure{ending}"] = means[False]
            if len(means) == 2:
                found[f"teacher/gap_difference{ending}"] = means[True] - means[False]
        leads = 0.0
        weights = 0.0
        for cell in self.cells.values():
            if len(cell) == 2:
                won, won_tokens = cell[True]
                lost, lost_tokens = cell[False]
                weight = won_tokens * lost_tokens / (won_tokens + lost_tokens)
                leads += weight * (won / won_tokens - lost / lost_tokens)
                weights += weight
        if weights:
            found["teacher/gap_difference_same_task"] = leads / weights
        return found


def without_teachers(rows: Sequence[Row], batch: Batch, logprobs_B_T: torch.Tensor) -> Batch:
    """A copy of the micro-batch ``batch`` of ``rows`` as it would be without teachers.

    Rows that were sampled in a teacher's context get weight 0. All others get the advantage that they would
    have (``untaught_advantage``), and the policy's log-probs ``logprobs_B_T`` instead of the teacher's.
    """
    untaught = []
    for row in rows:
        alone = row.untaught_advantage
        untaught.append(row if alone is None else replace(row, advantage=alone))
    by_teacher_B = batch.taught_B & batch.off_policy_B
    return replace(
        batch,
        weight_B_T=batch.weight_B_T * ~by_teacher_B[:, None],
        advantages_B_T=collate(untaught, batch.ids_B_T.device).advantages_B_T,
        teacher_logprobs_B_T=logprobs_B_T.detach(),
    )


class TeacherShare:
    """Measures how much of an update's gradient is due to teachers.

    Their part is the complete gradient, in the master weights' ``grad``, minus the gradient without teachers,
    which ``add`` sums up.
    """

    def __init__(self, master: MasterWeights) -> None:
        self.master = master
        # On the CPU, so that a GPU holds no more than in other updates for longer than a micro-batch.
        self.alone = [torch.zeros_like(p, dtype=torch.float32, device="cpu") for p in master.parameters]

    def add(self, loss: torch.Tensor) -> None:
        """Add the gradient of ``loss``, a micro-batch's loss without teachers.

        The graph is kept for another backward pass, and no ``grad`` changes.
        """
        found = torch.autograd.grad(loss, self.master.computed, retain_graph=True, allow_unused=True)
        for total, gradient in zip(self.alone, found, strict=True):
            if gradient is not None:
                total += gradient.to("cpu", torch.float32)

    def metrics(self) -> dict[str, float]:
        """The teacher's share in the accumulated gradient, and the cosine between its part and the rest.

        ``teacher/grad_share`` = |teacher|^2 / (|teacher|^2 + |rest|^2), where teacher = gradient - rest.
        ``teacher/grad_cosine`` is left out if one of the two is zero. {} if the gradient is zero.
        """
        teacher_2 = 0.0  # squared norm of the teacher's part
        rest_2 = 0.0
        product = 0.0
        for parameter, rest in zip(self.master.parameters, self.alone, strict=True):
            gradient = torch.zeros_like(rest) if parameter.grad is None else parameter.grad.to("cpu")
            teacher = (gradient - rest).double()
            teacher_2 += float(teacher.square().sum())
            rest_2 += float(rest.double().square().sum())
            product += float((teacher * rest).sum())
        if not teacher_2 + rest_2:
            return {}
        found = {"teacher/grad_share": teacher_2 / (teacher_2 + rest_2)}
        if teacher_2 and rest_2:
            found["teacher/grad_cosine"] = product / (teacher_2 * rest_2) ** 0.5
        return found


@dataclass
class UpdateMeasures:
    """All measures of one update. ``share``: None in updates in which it is not measured."""

    mismatch: LogprobMismatch = field(default_factory=LogprobMismatch)
    off_policy: OffPolicyLogprobs = field(default_factory=OffPolicyLogprobs)
    gaps: TeacherGaps = field(default_factory=TeacherGaps)
    share: TeacherShare | None = None

    def add(self, rows: Sequence[Row], batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Add a micro-batch to all measures except ``share``, which needs losses.

        ``batch``: the tensors of ``rows``. ``logprobs_B_T``: log-probs of its tokens by the policy in
        training.
        """
        self.mismatch.add(batch, logprobs_B_T)
        self.off_policy.add(batch, logprobs_B_T)
        self.gaps.add(rows, batch, logprobs_B_T)

    def metrics(self) -> dict[str, float]:
        """The metrics of all measures, of ``share`` only if it was measured.

        Call it before the gradient is clipped: ``share`` compares it with the gradient without teachers.
        """
        found = {**self.mismatch.metrics(), **self.off_policy.metrics(), **self.gaps.metrics()}
        if self.share is not None:
            found |= self.share.metrics()
        return found
