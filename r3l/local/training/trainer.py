"""The optimiser step of RL and of SFT: gradients of micro-batches, clipped, AdamW.

Before it, ``score_teachers`` computes log-probs in teachers' contexts.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from r3l.config import OptimizerConfig
from r3l.core import losses
from r3l.core.batching import (
    Row,
    batches_by_prefix,
    collate,
    microbatches,
    rows_to_score,
    trainable_rows,
    weighted_as_released,
)
from r3l.core.finite import check_finite, check_rows_finite
from r3l.core.method import Batch, Criterion, TeacherWeights
from r3l.core.method_validation import loss_checked
from r3l.core.policy import Samples
from r3l.core.trajectory import Trajectory
from r3l.local.kernels import cpu_kernels
from r3l.local.memory import TRAINING_REMEDY, out_of_memory_explained
from r3l.local.model import lora
from r3l.local.model.forward import Pass, pass_of
from r3l.local.model.precision import AveragedWeights, MasterWeights, recompute_activations
from r3l.local.training.adamw import AdamW
from r3l.local.training.logprobs import token_logprobs, trajectory_logprobs, tree_logprobs
from r3l.local.training.measures import LogprobMismatch, TeacherShare, UpdateMeasures, without_teachers
from r3l.local.training.prefix_tree import PrefixTree
from r3l.runs import steps
from r3l.runs.metrics import SCORED_TOKENS

R = TypeVar("R", bound=Row)
# Every so many updates the teacher's share in the gradient is measured, which takes another backward pass;
# our choice.
SHARE_EVERY = 10
log = logging.getLogger(__name__)


class Trainer:
    """Trains ``model`` in place by the losses of ``criterion`` (a method, or SFT) with AdamW.

    ``reference``: the base checkpoint's model, for a KL; if a LoRA adapter trains, ``model`` itself, whose
    adapter is then turned off. ``temperature``: sampling's; logits are divided by it here too.
    ``sampler``: the model that samples, if it is a copy whose weights are older. ``teacher``: whose weights
    score teachers' contexts: ``live`` (the sampler's), ``frozen`` (the reference's) or ``average`` (a moving
    average, moved by ``teacher_rate`` at each update). ``master_weights``: needed only if ``model`` computes
    in another type than float32. ``forward_pass``: the forward pass that computes log-probs; transformers' if
    the packed one cannot compute this architecture. ``steps_done``: number of updates so far.
    """

    def __init__(
        self,
        model: Any,
        criterion: Criterion,
        config: OptimizerConfig,
        reference: Any | None = None,
        temperature: float = 1.0,
        sampler: Any | None = None,
        master_weights: MasterWeights | None = None,
        forward_pass: Pass = "packed",
        teacher: TeacherWeights = "live",
        teacher_rate: float = 0.0,
    ) -> None:
        self.model = model
        self.criterion = criterion
        self.config = config
        self.reference = reference
        self.sampler = sampler or model
        self.temperature = temperature
        self.forward_pass = pass_of(model, forward_pass)
        # The packed pass attends by our CPU kernels if they can compute this model, else by torch.
        self.tree_class: type[PrefixTree] = PrefixTree
        if kernels := cpu_kernels(model, self.forward_pass):
            self.tree_class = kernels.KernelTree
        self.master_weights = master_weights or MasterWeights(model)
        self.teacher = teacher
        self.average = AveragedWeights(self.master_weights, teacher_rate) if teacher == "average" else None
        if config.gradient_checkpointing:
            recompute_activations(model)
        self.optimizer: Any = AdamW(
            self.master_weights.parameters,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.steps_done = 0

    def step(self, rows: Sequence[Row], lr: float | None = None) -> dict[str, float]:
        """Make one optimiser update from all rows of a step; returns its metrics.

        The metrics are ``grad_norm``, losses and measures of the update, counts of tokens and rows. Without a
        row that trains the weights stay; the step counts anyway. ``lr``: learning rate; None: the configured
        one, times its linear warm-up. Raises NonFiniteError (a NaN or infinite log-prob, loss, gradient or
        weight) and EngineError (out of GPU memory).
        """
        if lr is None:
            lr = self.config.lr * min(1.0, (self.steps_done + 1) / max(self.config.lr_warmup_steps, 1))
        trained = trainable_rows(self.criterion, rows)
        metrics: dict[str, float] = defaultdict(float, steps.update_metrics(rows, trained))
        if any(row.mask.any() for row in trained):
            # Gradients of all micro-batches add up to one update, so how rows are cut into micro-batches is a
            # matter of memory only: weights of tokens were fixed before (r3l.core.batching).
            self.model.train()
            self.optimizer.zero_grad()
            measures = UpdateMeasures()
            # Every SHARE_EVERY-th update also gets the gradient that it would have without teachers.
            if self.steps_done % SHARE_EVERY == 0 and any(row.taught for row in trained):
                measures.share = TeacherShare(self.master_weights)
            for part in self._microbatches(trained):
                batch = collate(part, self.model.device)
                size = " x ".join(map(str, batch.ids_B_T.shape))
                with out_of_memory_explained(f"in training a micro-batch of {size} tokens", TRAINING_REMEDY):
                    self._backward(batch, part, measures, metrics)
                self.master_weights.accumulate_gradients()
            metrics |= measures.metrics()
            metrics["grad_norm"] = self.optimizer_step(lr)
        elif rows:  # nothing to learn, but every step reports how far sampling and training are apart
            metrics |= self.logprob_mismatch(self._microbatches(rows)[0]).metrics()
        self.steps_done += 1
        return dict(metrics)

    def _backward(
        self,
        batch: Batch,
        rows: Sequence[Row],
        measures: UpdateMeasures,
        metrics: dict[str, float],
    ) -> None:
        """Forward and backward pass of one micro-batch. Raises NonFiniteError naming the row."""
        # Score the rows under the base checkpoint, for a KL, and under the model that is trained.
        if self.criterion.kl_coef > 0:
            batch = replace(batch, ref_logprobs_B_T=self._reference_logprobs(batch))
        logprobs_B_T = self._logprobs(batch, rows)
        measures.add(rows, batch, logprobs_B_T)

        # Rows that were sampled under another context get old log-probs under this one, from the policy that
        # sampled: with one update a step still the model itself, unless the sampler's weights lag behind.
        if any(row.rescore for row in rows):
            if self.sampler is self.model:
                old_B_T = logprobs_B_T.detach()
            else:
                with torch.no_grad():
                    old_B_T = self.token_logprobs(self.sampler, batch.ids_B_T, batch.mask_B_T)
            rescore_B_1 = torch.tensor([[row.rescore] for row in rows], device=old_B_T.device)
            old_B_T = torch.where(rescore_B_1, old_B_T, batch.old_logprobs_B_T)
            batch = replace(batch, old_logprobs_B_T=old_B_T)

        # A loss that is not finite is traced to the first row whose own loss is not finite.
        loss, terms = loss_checked(self.criterion, batch, logprobs_B_T)
        if not torch.isfinite(loss):
            for k, row in enumerate(rows):
                own_loss, _ = loss_checked(self.criterion, batch.row(k), logprobs_B_T[k : k + 1])
                check_finite(f"loss of {row.name}", own_loss)
            check_finite(f"loss of {len(rows)} rows together", loss)

        # The same loss without teachers, for their share in the gradient; then the backward pass that counts.
        if measures.share is not None:
            alone, _ = loss_checked(self.criterion, without_teachers(rows, batch, logprobs_B_T), logprobs_B_T)
            measures.share.add(alone)
        torch.autograd.backward(loss)
        metrics["loss"] += loss.item()
        for key, value in terms.items():  # additive over micro-batches
            metrics[key] += value

    def optimizer_step(self, lr: float) -> float:
        """Clip the accumulated gradient and update the weights by AdamW with learning rate ``lr``.

        Returns the gradient's norm before clipping. Raises NonFiniteError if the norm is NaN or infinite
        (before any weight has changed), or if a new weight is. An averaging teacher is updated too.
        ``steps_done`` stays, and gradients are not cleared.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.master_weights.parameters, self.config.grad_clip)
        check_finite("gradient norm", norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        for name, weight in self.master_weights.state_dict().items():
            check_finite(f"weight {name} after an update with lr {lr:g}", weight)
        self.master_weights.copy_to_model()
        if self.average is not None:
            self.average.update()
        return norm.item()

    def sync(self) -> None:
        """Copy the trained weights to the sampler; does nothing if that is the trained model itself."""
        if self.sampler is not self.model:
            self.sampler.load_state_dict(self.model.state_dict())

    def kl_to_reference(self, rows: Sequence[Row]) -> float:
        """Estimated KL(policy || base checkpoint) in nats: mean of the k3 estimator over trainable tokens.

        It measures how far training has moved the policy; 0 if there are no such tokens. Weights and
        gradients stay. The trainer must have a ``reference``.
        """
        total = 0.0
        count = 0.0
        for part in self._microbatches(rows):
            batch = collate(part, self.model.device)
            with torch.no_grad():
                new = self._logprobs(batch, part)
                k3_B_T = losses.kl(new, self._reference_logprobs(batch), "k3")
            total += float((k3_B_T * batch.mask_B_T).sum())
            count += float(batch.mask_B_T.sum())
        return total / max(count, 1.0)

    def logprob_mismatch(self, rows: Sequence[Row]) -> LogprobMismatch:
        """Mean and maximum of |log-prob in training - log-prob recorded at sampling| (nats); updates nothing.

        Both are over the trainable tokens of ``rows``, except imitated rows and rows sampled in another
        context (distilled); both are 0 if no such token is left.
        """
        mismatch = LogprobMismatch()
        for part in self._microbatches(rows):
            batch = collate(part, self.model.device)
            with torch.no_grad():
                mismatch.add(batch, self._logprobs(batch, part))
        return mismatch

    def score_teachers(
        self, trajectories: Sequence[Trajectory], samples: Samples, longest: int
    ) -> dict[str, float]:
        """Compute the teacher's log-probs of every trajectory that still needs them, and store them in it.

        A teacher is the policy with more in its context (a hint, a solved attempt); the method's setting
        ``teacher`` says with which weights. If a row in that context has more than ``longest`` tokens, the
        trajectory gets its log-probs from sampling instead. Returns the counts ``tokens/scored`` and
        ``dropped/teacher_context`` (such trajectories), or {} if no trajectory needed any.
        """
        # Render each trajectory in its teacher's context; a context that is too long is not scored.
        fitting: list[Trajectory] = []
        contexts: list[Trajectory] = []
        tokens = 0
        too_long = 0
        for t in trajectories:
            if not t.awaits_teacher:
                continue
            context = t.in_teacher_context()
            lengths = [len(row.ids) for row in rows_to_score([context], samples)]
            if max(lengths, default=0) > longest:
                t.set_teacher_logprobs(None)
                too_long += 1
            else:
                fitting.append(t)
                contexts.append(context)
                tokens += sum(lengths)
        if not fitting and not too_long:
            return {}

        # Score all contexts by the teacher's weights, and give each trajectory its log-probs.
        with self._teacher_model() as model:
            found = trajectory_logprobs(
                model,
                contexts,
                samples,
                self.temperature,
                self.config.tokens_per_microbatch,
                self.forward_pass,
                self.tree_class,
            )
        for t, logprobs_S in zip(fitting, found, strict=True):
            t.set_teacher_logprobs(logprobs_S)
        return {SCORED_TOKENS: tokens, "dropped/teacher_context": too_long}

    @contextmanager
    def _teacher_model(self) -> Iterator[Any]:
        """The model with the teacher's weights, for the block.

        ``live``: the model that samples; ``average``: the trained model with its averaged weights put in
        place; ``frozen``: the base checkpoint.
        """
        if self.teacher == "live":
            yield self.sampler
        elif self.average is not None:
            with self.average.in_place():
                yield self.model
        else:
            with lora.without_adapter(self.reference):
                yield self.reference

    def probe_memory(self, longest: int) -> None:
        """Run the largest possible micro-batch once, so that too little GPU memory shows before training.

        ``longest``: tokens of the longest possible row. If it does not fit, gradient checkpointing is turned
        on from here on, which changes no result, and it is tried again; EngineError if it still does not fit.
        Weights stay; gradients are cleared.
        """
        if not self.config.gradient_checkpointing:
            try:
                self._probe(longest)
                return
            except torch.OutOfMemoryError:
                log.warning("a micro-batch does not fit: train.gradient_checkpointing=true from here on")
            self.config = self.config.model_copy(update={"gradient_checkpointing": True})
            recompute_activations(self.model)
        doing = f"in probing a micro-batch with rows of {longest} tokens"
        with out_of_memory_explained(doing, TRAINING_REMEDY):
            self._probe(longest)

    def _probe(self, longest: int) -> None:
        """Forward and backward pass of a full micro-batch, with the memory in use that an update has."""
        parameters = self.master_weights.parameters
        # Stand-ins for what a later micro-batch finds: the gradients' sum, and both moments if there are
        # none yet.
        counts = [1 if p in self.optimizer.state else 3 for p in parameters]
        held: list[torch.Tensor] = []
        for parameter, count in zip(parameters, counts, strict=True):
            held += [torch.empty_like(parameter) for _ in range(count)]
        rows = max(1, self.config.tokens_per_microbatch // longest)
        ids_B_T = torch.arange(rows * longest, device=self.model.device) % self.model.config.vocab_size
        ids_B_T = ids_B_T.view(rows, -1)
        self.model.train()
        self.model.zero_grad()
        torch.autograd.backward(self.token_logprobs(self.model, ids_B_T, torch.ones_like(ids_B_T)).sum())
        self.master_weights.accumulate_gradients()  # with the stand-ins, as much memory as an update takes
        self.optimizer.zero_grad()
        held.clear()

    def _microbatches(self, rows: Sequence[R]) -> list[list[R]]:
        """Micro-batches of at most ``tokens_per_microbatch`` tokens, as the forward pass counts them."""
        budget = self.config.tokens_per_microbatch
        # The released loss depends on the released trainer's own micro-batches: its weights are fixed first.
        if self.criterion.loss_agg == "microbatch_released":
            rows = weighted_as_released(rows, budget)
        # transformers' pass computes padding, so rows of similar length go together; the packed pass computes
        # a common beginning once, so rows that begin alike do.
        if self.forward_pass == "transformers":
            return microbatches(rows, budget)
        parts = batches_by_prefix([row.ids for row in rows], budget)
        return [[rows[k] for k in part] for part in parts]

    def token_logprobs(self, model: Any, ids_B_T: torch.Tensor, mask_B_T: torch.Tensor) -> torch.Tensor:
        """Log-probability (nats) under ``model`` of every masked token given those before it, shape (B, T).

        Logits are divided by the sampling temperature, so that this is the policy that sampled. 0 for the
        first token, and where the mask is 0.
        """
        if self.forward_pass == "transformers":
            return token_logprobs(model, ids_B_T, mask_B_T, self.temperature)
        return tree_logprobs(model, ids_B_T, mask_B_T, self.temperature, self.tree_class)

    def _logprobs(self, batch: Batch, rows: Sequence[Row]) -> torch.Tensor:
        """Log-probs under the model that is trained, shape (B, T). Raises NonFiniteError."""
        logprobs_B_T = self.token_logprobs(self.model, batch.ids_B_T, batch.mask_B_T)
        check_rows_finite("log-prob in training", [row.name for row in rows], logprobs_B_T)
        return logprobs_B_T

    def _reference_logprobs(self, batch: Batch) -> torch.Tensor:
        """Log-probs under the base checkpoint, shape (B, T)."""
        with torch.no_grad(), lora.without_adapter(self.reference):
            return self.token_logprobs(self.reference, batch.ids_B_T, batch.mask_B_T)
