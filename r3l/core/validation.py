"""Checks of what environments and methods return.

Python accepts values that are almost right: "false" is true, a scalar broadcasts over a batch, a detached
loss trains nothing. So each value is checked once, here, and the error names who returned it, the value and
the fix. torch is imported inside functions: workers of environments import this module and start four times
faster without it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from r3l.core.advantages import Advantage
from r3l.core.environment import Observation
from r3l.core.errors import ContractError
from r3l.core.task import Task
from r3l.core.text import shown
from r3l.core.trajectory import Group, Objective, Trajectory

if TYPE_CHECKING:
    import torch

    from r3l.core.method import Batch, Criterion, Method, Tokens
    from r3l.core.rollout import RolloutContext

T = TypeVar("T")
LONGEST = 1_000_000  # most characters of an observation; our choice, beyond any model's context


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A check of one value that a user's code returned.

    ``read`` converts it to a plain Python type, or returns None for a wrong value. ``fix``: how to correct
    it.
    """

    read: Callable[[Any], T | None]
    fix: str

    def check(self, who: str, what: str, value: Any) -> T:
        """Return the converted ``value``, or raise ContractError naming ``who`` returned ``what``."""
        if (read := self.read(value)) is None:
            raise wrong(who, what, value, self.fix)
        return read


def _number(value: Any) -> float | None:
    found = _real(value)
    return found if found is not None and math.isfinite(found) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    is_list = isinstance(value, tuple | list)
    return tuple(value) if is_list and all(isinstance(part, str) for part in value) else None


NUMBER = Rule(_number, "give a finite int or float")  # numpy numbers too
FLAG = Rule(lambda value: bool(value) if isinstance(value, bool | np.bool_) else None, "give True or False")
TEXT = Rule(
    lambda value: value if isinstance(value, str) and len(value) <= LONGEST else None,
    f"give a str of at most {LONGEST:,} characters",
)
TEXTS = Rule(_texts, "give a tuple of str")
OBSERVATION: Mapping[str, Rule[Any]] = {
    "text": TEXT,
    "admissible": TEXTS,
    "reward": NUMBER,
    "done": FLAG,
    "success": FLAG,
    "invalid_action_reward": NUMBER,
    "refused": FLAG,
    "no_answer": FLAG,
    "failed": TEXT,
}


def checked_observation(env: str, call: str, returned: Any) -> Observation:
    """Check what ``call`` (reset, step, restore) of an environment returned, and convert it to plain types.

    Raises ContractError.
    """
    who = f"environment {env!r}"
    what = f"{call} returned"
    if not isinstance(returned, Observation):
        raise wrong(who, what, returned, "return an Observation (r3l.core.environment)")
    fields = {
        name: rule.check(who, f"{what} an Observation whose {name} is", getattr(returned, name))
        for name, rule in OBSERVATION.items()
    }
    return replace(returned, **fields)


