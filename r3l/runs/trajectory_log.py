"""What training leaves for a reader: trajectories of three steps of a run, with text, credit and advantages.

``trajectories.jsonl.gz`` in the run's directory holds one line a task::

    step, method, task, group (easy, hard), selected_as (first | taught)
    groups: objective (policy | sft | none), and its trajectories:
        kind, member, attempt, reward, success, stop_reason, advantage, restart_turn, trainable, feedback, parsed
        turns: prompt, prompt_tokens, response, finish_reason, action, error, advantage

A turn's ``response`` is a list of [text, tokens, trained]: runs of sampled tokens that all carry gradient or all do
not; ``trainable`` is [first, end) of the turns with credit. An advantage is the mean over sampled tokens; turns have
their own where a method tells tokens apart. What was played but is not learnt from stands in a last group with the
objective ``none``. Nothing here draws, trains or counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.advantages import Advantage, Advantages, mean_advantage
from r3l.core.trajectory import Group, Objective, Trajectory
from r3l.core.validation import advantages_of

if TYPE_CHECKING:
    from r3l.core.method import Method

FILE = "trajectories.jsonl.gz"
FIRST, TAUGHT = 1, 2  # tasks of a step: the first ones, and further ones that training learns from; our choice
Decode = Callable[[list[int]], str]
Line = dict[str, Any]


def logged_steps(steps: int) -> set[int]:
    """Which of ``steps`` are logged: the first, the middle and the last."""
    return {1, (steps + 1) // 2, steps}


def lines(method: Method, tasks: Sequence[Sequence[Group]], played: Sequence[Trajectory], decode: Decode) -> list[Line]:
    """The lines of a step: its first task, and the next two that teach (an advantage that is not zero, or imitation).

    ``tasks``: the groups of each task of the batch; ``played``: everything that was sampled for them
    (``RolloutContext.trajectories``); ``decode``: token ids to text.
    """
    policy = [group for groups in tasks for group in groups if group.objective is Objective.POLICY]
    values = iter(advantages_of(method, policy))
    advantages = [[_advantages(group, values) for group in groups] for groups in tasks]
    further = [k for k in range(FIRST, len(tasks)) if _teaches(tasks[k], advantages[k])][:TAUGHT]
    logged = [*range(min(FIRST, len(tasks))), *further]
    return [_line(tasks[k], advantages[k], played, decode, "first" if k < FIRST else "taught") for k in logged]


def _advantages(group: Group, of_policy_groups: Iterator[Advantages]) -> list[Advantage | None]:
    """One a trajectory; None where the objective has none."""
    return list(next(of_policy_groups)) if group.objective is Objective.POLICY else [None] * len(group.trajectories)


def _teaches(groups: Sequence[Group], advantages: Sequence[Sequence[Advantage | None]]) -> bool:
    return any(
        group.objective is Objective.SFT or any(np.any(value) for value in values)
        for group, values in zip(groups, advantages, strict=True)
    )


def _line(
    groups: Sequence[Group],
    advantages: Sequence[Sequence[Advantage | None]],
    played: Sequence[Trajectory],
    decode: Decode,
    selected_as: str,
) -> Line:
    task = groups[0].task
    grouped = {id(t) for group in groups for t in group.trajectories}
    rest = [t for t in played if t.task.address == task.address and id(t) not in grouped]

    logged = [_group(group, values, decode) for group, values in zip(groups, advantages, strict=True)]
    if rest:
        logged.append(_group(Group(task, rest, Objective.NONE), [None] * len(rest), decode))
    return {"task": task.id, "group": task.group, "selected_as": selected_as, "groups": logged}


def _group(group: Group, advantages: Sequence[Advantage | None], decode: Decode) -> Line:
    trains = group.objective is not Objective.NONE
    pairs = zip(group.trajectories, advantages, strict=True)
    return {"objective": group.objective, "trajectories": [_trajectory(t, a, trains, decode) for t, a in pairs]}


def _trajectory(t: Trajectory, advantage: Advantage | None, trains: bool, decode: Decode) -> Line:
    mask = t.credit_mask() * trains
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
        "turns": _turns(t, mask, advantage, decode),
    }


def _turns(t: Trajectory, mask: np.ndarray, advantage: Advantage | None, decode: Decode) -> list[Line]:
    turns: list[Line] = []
    at = 0
    for turn in t.turns:
        at += len(turn.prompt_ids)
        end = at + len(turn.response_ids)
        turns.append(
            {
                "prompt": decode(list(turn.prompt_ids)),
                "prompt_tokens": len(turn.prompt_ids),
                "response": _runs(turn.response_ids, mask[at:end], decode),
                "finish_reason": turn.finish_reason,
                "action": turn.action,
                "error": turn.error,
            }
        )
        if isinstance(advantage, np.ndarray):
            turns[-1]["advantage"] = float(advantage[at:end].mean()) if turn.response_ids else 0.0
        at = end
    return turns


def _runs(ids: Sequence[int], mask: np.ndarray, decode: Decode) -> list[tuple[str, int, bool]]:
    """(text, tokens, trained) of each run of tokens with one mask."""
    runs = []
    for trained, pairs in groupby(zip(ids, mask, strict=True), key=lambda pair: bool(pair[1])):
        tokens = [token for token, _ in pairs]
        runs.append((decode(tokens), len(tokens), trained))
    return runs
