"""Method: the interface between an algorithm and an engine. A method knows no environment and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from pydantic import ConfigDict

from r3l.core import losses
from r3l.core.advantages import Advantages
from r3l.core.losses import KLEstimator
from r3l.core.option import OptionModel, option
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group
from r3l.core.validation import name_of_method, wrong

if TYPE_CHECKING:
    import torch

LossAggregation = Literal["traj_mean", "token_mean", "token_sum", "microbatch_released"]
# Weights of a teacher: the ones that sampled, the base checkpoint's, or an exponential average of the
# weights after each update.
TeacherWeights = Literal["live", "frozen", "average"]


@dataclass(frozen=True)
class Batch:
    """A micro-batch: rows padded on the right to one length T.

    - ``ids_B_T``: token ids, int64.
    - ``mask_B_T``: 1.0 on trainable tokens.
    - ``weight_B_T``: the share of each token in its loss. The loss of a step is the plain sum of weight x
      per-token loss over its micro-batches, so it does not depend on packing.
    - ``old_logprobs_B_T``: log-probs at sampling time; ``advantages_B_T``: one per token.
    - ``teacher_logprobs_B_T``: log-probs in the teacher's context (see Trajectory); on rows without a
      teacher the old ones. ``taught_B``: rows with a teacher, bool.
    - ``sft_B``: rows to imitate, bool. ``off_policy_B``: rows sampled under another context than the one they
      are trained in (see Trajectory), bool.
    - ``ref_logprobs_B_T``: log-probs of the base checkpoint, only for methods with a KL term.

    Arrays without a given type are float32.
    """

    ids_B_T: torch.Tensor
    mask_B_T: torch.Tensor
    weight_B_T: torch.Tensor
    old_logprobs_B_T: torch.Tensor
    advantages_B_T: torch.Tensor
    teacher_logprobs_B_T: torch.Tensor
    taught_B: torch.Tensor
    sft_B: torch.Tensor
    off_policy_B: torch.Tensor
    ref_logprobs_B_T: torch.Tensor | None = None

    def row(self, k: int) -> Batch:
        """Row ``k`` as a batch of one row, of the same width T."""
        only = slice(k, k + 1)
        reference = self.ref_logprobs_B_T
        return Batch(
            self.ids_B_T[only],
            self.mask_B_T[only],
            self.weight_B_T[only],
            self.old_logprobs_B_T[only],
            self.advantages_B_T[only],
            self.teacher_logprobs_B_T[only],
            self.taught_B[only],
            self.sft_B[only],
            self.off_policy_B[only],
            None if reference is None else reference[only],
        )


class Criterion(Protocol):
    """Interface of a loss: the function ``loss`` and two attributes.

    ``kl_coef``: weight of the KL; above 0 it needs log-probs of the base checkpoint. ``loss_agg``: how token
    losses are averaged: ``traj_mean``, ``token_mean``, ``token_sum`` or ``microbatch_released``
    (:func:`r3l.core.batching.rows_of`).
    """

    kl_coef: float
    loss_agg: LossAggregation

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """The scalar loss of a micro-batch and its metrics; both add up over the micro-batches of a step.

        ``logprobs_B_T``: log-probs of the batch's tokens by the weights in training, with gradient.
        """
        ...


class Method(Criterion, Protocol):
    """The interface of an algorithm: ``explore`` a task, ``step_advantages`` of a step, ``loss`` of a batch.

    ``trains``: False for a method that leaves the base checkpoint unchanged. ``max_rounds`` > 1 lets the
    engine draw more tasks instead of those whose groups ``keep`` rejects. ``needs_history``: ``explore``
    reads the metrics of earlier steps. ``teacher``: the weights that score a teacher's context: ``live`` (the
    sampler's), ``frozen`` (the base checkpoint's) or ``average`` (a moving average); ``teacher_rate``: share
    of the new weights in that average, at each update.
    """

    trains: bool
    max_rounds: int
    needs_history: bool
    teacher: TeacherWeights
    teacher_rate: float

    @property
    def max_rollouts(self) -> int:
        """The largest number of rollouts, retries included, that a step can play for one task of its batch.

        Rollouts of tasks that ``keep`` rejects count too: with ``max_rounds`` > 1 several may be played to
        keep one.
        """
        ...

    @property
    def max_samples(self) -> int:
        """The largest number of trajectories of one task that can train, by policy gradient or imitation."""
        ...

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play one task; returns the groups of trajectories to learn from."""
        ...

    def keep(self, groups: Sequence[Group]) -> bool:
        """Whether a task's ``groups``, from ``explore``, enter the batch; False drops all of them."""
        ...

    def step_advantages(self, groups: Sequence[Group]) -> Sequence[Advantages]:
        """The advantages of the ``groups`` of a step that train by policy gradient: one array for each."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The settings as JSON, for the manifest of a run."""
        ...


