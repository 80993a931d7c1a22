"""Groups as Trinity's experiences and back, and rows as the experiences that train.

Between a runner and the pipeline an experience is a trajectory: it holds tokens and log-probabilities as sampled, and
everything else of the trajectory in ``info`` (plain JSON, so that Trinity's viewers and files can hold it). The first
experience of a task also lists the members of its groups and the counters. Between the pipeline and the trainer an
experience is a row (see r3l.core.batching).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from trinity.common.experience import EID, CustomField, Experience

from r3l.core.batching import TrajectoryRow
from r3l.core.environment import StopReason
from r3l.core.policy import FinishReason
from r3l.core.task import Task
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind, Turn
from r3l.feedback.feedback import feedback_of

INFO = "r3l"  # the key of ``info`` under which everything of ours stands
PLAIN = ("member", "reward", "success", "feedback", "restart_turn", "rescore")
SPOKEN = ("observation", "response", "action")
SCALARS = {"token_weight": torch.float32, "sft": torch.bool, "off_policy": torch.bool}  # one each a row
FIELDS = [CustomField(name, name, dtype) for name, dtype in SCALARS.items()]


@dataclass(frozen=True)
class CollectedTask:
    """The result of exploring one task. ``position``: its place in the step."""

    task: Task
    position: int
    groups: list[Group]
    trajectories: list[Trajectory]  # all that were played or written (RolloutContext.trajectories)
    counters: Mapping[str, float] = field(default_factory=dict)


def pack(collected: CollectedTask) -> list[Experience]:
    """One experience a trajectory; a task without trajectories has one without tokens."""
    members = {id(t): t for t in [*collected.trajectories, *(t for g in collected.groups for t in g.trajectories)]}
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
    """The results of a step, in the order of the tasks."""
    ordered = sorted(experiences, key=lambda e: (e.info[INFO]["position"], e.info[INFO]["index"]))
    return [_unpacked(list(of_task)) for _, of_task in groupby(ordered, key=lambda e: e.info[INFO]["position"])]


def _unpacked(experiences: Sequence[Experience]) -> CollectedTask:
    head = dict(experiences[0].info[INFO]["task"])
    played, counters, groups = head.pop("played"), head.pop("counters"), head.pop("groups")
    task = Task(**head)
    members = [_trajectory(experience, task) for experience in experiences]
    return CollectedTask(
        task,
        experiences[0].info[INFO]["position"],
        [_group(task, members, **group) for group in groups],
        members[:played],
        counters,
    )


def _group(task: Task, all_members: Sequence[Trajectory], members: Sequence[int], objective: str, **rest: Any) -> Group:
    return Group(task, [all_members[k] for k in members], Objective(objective), **rest)


def _experience(t: Trajectory, position: int, index: int) -> Experience:
    start = len(t.turns[0].prompt_ids) if t.turns else 0
    info = {
        "position": position,
        "index": index,
        "attempt": list(t.attempt),
        "trainable": None if t.trainable is None else [t.trainable.start, t.trainable.stop],
        "parsed": None if t.parsed is None else dict(t.parsed.as_json()),
        **{name: getattr(t, name) for name in PLAIN},
        "kind": t.kind.value,
        "stop_reason": t.stop_reason and t.stop_reason.value,
        "turns": [_spoken(turn) for turn in t.turns],
    }
    return Experience(
        eid=EID(run=t.member, step=index, suffix=t.kind),
        tokens=torch.from_numpy(t.token_ids().astype(np.int32)),
        prompt_length=start,
        logprobs=torch.from_numpy(t.old_logprobs()[start:]),
        action_mask=torch.from_numpy(t.response_mask()[start:] > 0),
        reward=float(t.reward),
        info={INFO: info},
        metrics={"reward": float(t.reward), "success": float(t.success)} if t.kind is TrajectoryKind.BASE else {},
    )


def _spoken(turn: Turn) -> dict[str, Any]:
    lengths = {"prompt": len(turn.prompt_ids), "sampled": len(turn.response_ids)}
    reasons = {"finish_reason": turn.finish_reason.value, "error": turn.error and turn.error.value}
    return lengths | reasons | {name: getattr(turn, name) for name in SPOKEN}


def _trajectory(experience: Experience, task: Task) -> Trajectory:
    info, start = experience.info[INFO], experience.prompt_length
    tokens = experience.tokens.tolist()
    logprobs = [0.0] * start + experience.logprobs.tolist()
    turns, at = [], 0
    for spoken in info["turns"]:
        middle = at + spoken["prompt"]
        end = middle + spoken["sampled"]
        turns.append(
            Turn(
                prompt_ids=tuple(tokens[at:middle]),
                response_ids=tuple(tokens[middle:end]),
                logprobs=tuple(logprobs[middle:end]),
                finish_reason=FinishReason(spoken["finish_reason"]),
                error=StopReason(spoken["error"]) if spoken["error"] else None,
                **{name: spoken[name] for name in SPOKEN},
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
        parsed=feedback_of(info["parsed"]) if info["parsed"] else None,
        **{name: info[name] for name in PLAIN},
    )


def training_batch(rows: Sequence[TrajectoryRow], count: int, model_version: int = 0) -> list[Experience]:
    """Exactly ``count`` experiences: the rows (at most as many), then empty ones, which weigh nothing."""
    empty = [_empty(model_version) for _ in range(count - len(rows))]
    return [_of_row(row, number, model_version) for number, row in enumerate(rows)] + empty


def _of_row(row: TrajectoryRow, number: int, model_version: int) -> Experience:
    t = row.trajectory
    start = max(len(t.turns[0].prompt_ids) if t.turns else 0, 1)  # nothing stands before the first token
    mask = torch.from_numpy(row.mask[start:] > 0)
    advantages = torch.from_numpy(np.broadcast_to(row.advantage, row.ids.shape)[start:].astype(np.float32))
    scalars = {"token_weight": float(row.weight.max(initial=0.0)), "sft": row.sft, "off_policy": t.off_policy}
    return Experience(
        eid=EID(task=t.task.id, run=t.member, step=number, suffix=t.kind),
        tokens=torch.from_numpy(row.ids.astype(np.int32)),
        prompt_length=start,
        logprobs=torch.from_numpy(row.old_logprobs[start:]),
        action_mask=mask,
        advantages=advantages,
        returns=advantages.clone(),
        reward=float(t.reward),
        info={"model_version": model_version, **scalars},
        custom_fields=FIELDS,
    )


def _empty(model_version: int) -> Experience:
    nothing = torch.zeros(1)
    return Experience(
        tokens=torch.zeros(2, dtype=torch.int32),
        prompt_length=1,
        logprobs=nothing,
        action_mask=nothing > 0,
        advantages=nothing.clone(),
        returns=nothing.clone(),
        reward=0.0,
        info={"model_version": model_version, "token_weight": 0.0, "sft": False, "off_policy": False},
        custom_fields=FIELDS,
    )
