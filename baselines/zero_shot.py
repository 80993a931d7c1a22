"""Zero-shot: the base checkpoint, which is evaluated without training (``steps: 0``)."""

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
    """Settings without options: any option is an error."""

    model_config = ConfigDict(extra="forbid")


class ZeroShot(ImitationMethod[MethodSettings]):
    """The base checkpoint without training, the reference row of every table."""

    Settings = NoSettings  # type: ignore[assignment]  # without the options of other methods
    kl_coef = 0.0
    loss_agg: LossAggregation = "traj_mean"
    trains = False
    max_rollouts = 0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.Settings(**settings)

    def describe(self) -> Mapping[str, Any]:
        """No settings: {}."""
        return {}

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """No groups, since nothing is trained; never plays."""
        return []
