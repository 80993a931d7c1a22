"""The log of training trajectories: text, credit and advantages of three steps of a run, for readers.

``trajectories.jsonl.gz`` in the run's directory has one line per logged task (``TrajectoryLine``).
Advantages are means over sampled tokens; turns have their own if the method's advantages differ by token.
Trajectories that nothing is learnt from are in a last group with the objective ``none``. Writing the log
draws, trains and counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from r3l.core.advantages import Advantage, mean_advantage
from r3l.core.method_validation import advantages_checked
from r3l.core.trajectory import Group, Objective, Trajectory
from r3l.files.json_files import Number

if TYPE_CHECKING:
    from r3l.core.method import Method

FILE = "trajectories.jsonl.gz"
# Logged tasks of a step: the first ones, and further ones that teach something; our choice.
FIRST = 1
TAUGHT = 2
Decode = Callable[[list[int]], str]
Line = dict[str, Any]  # a TrajectoryLine without step and method, which the engine adds


class LoggedTurn(TypedDict):
    """One turn of a logged trajectory.

    ``prompt``: text added since the previous response; under ``samples: turn`` the complete context.
    ``response``: [text, number of tokens, trained] of each stretch of tokens that all train or all do not.
    ``action``: parsed from the response; ``error``: why it could not be. ``advantage``: the turn's mean, only
    if the method's advantages differ by token.
    """

    prompt: str
    prompt_tokens: int
    response: list[Annotated[list[str | int | bool], Field(min_length=3, max_length=3)]]
    finish_reason: str
    action: NotRequired[str | None]
    error: NotRequired[str | None]
    advantage: NotRequired[Number]  # only if the method's advantages differ by token


class LoggedTrajectory(TypedDict):
    """One logged trajectory.

    ``member``: index of its base rollout within the task. ``restart_turn``: turn (from 0) at which a
    retry begins. ``advantage``: mean over its sampled tokens; None if it is in no policy group.
    ``trainable``: [first, end) of the turns that carry gradient. ``parsed``: content of a reflection or
    critique. ``kind``: a value of r3l.core.trajectory.TrajectoryKind.
    """

    kind: str
    member: int
    attempt: int
    reward: Number
    success: bool
    stop_reason: NotRequired[str | None]
    advantage: Number | None
    restart_turn: int
    trainable: Annotated[list[int], Field(min_length=2, max_length=2)]
    feedback: str
    parsed: Mapping[str, Any] | None
    turns: list[LoggedTurn]


class LoggedGroup(TypedDict):
    """The trajectories of a group. ``objective``: policy, sft, or none if nothing is learnt from them."""

    objective: str
    trajectories: list[LoggedTrajectory]


class TrajectoryLine(TypedDict):
    """One line of the trajectory log: a task of a step with its groups.

    ``group``: the task's, such as easy. ``groups``: its trajectories, by the group that they train in.
    ``selected_as``: why it is logged: ``first`` of the step, or ``taught``, one that teaches something.
    """

    step: int
    method: str
    task: str
    group: str
    selected_as: str
    groups: list[LoggedGroup]


def logged_steps(steps: int) -> set[int]:
    """Numbers of the steps whose trajectories are logged: the first, the middle and the last of ``steps``.

    Steps are counted from 1.
    """
    return {1, (steps + 1) // 2, steps}


def lines(
    method: Method,
    tasks: Sequence[Sequence[Group]],
    played: Sequence[Trajectory],
    decode: Decode,
) -> list[Line]:
    """The lines to log for a step: its first task, and the next two that teach something.

    A task teaches if it is imitated, or if one of its advantages by ``method`` is not 0. ``tasks``: the
    groups of each task of the batch. ``played``: all trajectories that were sampled for these tasks;
    trajectories in no group are logged as a separate group. ``decode``: token ids to text. The caller adds
    step and method, and writes the lines.
    """
    # The advantages of each group: of the method for policy groups, None for the others.
    policy = [group for groups in tasks for group in groups if group.objective is Objective.POLICY]
    of_policy = iter(advantages_checked(method, policy))
    advantages: list[list[list[Advantage | None]]] = []
    for groups in tasks:
        of_task: list[list[Advantage | None]] = []
        for group in groups:
            is_policy = group.objective is Objective.POLICY
            of_task.append(list(next(of_policy)) if is_policy else [None] * len(group.trajectories))
        advantages.append(of_task)

    # A task teaches something if it is imitated, or if one of its advantages is not zero.
    def teaches(task: int) -> bool:
        return any(
            group.objective is Objective.SFT or any(np.any(value) for value in values)
            for group, values in zip(tasks[task], advantages[task], strict=True)
        )

    first = list(range(min(FIRST, len(tasks))))
    taught = [task for task in range(FIRST, len(tasks)) if teaches(task)][:TAUGHT]

    logged: list[Line] = []
    for k in [*first, *taught]:
        task = tasks[k][0].task
        pairs = zip(tasks[k], advantages[k], strict=True)
        logged_groups = [_group(group, values, decode) for group, values in pairs]

        # Trajectories of the task in no group, such as retries that were not kept.
        grouped = {id(t) for group in tasks[k] for t in group.trajectories}
        if rest := [t for t in played if t.task.address == task.address and id(t) not in grouped]:
            logged_groups.append(_group(Group(task, rest, Objective.NONE), [None] * len(rest), decode))
        logged.append(
            {
                "task": task.id,
                "group": task.group,
                "selected_as": "first" if k < FIRST else "taught",
                "groups": logged_groups,
            }
        )
    return logged


def _group(group: Group, advantages: Sequence[Advantage | None], decode: Decode) -> LoggedGroup:
    trains = group.objective is not Objective.NONE
    pairs = zip(group.trajectories, advantages, strict=True)
    return {
        "objective": group.objective,
        "trajectories": [_trajectory(t, advantage, trains, decode) for t, advantage in pairs],
    }


def _trajectory(t: Trajectory, advantage: Advantage | None, trains: bool, decode: Decode) -> LoggedTrajectory:
    """One trajectory of a group; ``trains``: False for a group that nothing is learnt from."""
    # The masks and advantages of a trajectory run over all its tokens: prompt and response of turn after
    # turn.
    mask = t.credit_mask() * trains
    turns: list[LoggedTurn] = []
    end = 0
    for turn in t.turns:
        start = end + len(turn.prompt_ids)
        end = start + len(turn.response_ids)

        # Runs of tokens that all train or all do not.
        response: list[list[str | int | bool]] = []
        masked = zip(turn.response_ids, mask[start:end], strict=True)
        for trained, pairs in groupby(masked, key=lambda pair: bool(pair[1])):
            tokens = [token for token, _ in pairs]
            response.append([decode(tokens), len(tokens), trained])
        logged: LoggedTurn = {
            "prompt": decode(list(turn.prompt_ids)),
            "prompt_tokens": len(turn.prompt_ids),
            "response": response,
            "finish_reason": turn.finish_reason,
            "action": turn.action,
            "error": turn.error,
        }
        if isinstance(advantage, np.ndarray):
            logged["advantage"] = float(advantage[start:end].mean()) if turn.response_ids else 0.0
        turns.append(logged)

    trainable = range(len(t.turns)) if t.trainable is None else t.trainable
    return {
        "kind": t.kind,
        "member": t.member,
        "attempt": t.attempt[0] if t.attempt else 0,
        "reward": t.reward,
        "success": t.success,
        "stop_reason": t.stop_reason,
        "advantage": None if advantage is None else mean_advantage(t, advantage),
        "restart_turn": t.restart_turn,
        "trainable": [trainable.start, trainable.stop],
        "feedback": t.feedback,
        "parsed": None if t.parsed is None else t.parsed.as_json(),
        "turns": turns,
    }