def checked_payload(env: str, returned: Any) -> dict[str, Any]:
    """Check that ``problem`` of an environment returned a JSON object: it is hashed and crosses processes.

    Raises ContractError.
    """
    who = f"environment {env!r}"
    fix = "return a dict of what JSON has: str, int, finite float, bool, None, list, dict"
    if not isinstance(returned, dict) or not all(isinstance(key, str) for key in returned):
        raise wrong(who, "problem returned", returned, fix)
    try:
        json.dumps(returned, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise wrong(who, "problem returned", returned, f"{fix} ({error})") from error
    return returned


async def explored(method: Method, task: Task, ctx: RolloutContext) -> list[Group]:
    """Call ``method.explore`` and check its groups. Raises ContractError.

    Trajectories that ended by an error inside the environment are left out: their reward says nothing about
    the policy. A group of which one trajectory is left is dropped, since it compares nothing.
    """
    groups = await method.explore(task, ctx)
    who = _named(method)
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


def kept(method: Method, groups: Sequence[Group]) -> bool:
    """True if ``groups``, all groups of one task, enter the batch, by ``method.keep``.

    Raises ContractError if ``keep`` returns anything but True or False.
    """
    return FLAG.check(_named(method), "keep returned", method.keep(groups))


def advantages_of(method: Method, groups: Sequence[Group]) -> list[list[Advantage]]:
    """Call ``method.step_advantages`` and check that each trajectory of ``groups`` has one advantage.

    ``groups``: those that train by policy gradient. Raises ContractError.
    """
    of_groups = method.step_advantages(groups)
    who = _named(method)
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
            elif _real(advantage) is None:
                fix = "give a number, or a numpy array with one for each token of the trajectory"
                raise wrong(who, "an advantage is", advantage, fix)
    return [list(advantages_G) for advantages_G in of_groups]


def checked_surrogate(method: Method, batch: Batch, logprobs_B_T: torch.Tensor, returned: Any) -> Tokens:
    """Check what ``surrogate`` returned: per-token losses with a gradient, and per-token metrics.

    Raises ContractError.
    """
    from torch import Tensor

    who = _named(method)
    shape = tuple(logprobs_B_T.shape)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        fix = "return (losses, metrics): a tensor and a dict of tensors"
        raise wrong(who, "surrogate returned", returned, fix)
    losses_B_T, metrics = returned
    for what, values in {
        "the surrogate": losses_B_T,
        **{f"metric {key!r}": v for key, v in metrics.items()},
    }.items():
        if not isinstance(values, Tensor) or tuple(values.shape) != shape:
            raise wrong(
                who,
                f"{what} is",
                values,
                f"give a tensor with a value for each token, shape (B, T) = {shape}",
            )
    # Detached losses would train nothing, without an error. Batches of only SFT rows have no policy loss.
    trains = logprobs_B_T.requires_grad and bool(batch.weight_B_T[~batch.sft_B].any())
    if trains and not losses_B_T.requires_grad:
        fix = "compute it from the log-probs that surrogate gets, without detach or no_grad"
        raise wrong(who, "the surrogate has no gradient:", losses_B_T, fix)
    return losses_B_T, metrics


def loss_of(
    criterion: Criterion,
    batch: Batch,
    logprobs_B_T: torch.Tensor,
) -> tuple[torch.Tensor, Mapping[str, float]]:
    """Call ``criterion.loss`` and check it: a scalar with a gradient, and a dict of numbers.

    Raises ContractError.
    """
    from torch import Tensor

    returned: Any = criterion.loss(batch, logprobs_B_T)
    who = _named(criterion)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        fix = "return (loss, metrics): a scalar tensor and a dict of numbers"
        raise wrong(who, "loss returned", returned, fix)
    loss, metrics = returned
    if not isinstance(loss, Tensor) or loss.dim() or loss.requires_grad < logprobs_B_T.requires_grad:
        raise wrong(who, "the loss is", loss, "give a tensor without axes that has a gradient")
    for key, value in metrics.items():
        if _real(value) is None:
            raise wrong(who, f"metric {key!r} of the loss is", value, "give an int or float")
    return loss, metrics


def wrong(who: str, what: str, value: Any, fix: str) -> ContractError:
    """A ContractError that reads "who: what value; fix".

    ``who`` names the method or environment. ``what`` ends with a verb, such as "keep returned". ``fix`` says
    how to correct it, such as "give True or False".
    """
    return ContractError(f"{who}: {what} {shown(value)}; {fix}")


def _real(value: Any) -> float | None:
    """A number, numpy's too, finite or not; None for anything else or one too large for a float."""
    try:
        found = float(value) if isinstance(value, Real) else None
    except (OverflowError, ValueError):
        return None
    return value if type(value) is int and found is not None else found  # an int stays one in records


def _named(criterion: Criterion) -> str:
    return f"method {type(criterion).__module__}.{type(criterion).__qualname__}"


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
        if _real(value) is None:
            raise wrong(who, f"{what} is", value, "give an int or float")
