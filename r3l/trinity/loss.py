"""The policy-loss adapter: passes Trinity's tensors as a Batch to the method's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from trinity.algorithm.policy_loss_fn.policy_loss_fn import PolicyLossFn

from r3l.config import Run, build_method, validate
from r3l.core.finite import check_finite, check_rows_finite
from r3l.core.method import Batch, Method
from r3l.core.method_validation import loss_checked
from r3l.local.training.measures import LogprobMismatch
from r3l.trinity.config import MISMATCH_MAX, MISMATCH_SUM, MISMATCH_TOKENS
from r3l.trinity.empty_steps import skip_empty_steps
from r3l.trinity.unpadding import replace_flash_attn

Loss = tuple[torch.Tensor, dict[str, Any]]

# Here, since verl sends its workers the loss, and so this module, before they see a batch (see plugins.py).
replace_flash_attn()


class MethodLoss(PolicyLossFn):
    """The method's loss as a policy loss of Trinity: the sum over tokens of weight x per-token loss.

    So it does not depend on the trainer's micro-batches. ``backend``: ``verl`` or ``tinker``; ``run``: the
    resolved run as a dict; ``replicas``: number of data-parallel ranks. Trinity passes the tensors that
    ``__call__`` names: shapes (B, T) and (B,) for several rows, (T,) and () for a single one.
    """

    def __init__(self, backend: str = "verl", *, run: Mapping[str, Any], replicas: int = 1) -> None:
        super().__init__(backend=backend)
        self.method: Method = build_method(validate(Run, run, "policy_loss_fn_args.run"))
        self.replicas = replicas
        if backend == "verl":  # Trinity builds the loss in each worker before the first batch
            skip_empty_steps()

    def __call__(
        self,
        logprob: torch.Tensor,
        old_logprob: torch.Tensor,
        action_mask: torch.Tensor,
        advantages: torch.Tensor,
        teacher_logprobs: torch.Tensor,
        taught: torch.Tensor,
        token_weight: torch.Tensor,
        sft: torch.Tensor,
        off_policy: torch.Tensor,
        **kwargs: torch.Tensor,
    ) -> Loss:
        """(loss of a micro-batch, its metrics), both additive over micro-batches.

        ``taught`` to ``off_policy`` have the shape (B,), the tensors before them (B, T); without B for a
        single row. The loss is multiplied by ``replicas``. Raises NonFiniteError for a NaN or infinite
        log-prob or loss.
        """
        return self._loss(
            logprob,
            old_logprob,
            action_mask,
            advantages,
            teacher_logprobs,
            taught,
            token_weight,
            sft,
            off_policy,
        )

    def _loss(
        self,
        logprob: torch.Tensor,
        old_logprob: torch.Tensor,
        action_mask: torch.Tensor,
        advantages: torch.Tensor,
        teacher_logprobs: torch.Tensor,
        taught: torch.Tensor,
        token_weight: torch.Tensor,
        sft: torch.Tensor,
        off_policy: torch.Tensor,
        ref_logprob: torch.Tensor | None = None,
    ) -> Loss:
        """(the method's loss times ``replicas``, its metrics) of Trinity's tensors; see :meth:`__call__`."""
        # The tinker trainer passes single rows, verl's trainer batches; both become a Batch.
        mask_B_T = _rows(action_mask, 2).float()
        logprobs_B_T = _rows(logprob, 2)
        batch = Batch(
            ids_B_T=torch.zeros_like(mask_B_T, dtype=torch.int64),  # Trinity passes none, no loss reads any
            mask_B_T=mask_B_T,
            weight_B_T=mask_B_T * _rows(token_weight, 1)[:, None],
            old_logprobs_B_T=_rows(old_logprob, 2),
            advantages_B_T=_rows(advantages, 2),
            teacher_logprobs_B_T=_rows(teacher_logprobs, 2),
            taught_B=_rows(taught, 1),
            sft_B=_rows(sft, 1),
            off_policy_B=_rows(off_policy, 1),
            ref_logprobs_B_T=None if ref_logprob is None else _rows(ref_logprob, 2),
        )
        # Check for NaN first, since an error names the row only before the loss sums over rows.
        names = [f"row {k} of a micro-batch" for k in range(len(logprobs_B_T))]
        check_rows_finite("log-prob in training", names, logprobs_B_T.where(batch.mask_B_T > 0, 0))
        loss, metrics = loss_checked(self.method, batch, logprobs_B_T)
        check_finite(f"loss of a micro-batch of {len(logprobs_B_T)} rows", loss)

        # verl takes the mean of plain numbers over micro-batches, where ours add up. Its own sums run over
        # micro-batches and are averaged over ranks, so they are multiplied by the number of ranks.
        metrics_of_step: dict[str, Any] = dict(metrics)
        if self.backend == "verl":
            from verl.utils.metric import Metric

            mismatch = LogprobMismatch()
            mismatch.add(batch, logprobs_B_T)
            sums = {**metrics, MISMATCH_SUM: mismatch.sum, MISMATCH_TOKENS: mismatch.tokens}
            metrics_of_step = {
                key: Metric("sum", float(value) * self.replicas) for key, value in sums.items()
            }
            metrics_of_step[MISMATCH_MAX] = Metric("max", mismatch.max)

        # verl's FSDP averages gradients over ranks, while our weights already make a sum over ranks the
        # loss of the step. Multiplying by the number of ranks turns the average back into that sum.
        return loss * self.replicas, metrics_of_step

    @classmethod
    def default_args(cls) -> dict[str, Any]:
        """{}: Trinity adds no arguments, since the configuration names them all (r3l.trinity.config)."""
        return {}


class MethodLossWithReference(MethodLoss):
    """MethodLoss for a method with a KL term: Trinity also passes the base checkpoint's log-probs."""

    def __call__(  # type: ignore[override]  # Trinity matches tensors by parameter name
        self,
        logprob: torch.Tensor,
        old_logprob: torch.Tensor,
        action_mask: torch.Tensor,
        advantages: torch.Tensor,
        teacher_logprobs: torch.Tensor,
        taught: torch.Tensor,
        token_weight: torch.Tensor,
        sft: torch.Tensor,
        off_policy: torch.Tensor,
        ref_logprob: torch.Tensor,
        **kwargs: torch.Tensor,
    ) -> Loss:
        """(loss of a micro-batch, its metrics), both additive over micro-batches.

        ``ref_logprob``: log-probs under the base checkpoint. Raises NonFiniteError for a NaN or infinite
        log-prob or loss.
        """
        return self._loss(
            logprob,
            old_logprob,
            action_mask,
            advantages,
            teacher_logprobs,
            taught,
            token_weight,
            sft,
            off_policy,
            ref_logprob,
        )


def _rows(tensor: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Add a batch dimension to a single row."""
    return tensor if tensor.dim() == dimensions else tensor[None]
