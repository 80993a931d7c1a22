"""Zero-shot: the starting model as it is. It explores nothing and is never trained (``steps: 0``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

from r3l.core.method import ImitationMethod, LossAggregation, MethodSettings
from r3l.core.option import OptionModel
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group


class NoSettings(OptionModel):
    """There is nothing to set."""

    model_config = ConfigDict(extra="forbid")


class ZeroShot(ImitationMethod[MethodSettings]):
    """The row every other row is measured against."""

    Settings = NoSettings  # type: ignore[assignment]  # it refuses what other methods have
    kl_coef = 0.0
    loss_agg: LossAggregation = "traj_mean"
    trains = False
    max_rollouts = 0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.Settings(**settings)

    def describe(self) -> Mapping[str, Any]:
        """There is nothing to set."""
        return {}

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """No training, no samples."""
        return []
