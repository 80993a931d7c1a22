"""Conversion of trajectories and rows to Trinity's experiences, and back.

Between a runner and the pipeline an experience is a trajectory: its tensors are tokens and log-probs of
sampling, and ``info`` holds the rest of the trajectory (plain JSON, which Trinity's viewers and files can
store). The first experience of a task also lists the task's groups and counters. Between the pipeline and
the trainer an experience is a training row (r3l.core.batching).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

import numpy as np
import torch
from trinity.common.experience import EID, CustomField, Experience

from r3l.core.batching import TrajectoryRow
from r3l.core.environment import StopReason
from r3l.core.policy import FinishReason
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind, Turn
from r3l.feedback.feedback import feedback_from_json

INFO = "r3l"  # key of our part of ``info``
TRAJECTORY_FIELDS = ("member", "reward", "success", "feedback", "restart_turn", "rescore", "failed")
TURN_FIELDS = ("observation", "response", "action")
# One value per row.
SCALARS = {
    "token_weight": torch.float32,
    "sft": torch.bool,
    "off_policy": torch.bool,
    "taught": torch.bool,
}
FIELDS = [CustomField(name, name, dtype) for name, dtype in SCALARS.items()]


@dataclass(frozen=True)
class CollectedTask:
    """Everything that a runner of Trinity collected for one task of a step.

    ``position``: index of the task in the step. ``groups``: trajectories that train together.
    ``trajectories``: all that were played, episodes and feedback dialogs. ``counters``: the runner's metrics,
    to be summed over the step.
    """

    task: Task
    position: int
    groups: list[Group]
    trajectories: list[Trajectory]
    counters: Mapping[str, float] = field(default_factory=dict)


def pack(collected: CollectedTask) -> list[Experience]:
    """Experiences of Trinity from which :func:`unpack` restores ``collected``: one per trajectory.

    Each trajectory is in it once, even if several groups have it. The first experience also carries the task,
    the groups (by indices of their trajectories) and the counters. Raises IndexError without any trajectory.
    """
    # A trajectory may be in several groups, and a group may have trajectories that were not collected:
    # number each object once, the collected ones first.
    in_groups = [t for group in collected.groups for t in group.trajectories]
    members = {id(t): t for t in [*collected.trajectories, *in_groups]}
    index = {key: number for number, key in enumerate(members)}
    packed = [_experience(t, collected.position, number) for number, t in enumerate(members.values())]
    packed[0].info[INFO]["task"] = {
        **asdict(collected.task),
        "played": len(collected.trajectories),
        "counters": dict(collected.counters),
        "groups": [
            {
                "members": [index[id(t)] for t in group.trajectories],
                "objective": group.objective,
                "returns": None if group.returns is None else [float(x) for x in group.returns],
                "baseline": group.baseline,
                "weight": group.weight,
                "progress": group.progress,
            }
            for group in collected.groups
        ],
    }
    return packed


def unpack(experiences: Iterable[Experience]) -> list[CollectedTask]:
    """Restore the tasks of one step from ``experiences``, which :func:`pack` made; they may be in any order.

    The tasks are sorted by ``position``, their index in the step.
    """
    ordered = sorted(experiences, key=lambda e: (e.info[INFO]["position"], e.info[INFO]["index"]))
    collected = []
    for position, of_task in groupby(ordered, key=lambda e: e.info[INFO]["position"]):
        # The first experience describes the task; all are its trajectories, in the order of pack.
        ordered_task = list(of_task)
        head = dict(ordered_task[0].info[INFO]["task"])
        played = head.pop("played")
        counters = head.pop("counters")
        packed_groups = head.pop("groups")
        task = Task(**head)
        members = [_trajectory(experience, task) for experience in ordered_task]
        groups = []
        for packed in packed_groups:
            rest = dict(packed)
            trajectories = [members[k] for k in rest.pop("members")]
            groups.append(Group(task, trajectories, Objective(rest.pop("objective")), **rest))
        collected.append(CollectedTask(task, position, groups, members[:played], counters))
    return collected


def _experience(t: Trajectory, position: int, index: int) -> Experience:
    """An experience that holds ``t``.

    ``position``: position of its task in the step. ``index``: its own among the trajectories of the task.
    """
    # Everything but tokens, log-probs and masks, which are tensors.
    start = len(t.turns[0].prompt_ids) if t.turns else 0
    info = {
        "position": position,
        "index": index,
        "attempt": list(t.attempt),
        "trainable": None if t.trainable is None else [t.trainable.start, t.trainable.stop],
        "parsed": None if t.parsed is None else dict(t.parsed.as_json()),
        **{name: getattr(t, name) for name in TRAJECTORY_FIELDS},
        "kind": t.kind.value,
        "stop_reason": t.stop_reason and t.stop_reason.value,
        "turns": [
            {
                "prompt": len(turn.prompt_ids),
                "sampled": len(turn.response_ids),
                "finish_reason": turn.finish_reason.value,
                "error": turn.error and turn.error.value,
                "teacher_logprobs": turn.teacher_logprobs and list(turn.teacher_logprobs),
                **{name: getattr(turn, name) for name in TURN_FIELDS},
            }
            for turn in t.turns
        ],
    }
    # Trinity averages these metrics in its evaluations, which count plain episodes only.
    metrics = {}
    if t.kind is TrajectoryKind.BASE:
        metrics = {"reward": float(t.reward), "success": float(t.success)}
    return Experience(
        eid=EID(run=t.member, step=index, suffix=t.kind),
        tokens=torch.from_numpy(t.token_ids().astype(np.int32)),
        prompt_length=start,
        logprobs=torch.from_numpy(t.old_logprobs()[start:]),
        action_mask=torch.from_numpy(t.response_mask()[start:] > 0),
        reward=float(t.reward),
        info={INFO: info},
        metrics=metrics,
    )


def _trajectory(experience: Experience, task: Task) -> Trajectory:
    """The trajectory that :func:`_experience` put into ``experience``."""
    info = experience.info[INFO]
    # Cut the flat tokens into turns: each has its prompt, then its response.
    tokens = experience.tokens.tolist()
    logprobs = [0.0] * experience.prompt_length + experience.logprobs.tolist()
    turns = []
    at = 0
    for packed in info["turns"]:
        middle = at + packed["prompt"]
        end = middle + packed["sampled"]
        turns.append(
            Turn(
                prompt_ids=tuple(tokens[at:middle]),
                response_ids=tuple(tokens[middle:end]),
                logprobs=tuple(logprobs[middle:end]),
                finish_reason=FinishReason(packed["finish_reason"]),
                error=StopReason(packed["error"]) if packed["error"] else None,
                teacher_logprobs=packed["teacher_logprobs"] and tuple(packed["teacher_logprobs"]),
                **{name: packed[name] for name in TURN_FIELDS},
            )
        )
        at = end
    return Trajectory(
        task=task,
        kind=TrajectoryKind(info["kind"]),
        turns=turns,
        stop_reason=StopReason(info["stop_reason"]) if info["stop_reason"] else None,
        attempt=tuple(info["attempt"]),
        trainable=range(*info["trainable"]) if info["trainable"] else None,
        parsed=feedback_from_json(info["parsed"]) if info["parsed"] else None,
        **{name: info[name] for name in TRAJECTORY_FIELDS},
    )


def training_batch(rows: Sequence[TrajectoryRow], count: int, model_version: int = 0) -> list[Experience]:
    """Exactly ``count`` experiences for Trinity's trainer: of ``rows``, then empty ones of weight 0.

    ``rows``: at most ``count``. ``model_version``: number that Trinity stores with each.
    """
    empty = [_empty(model_version) for _ in range(count - len(rows))]
    return [_row_experience(row, number, model_version) for number, row in enumerate(rows)] + empty


def _row_experience(row: TrajectoryRow, number: int, model_version: int) -> Experience:
    """The experience of a training row, from which the trainer makes its batch; ``number``: its index."""
    t = row.trajectory
    # The first token has no log-prob, so it belongs to the prompt in any case.
    start = max(len(t.turns[0].prompt_ids) if t.turns else 0, 1)
    mask = torch.from_numpy(row.mask[start:] > 0)
    advantages = torch.from_numpy(np.broadcast_to(row.advantage, row.ids.shape)[start:].astype(np.float32))
    # All tokens of a row that train have the same weight, so one number is enough.
    scalars = {
        "token_weight": float(row.weight.max(initial=0.0)),
        "sft": row.sft,
        "off_policy": t.off_policy,
        "taught": row.taught,
    }
    return Experience(
        eid=EID(task=t.task.id, run=t.member, step=number, suffix=t.kind),
        tokens=torch.from_numpy(row.ids.astype(np.int32)),
        prompt_length=start,
        logprobs=torch.from_numpy(row.old_logprobs[start:]),
        action_mask=mask,
        advantages=advantages,
        returns=advantages.clone(),
        teacher_logprobs=torch.from_numpy(row.teacher_logprobs[start:]),
        reward=float(t.reward),
        info={"model_version": model_version, **scalars},
        custom_fields=FIELDS,
    )


def _empty(model_version: int) -> Experience:
    """An experience without a trained token, which pads a step."""
    # One prompt token and one response token, which the mask leaves out.
    nothing = torch.zeros(1)
    scalars = {"token_weight": 0.0, "sft": False, "off_policy": False, "taught": False}
    return Experience(
        tokens=torch.zeros(2, dtype=torch.int32),
        prompt_length=1,
        logprobs=nothing,
        action_mask=nothing > 0,
        advantages=nothing.clone(),
        returns=nothing.clone(),
        teacher_logprobs=nothing.clone(),
        reward=0.0,
        info={"model_version": model_version, **scalars},
        custom_fields=FIELDS,
    )
