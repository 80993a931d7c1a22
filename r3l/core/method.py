"""Method: the contract between an algorithm and an engine. A method knows no environment and no engine."""

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
from r3l.core.validation import checked_surrogate

if TYPE_CHECKING:
    import torch

LossAggregation = Literal["traj_mean", "token_mean", "token_sum", "microbatch_released"]


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right to one length T. Float32 but ``ids_B_T`` (int64), ``sft_B``, ``off_policy_B`` (bool).

    ``mask_B_T`` is 1 on trainable tokens. ``weight_B_T`` is the share of each token in its loss: the loss of
    a whole step is the plain sum of weight x per-token loss over its micro-batches, whatever the packing.
    ``off_policy_B``: rows sampled under another context (see Trajectory). ``ref_logprobs_B_T`` is there only for
    methods that ask for a KL term.
    """

    ids_B_T: torch.Tensor
    mask_B_T: torch.Tensor
    weight_B_T: torch.Tensor
    old_logprobs_B_T: torch.Tensor
    advantages_B_T: torch.Tensor
    sft_B: torch.Tensor
    off_policy_B: torch.Tensor
    ref_logprobs_B_T: torch.Tensor | None = None

    def row(self, k: int) -> Batch:
        only, reference = slice(k, k + 1), self.ref_logprobs_B_T
        return Batch(
            self.ids_B_T[only],
            self.mask_B_T[only],
            self.weight_B_T[only],
            self.old_logprobs_B_T[only],
            self.advantages_B_T[only],
            self.sft_B[only],
            self.off_policy_B[only],
            None if reference is None else reference[only],
        )


class Criterion(Protocol):
    """What a trainer needs: a loss. ``kl_coef`` > 0 asks for a frozen reference; ``loss_agg`` weighs the tokens."""

    kl_coef: float
    loss_agg: LossAggregation

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Scalar loss of a micro-batch (additive over micro-batches) and additive metrics."""
        ...


class Method(Criterion, Protocol):
    """What an engine needs of an algorithm.

    ``trains`` is False for a method that leaves the base checkpoint as it is. ``max_rounds`` > 1 lets the engine
    draw further tasks in place of those whose groups ``keep`` refuses. ``needs_history``: whether ``explore`` reads the
    metrics of earlier steps. ``max_rollouts`` is the most that one
    task can cost, ``max_samples`` the most trajectories of it that train.
    """

    trains: bool
    max_rounds: int
    needs_history: bool

    @property
    def max_rollouts(self) -> int: ...

    @property
    def max_samples(self) -> int:
        """The most trajectories of one task that train, imitated ones included."""
        ...

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]: ...

    def keep(self, groups: Sequence[Group]) -> bool:
        """Whether the groups of one task are worth a place in the batch."""
        ...

    def step_advantages(self, groups: Sequence[Group]) -> Sequence[Advantages]: ...

    def describe(self) -> Mapping[str, Any]: ...


class MethodSettings(OptionModel):
    """What every trained method can be set to. Defaults are those of profile ``paper``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    group_size: int = option(8, "N: rollouts a task (A-14, A-17)", "paper: N = 8 (audit 4.4)", ge=1, le=4096)
    kl: KLEstimator = option(
        "none",
        "KL to the base checkpoint (A-7, A-13)",
        "paper: none; one setting for all methods (audit 4.4)",
    )
    kl_coef: float = option(0.0, "weight of the KL (A-7, A-13)", "as kl", ge=0)
    loss_agg: LossAggregation = option(
        "traj_mean", "how token losses are averaged (A-8)", "paper: 1/|tau| (released code: by micro-batch, A-8)"
    )
    sft_coef: float = option(
        1.0, "weight of the imitation loss, where a method has one (A-9)", "our choice: the paper gives no value", ge=0
    )


S = TypeVar("S", bound=MethodSettings)
Tokens = tuple["torch.Tensor", Mapping[str, "torch.Tensor"]]


class TrainedMethod(Generic[S]):
    """What trained methods share: plain exploration and the frame of the loss.

    Subclasses name their ``Settings`` and bring ``advantages`` of a group, or ``step_advantages`` of all groups of a
    step, a surrogate, and what they explore beyond N rollouts (one that only imitates: :class:`ImitationMethod`).
    """

    Settings: type[S]
    trains = True
    max_rounds = 1
    needs_history = False  # True: explore reads ctx.history, the metrics of earlier steps

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = self.Settings(**settings)
        self.kl_coef = self.settings.kl_coef if self.settings.kl != "none" else 0.0
        self.loss_agg = self.settings.loss_agg

    def describe(self) -> Mapping[str, Any]:
        return self.settings.model_dump(mode="json")

    @property
    def max_rollouts(self) -> int:
        return self.settings.group_size

    @property
    def max_samples(self) -> int:
        return self.max_rollouts

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        return [Group(task, await play_group(ctx, task, self.settings.group_size))]

    def keep(self, groups: Sequence[Group]) -> bool:
        return True

    def advantages(self, group: Group) -> Advantages:
        """Those of a policy group that needs no other one to know them."""
        raise NotImplementedError

    def step_advantages(self, groups: Sequence[Group]) -> Sequence[Advantages]:
        """Group by group; a method that compares the groups of a step overrides this."""
        return [self.advantages(group) for group in groups]

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """Per-token policy loss and per-token metrics, shapes (B, T)."""
        raise NotImplementedError

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Surrogate on policy rows + sft_coef * (-log p) on sft rows + kl_coef * KL on policy rows."""
        sft_weight_B_T = batch.weight_B_T * batch.sft_B[:, None]
        weight_B_T = batch.weight_B_T - sft_weight_B_T
        policy_B_T, parts = checked_surrogate(self, batch, logprobs_B_T, self.surrogate(batch, logprobs_B_T))
        terms = {"loss/policy": (weight_B_T * policy_B_T).sum(), "loss/sft": -(sft_weight_B_T * logprobs_B_T).sum()}
        total = terms["loss/policy"] + self.settings.sft_coef * terms["loss/sft"]
        if batch.ref_logprobs_B_T is not None and self.kl_coef > 0:
            kl_B_T = losses.kl(logprobs_B_T, batch.ref_logprobs_B_T, self.settings.kl)
            terms["loss/kl"] = (weight_B_T * kl_B_T).sum()
            total = total + self.kl_coef * terms["loss/kl"]
        terms |= {name: (weight_B_T * value_B_T).sum() for name, value_B_T in parts.items()}
        return total, {name: value.item() for name, value in terms.items()}


class ImitationMethod(TrainedMethod[S]):
    """A method that only imitates: none of its groups feeds a policy loss."""

    def advantages(self, group: Group) -> np.ndarray:
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch: Batch, logprobs_B_T: torch.Tensor) -> Tokens:
        """There are no policy rows."""
        return logprobs_B_T.new_zeros(logprobs_B_T.shape), {}
