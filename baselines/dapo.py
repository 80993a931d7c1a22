"""DAPO: GRPO with dynamic sampling, asymmetric clipping and an overlong penalty (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.advantages import all_equal
from r3l.core.option import option
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory

Counted = Literal["responses", "all_after_first_prompt"]


class DAPOSettings(GRPOSettings):
    """Settings of DAPO. Codes such as (A-8) or (audit 0.6) are entries of docs/audit.md.

    ``overlong_counts``: the length of a rollout is the tokens of its ``responses``, or
    ``all_after_first_prompt``.
    """

    clip_high: float = option(
        0.28, "the ratio is clipped at 1 + clip_high (audit 1.7)", "DAPO paper and released code: 0.28", ge=0
    )
    sampling_rounds: int = option(
        3,
        "rounds of tasks to fill a batch; 1: no dynamic sampling (audit 1.7)",
        "our choice: three at most (DAPO paper: until the batch is full; released code: one)",
        ge=1,
    )
    drop_uniform: bool = option(
        True,
        "drop groups whose rewards are all equal (audit 1.7)",
        "DAPO paper: groups with accuracy 0 or 1 are dropped (released code: not)",
    )
    overlong_max: int = option(
        512,
        "Lmax: tokens from which the penalty is -1 (audit 1.7)",
        "released code, agentic environments",
        ge=1,
    )
    overlong_cache: int = option(
        400,
        "the penalty grows over this many tokens before Lmax (audit 1.7)",
        "released code, agentic environments",
        ge=1,
        validate_default=True,  # against overlong_max, which may be set alone
    )
    overlong_counts: Counted = option(
        "responses",
        "tokens that count as length (A-15)",
        "our choice (released code counts observations too)",
    )
    binary_reward: bool = option(
        False,
        "reward 1 for success and 0 for anything else (audit 1.7)",
        "our choice: the environment's reward (released code: success only)",
    )

    @field_validator("overlong_cache")
    @classmethod
    def _at_most_overlong_max(cls, value: int, fields: ValidationInfo) -> int:
        # A longer cache would penalise empty rollouts.
        most = fields.data.get("overlong_max", value)
        if value > most:
            raise ValueError(f"overlong_cache is above overlong_max; set it to at most {most}")
        return value


class DAPO(GRPO):
    """GRPO with dynamic sampling and the soft overlong penalty.

    Dynamic sampling replaces groups of equal rewards by groups of further tasks (``max_rounds``, ``keep``).
    The penalty, from 0 to -1, is added to the rewards of long rollouts.
    """

    Settings = DAPOSettings
    settings: DAPOSettings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.max_rounds = self.settings.sampling_rounds

    @property
    def max_rollouts(self) -> int:
        """N x ``sampling_rounds`` rollouts of a task.

        A task costs N rollouts, but a step may have to draw ``sampling_rounds`` tasks to keep one.
        """
        return self.settings.group_size * self.settings.sampling_rounds

    @property
    def max_samples(self) -> int:
        """N trajectories of a task; a dropped group does not train."""
        return self.settings.group_size

    async def explore(self, task: Task, ctx: RolloutContext) -> list[Group]:
        """Play N rollouts in one group; the return of each is its reward plus the overlong penalty.

        With ``binary_reward`` 1.0 for a success and 0.0 for a failure replace the reward.
        """
        trajectories = await play_group(ctx, task, self.settings.group_size)
        returns = []
        for trajectory in trajectories:
            if self.settings.overlong_counts == "responses":
                length = int(trajectory.response_mask().sum())
            else:
                first_prompt = len(trajectory.turns[0].prompt_ids) if trajectory.turns else 0
                length = len(trajectory.token_ids()) - first_prompt
            returns.append(self._reward(trajectory) + self.overlong_penalty(length))
        return [Group(task, trajectories, returns=returns)]

    def keep(self, groups: Sequence[Group]) -> bool:
        """Whether rewards differ within a group of the task; if not, it has no gradient (dynamic sampling).

        Penalties do not count. Always True with ``drop_uniform: false``.
        """
        differ = any(not all_equal([self._reward(t) for t in group.trajectories]) for group in groups)
        return differ or not self.settings.drop_uniform

    def _reward(self, trajectory: Trajectory) -> float:
        return float(trajectory.success) if self.settings.binary_reward else trajectory.reward

    def overlong_penalty(self, length: int) -> float:
        """DAPO's soft overlong punishment of a rollout of ``length`` tokens, from 0 down to -1.

        It is 0 up to ``overlong_max - overlong_cache`` tokens, then falls linearly to -1 at ``overlong_max``.
        """
        start = self.settings.overlong_max - self.settings.overlong_cache
        return -min(max(length - start, 0) / self.settings.overlong_cache, 1.0)
