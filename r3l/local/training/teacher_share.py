"""Proof that a teacher teaches: what it says of successes and failures, and its share in the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from r3l.core.batching import Row, collate
from r3l.core.method import Batch
from r3l.local.model.precision import MasterWeights


class TeacherGaps:
    """Collects D = log p in the teacher's context minus log p of the policy.

    D is taken over trained tokens of rows with a teacher. A teacher whose D is the same on successes and on
    failures cannot tell them apart.
    """

    def __init__(self) -> None:
        self.sums: dict[bool, float] = {}  # by success
        self.tokens: dict[bool, int] = {}

    def add(self, rows: Sequence[Row], batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Count a micro-batch with these rows."""
        counted_B_T = batch.mask_B_T.bool() & (batch.weight_B_T != 0) & batch.taught_B[:, None]
        gap_B_T = (batch.teacher_logprobs_B_T - logprobs_B_T.detach()) * counted_B_T
        sums_B = gap_B_T.sum(1).tolist()
        tokens_B = counted_B_T.sum(1).tolist()
        for row, of_row, tokens in zip(rows, sums_B, tokens_B, strict=True):
            if tokens:
                self.sums[row.success] = self.sums.get(row.success, 0.0) + of_row
                self.tokens[row.success] = self.tokens.get(row.success, 0) + tokens

    def metrics(self) -> dict[str, float]:
        """Means of D per token (nats) on successes and on failures, and their difference.

        Named ``teacher/gap_success``, ``teacher/gap_failure`` and ``teacher/gap_difference``; one without
        tokens is left out.
        """
        found = {}
        for success, name in ((True, "teacher/gap_success"), (False, "teacher/gap_failure")):
            if success in self.sums:
                found[name] = self.sums[success] / self.tokens[success]
        if len(found) == 2:
            found["teacher/gap_difference"] = found["teacher/gap_success"] - found["teacher/gap_failure"]
        return found


def without_teachers(rows: Sequence[Row], batch: Batch, logprobs_B_T: torch.Tensor) -> Batch:
    """The micro-batch ``batch`` of ``rows`` as it would be without teachers.

    Rows that were sampled in a teacher's context get weight 0, all others their ``untaught_advantage``, and
    the teacher's log-probs are the policy's own.
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
    """Measures how much of a step's gradient is due to teachers: the gradient minus the one without teachers.

    Gradients are kept on the CPU, so that a GPU holds no more than in other updates for longer than a
    micro-batch.
    """

    def __init__(self, master: MasterWeights) -> None:
        self.master = master
        self.alone = [torch.zeros_like(p, dtype=torch.float32, device="cpu") for p in master.parameters]

    def add(self, loss: torch.Tensor) -> None:
        """Add the gradient of a micro-batch's loss without teachers; the graph is kept."""
        found = torch.autograd.grad(loss, self.master.computed, retain_graph=True, allow_unused=True)
        for total, gradient in zip(self.alone, found, strict=True):
            if gradient is not None:
                total += gradient.to("cpu", torch.float32)

    def metrics(self) -> dict[str, float]:
        """The teacher's share in the gradient, and the cosine between its part and the rest.

        ``teacher/grad_share`` = |teacher|^2 / (|teacher|^2 + |rest|^2), and ``teacher/grad_cosine``, which is
        left out if one of the two is zero. {} without a gradient.
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
