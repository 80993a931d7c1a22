"""Method: the contract between an algorithm and an engine. A method knows no environment and no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from r3l.core.losses import KLEstimator
from r3l.core.rollout import Arena
from r3l.core.task import Task
from r3l.core.trajectory import Group

LossAggregation = Literal["traj_mean", "token_mean"]


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right to one length T. All tensors float32 but ``ids_B_T`` (int64), ``sft_B`` (bool).

    ``mask_B_T`` is 1 on trainable tokens. ``weight_B_T`` is the share of each token in its loss: the loss of
    a whole step is the plain sum of weight x per-token loss over its micro-batches, whatever the packing.
    ``ref_logprobs_B_T`` is there only for methods that ask for a KL term.
    """

    ids_B_T: torch.Tensor
    mask_B_T: torch.Tensor
    weight_B_T: torch.Tensor
    old_logprobs_B_T: torch.Tensor
    advantages_B: torch.Tensor
    sft_B: torch.Tensor
    ref_logprobs_B_T: torch.Tensor | None = None


class Method(Protocol):
    """What an engine needs of an algorithm.

    ``kl_coef`` > 0 makes the engine keep a frozen reference model; ``loss_agg`` chooses the token weights.
    ``trains`` is False for a method that leaves the starting model as it is.
    """

    trains: bool
    kl_coef: float
    loss_agg: LossAggregation

    async def explore(self, task: Task, arena: Arena) -> list[Group]:
        """Sample the groups of one task."""
        ...

    def advantages(self, group: Group) -> np.ndarray:
        """advantages_G of a policy group, shape (G,). Not called for sft groups."""
        ...

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Scalar loss of a micro-batch (additive over micro-batches) and additive metrics."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The method's settings, for the manifest."""
        ...


class MethodSettings(BaseModel):
    """What every trained method can be set to. Sources of the values stand in configs/methods/<name>.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kl: KLEstimator = "none"
    kl_coef: float = Field(0.0, ge=0)
    loss_agg: LossAggregation = "traj_mean"


S = TypeVar("S", bound=MethodSettings)


class TrainedMethod(Generic[S]):
    """The part of the Method contract that follows from the settings; subclasses name their ``Settings``."""

    Settings: type[S]
    trains = True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = self.Settings(**settings)
        self.kl_coef = self.settings.kl_coef if self.settings.kl != "none" else 0.0
        self.loss_agg = self.settings.loss_agg

    def describe(self) -> Mapping[str, Any]:
        """All settings, defaults included."""
        return self.settings.model_dump()