class MethodSettings(OptionModel):
    """Options of every trained method. The defaults are profile ``paper``.

    Unknown keys and infinite numbers raise ValidationError. Codes such as (A-8) or (audit 4.4) refer to
    docs/audit.md. ``kl``: ``none``, or an estimator ``k1``, ``k2``, ``k3``. ``loss_agg``: ``traj_mean``,
    ``token_mean``, ``token_sum`` or ``microbatch_released``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    group_size: int = option(
        8,
        "N: rollouts per task (A-14, A-17)",
        "paper: N = 8 (audit 4.4)",
        ge=1,
        le=4096,
    )
    kl: KLEstimator = option(
        "none",
        "KL to the base checkpoint (A-7, A-13)",
        "paper: none; one setting for all methods (audit 4.4)",
    )
    kl_coef: float = option(0.0, "weight of the KL (A-7, A-13)", "as kl", ge=0)
    loss_agg: LossAggregation = option(
        "traj_mean",
        "how token losses are averaged (A-8)",
        "paper: 1/|tau| (released code: by micro-batch, A-8)",
    )
    sft_coef: float = option(
        1.0,
        "weight of the imitation loss (A-9)",
        "our choice: the paper gives no value",
        ge=0,
    )


S = TypeVar("S", bound=MethodSettings)
# Per-token losses and per-token metrics, shape (B, T) each.
Tokens = tuple["torch.Tensor", Mapping[str, "torch.Tensor"]]


class TrainedMethod(Generic[S]):
    """Base class of trained methods: N rollouts per task, and the sum of policy, SFT and KL losses.

    A subclass sets ``Settings`` and defines ``surrogate``, and ``advantages`` of one group or
    ``step_advantages`` of all groups of a step. It overrides ``explore`` if it plays anything else, such as
    retries. A method without policy loss extends :class:`ImitationMethod`.
    """

    Settings: type[S]
    trains = True
    max_rounds = 1
    needs_history = False  # True: explore reads ctx.history, the metrics of earlier steps
    teacher: TeacherWeights = "live"
    teacher_rate = 0.0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = self.Settings(**settings)
        self.kl_coef = self.settings.kl_coef if self.settings.kl != "none" else 0.0
        self.loss_agg = self.settings.loss_agg
        # Options of methods whose rollouts have a teacher (r3l.baselines.teacher).
        self.teacher = getattr(self.settings, "teacher", self.teacher)
        self.teacher_rate = getattr(self.settings, "teacher_rate", self.teacher_rate)

    def describe(self) -> Mapping[str, Any]:
        """The settings, defaults included, as JSON values."""
        return self.settings.model_dump(mode="json")

    @property
    def max_rollouts(self) -> int:
        """N = ``group_size`` rollouts of a task."""
        return self.settings.group_size

    @property
    def max_samples(self) -> int:
        """``max_rollouts``: every rollout may train."""
        return self.max_rollouts

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N = ``group_size`` rollouts of ``task``; returns them as one group."""
        return [Group(task, await play_group(ctx, task, self.settings.group_size))]

    def keep(self, groups: Sequence[Group]) -> bool:
        """True: the groups of every task enter the batch."""
        return True

    def advantages(self, group: Group) -> Advantages:
        """The advantage of each trajectory of ``group``, in its order.

        Shape (G,); or a list in which a trajectory may have an array (T,) with a value per token. It is
        called only for groups that train by policy gradient.

        Override it if the method compares trajectories within a group only, such as GRPO; else override
        ``step_advantages``.
        """
        raise NotImplementedError

    def step_advantages(self, groups: Sequence[Group]) -> Sequence[Advantages]:
        """The advantages of all ``groups`` of a step that train by policy gradient, one entry per group.

        Override it if the method compares groups with each other; by default each group is separate.
        """
        return [self.advantages(group) for group in groups]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Per-token policy loss, and per-token metrics by name, all of shape (B, T); a subclass defines it.

        ``logprobs_B_T``: log-probs of the batch's tokens under the current weights, with gradient.
        """
        raise NotImplementedError

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """The scalar loss of a micro-batch and its metrics, as floats.

        It is the surrogate on policy rows + sft_coef * (-log p) on SFT rows + kl_coef * KL on policy rows,
        each summed over tokens by ``batch.weight_B_T``. Metrics: these sums without coefficients
        (``loss/policy``, ``loss/sft``, with a KL ``loss/kl``), and the same sum of each of ``surrogate``'s.
        Raises ContractError if ``surrogate`` returned something of a wrong type or shape, or without a
        gradient.
        """
        # Every row counts in one of two losses, policy or SFT; the weights of the other loss are 0 on it.
        sft_weight_B_T = batch.weight_B_T * batch.sft_B[:, None]
        weight_B_T = batch.weight_B_T - sft_weight_B_T
        policy_B_T, parts = _checked_surrogate(self, batch, logprobs_B_T, self.surrogate(batch, logprobs_B_T))
        terms = {
            "loss/policy": (weight_B_T * policy_B_T).sum(),
            "loss/sft": -(sft_weight_B_T * logprobs_B_T).sum(),
        }
        total = terms["loss/policy"] + self.settings.sft_coef * terms["loss/sft"]
        if batch.ref_logprobs_B_T is not None and self.kl_coef > 0:
            kl_B_T = losses.kl(logprobs_B_T, batch.ref_logprobs_B_T, self.settings.kl)
            terms["loss/kl"] = (weight_B_T * kl_B_T).sum()
            total = total + self.kl_coef * terms["loss/kl"]
        terms |= {name: (weight_B_T * value_B_T).sum() for name, value_B_T in parts.items()}
        return total, {name: value.item() for name, value in terms.items()}


def _checked_surrogate(method: Criterion, batch: Batch, logprobs_B_T: torch.Tensor, returned: Any) -> Tokens:
    """Check what ``surrogate`` returned: per-token losses with a gradient, and per-token metrics.

    Raises ContractError.
    """
    from torch import Tensor

    who = name_of_method(method)
    shape = tuple(logprobs_B_T.shape)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        fix = "return (losses, metrics): a tensor and a dict of tensors"
        raise wrong(who, "surrogate returned", returned, fix)
    losses_B_T, metrics = returned
    tensors = {"the surrogate": losses_B_T} | {f"metric {key!r}": v for key, v in metrics.items()}
    for what, values in tensors.items():
        if not isinstance(values, Tensor) or tuple(values.shape) != shape:
            fix = f"give a tensor with a value for each token, shape (B, T) = {shape}"
            raise wrong(who, f"{what} is", values, fix)
    # Detached losses would train nothing, without an error. Batches of only SFT rows have no policy loss.
    trains = logprobs_B_T.requires_grad and bool(batch.weight_B_T[~batch.sft_B].any())
    if trains and not losses_B_T.requires_grad:
        fix = "compute it from the log-probs that surrogate gets, without detach or no_grad"
        raise wrong(who, "the surrogate has no gradient:", losses_B_T, fix)
    return losses_B_T, metrics


class ImitationMethod(TrainedMethod[S]):
    """Base class of methods that only imitate: all rows that train are SFT rows."""

    def advantages(self, group: Group) -> np.ndarray:
        """Zeros, shape (G,); imitated trajectories have no advantage."""
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Zeros, shape (B, T), and no metrics: there is no policy loss."""
        return logprobs_B_T.new_zeros(logprobs_B_T.shape), {}
