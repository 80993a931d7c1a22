"""Checks of what a user's method returns: groups, advantages, losses.

A scalar would broadcast over a batch, and a detached loss trains nothing, both without an error of Python. So
each value is checked once, here, and the error names the method, the value and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.advantages import Advantage
from r3l.core.method import Batch, Criterion, Method
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective, Trajectory
from r3l.core.validation import FLAG, name_of_method, real_number, wrong

if TYPE_CHECKING:
    import torch


async def explore_checked(method: Method, task: Task, ctx: RolloutContext) -> list[Group]:
    """Call ``method.explore`` and check the groups that it returns.

    Raises ContractError if they are no list of Group, or a field of one has a wrong type or length.
    Trajectories that ended by an error inside the environment (``failed``) are left out: their reward says
    nothing about the policy. After that a policy group with fewer than two trajectories is dropped, since it
    compares nothing; another group is dropped if it is empty.
    """
    groups = await method.explore(task, ctx)
    who = name_of_method(method)
    if not isinstance(groups, list) or not all(isinstance(group, Group) for group in groups):
        raise wrong(who, "explore returned", groups, "return a list of Group (r3l.core.trajectory)")
    for group in groups:
        _check_group(who, group)

    graded = []
    for group in groups:
        kept = [k for k, trajectory in enumerate(group.trajectories) if not trajectory.failed]
        if len(kept) == len(group.trajectories):
            graded.append(group)
        elif len(kept) > 1 or (kept and group.objective is not Objective.POLICY):
            returns = None if group.returns is None else [group.returns[k] for k in kept]
            members = [group.trajectories[k] for k in kept]
            graded.append(replace(group, trajectories=members, returns=returns))
    return graded


def keep_checked(method: Method, groups: Sequence[Group]) -> bool:
    """True if ``groups``, all groups of one task, enter the batch, by ``method.keep``.

    Raises ContractError if ``keep`` returns anything but True or False.
    """
    return FLAG.check(name_of_method(method), "keep returned", method.keep(groups))


def advantages_checked(method: Method, groups: Sequence[Group]) -> list[list[Advantage]]:
    """Call ``method.step_advantages`` and return the advantage of each trajectory, one list per group.

    ``groups``: groups that train by policy gradient. An advantage is a number, or an array with one number
    per token of its trajectory. Raises ContractError for anything else, and for a wrong number of them.
    """
    of_groups = method.step_advantages(groups)
    who = name_of_method(method)
    if not _is_list(of_groups, len(groups)):
        fix = f"return a list with one entry for each of {len(groups)} groups"
        raise wrong(who, "step_advantages returned", of_groups, fix)
    for group, advantages_G in zip(groups, of_groups, strict=True):
        members = group.trajectories
        if not _is_list(advantages_G, len(members)):
            fix = f"give an array or list with one entry for each of {len(members)} trajectories"
            raise wrong(who, "the advantages of a group are", advantages_G, fix)
        for trajectory, advantage in zip(members, advantages_G, strict=True):
            if isinstance(advantage, np.ndarray):
                tokens = len(trajectory.token_ids())
                if advantage.shape != (tokens,) or advantage.dtype.kind not in "fiu":
                    fix = f"give one number for each of the trajectory's {tokens} tokens"
                    raise wrong(who, "an advantage is", advantage, fix)
            elif real_number(advantage) is None:
                fix = "give a number, or a numpy array with one for each token of the trajectory"
                raise wrong(who, "an advantage is", advantage, fix)
    return [list(advantages_G) for advantages_G in of_groups]


def loss_checked(
    criterion: Criterion,
    batch: Batch,
    logprobs_B_T: torch.Tensor,
) -> tuple[torch.Tensor, Mapping[str, float]]:
    """Call ``criterion.loss`` and return its loss and metrics.

    Raises ContractError unless they are a scalar tensor (with a gradient if the log-probs have one) and a
    dict of numbers.
    """
    from torch import Tensor

    returned: Any = criterion.loss(batch, logprobs_B_T)
    who = name_of_method(criterion)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        fix = "return (loss, metrics): a scalar tensor and a dict of numbers"
        raise wrong(who, "loss returned", returned, fix)
    loss, metrics = returned
    if not isinstance(loss, Tensor) or loss.dim() or loss.requires_grad < logprobs_B_T.requires_grad:
        raise wrong(who, "the loss is", loss, "give a tensor without axes that has a gradient")
    for key, value in metrics.items():
        if real_number(value) is None:
            raise wrong(who, f"metric {key!r} of the loss is", value, "give an int or float")
    return loss, metrics


def _is_list(value: Any, length: int) -> bool:
    is_list = value.ndim > 0 if isinstance(value, np.ndarray) else isinstance(value, list | tuple)
    return is_list and len(value) == length


def _check_group(who: str, group: Group) -> None:
    """Raise ContractError if a field of a Group has a wrong type or length."""
    members = group.trajectories
    if not isinstance(members, list) or not all(isinstance(member, Trajectory) for member in members):
        raise wrong(who, "trajectories of a Group are", members, "give a list of Trajectory")
    objective: Any = group.objective
    if not isinstance(objective, Objective):
        fix = "give one of Objective (POLICY, SFT, NONE)"
        raise wrong(who, "the objective of a Group is", objective, fix)

    numbers = {"weight of a Group": group.weight}
    if group.baseline is not None:
        numbers["baseline of a Group"] = group.baseline
    if group.returns is not None:
        if not _is_list(group.returns, len(members)):
            fix = f"give one for each of its {len(members)} trajectories"
            raise wrong(who, "returns of a Group are", group.returns, fix)
        numbers |= {f"return {k} of a Group": value for k, value in enumerate(group.returns)}
    numbers |= {f"reward of trajectory {k}": member.reward for k, member in enumerate(members)}
    for what, value in numbers.items():
        if real_number(value) is None:
            raise wrong(who, f"{what} is", value, "give an int or float")
