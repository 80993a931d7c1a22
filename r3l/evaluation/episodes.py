"""Playing the episodes of an evaluation: in batches, of which each leaves a line when it is done."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from r3l.core.environment import StopReason
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory
from r3l.files.json_files import append_jsonl, read_jsonl, rewrite_jsonl
from r3l.processes.gather import together
from r3l.processes.progress import progress
from r3l.runs.metrics import GENERATED_TOKENS
from r3l.runs.run_paths import TRANSCRIPTS
from r3l.runs.session import PlaySession

Line = dict[str, Any]
Member = tuple[Task, int]
PROMPT_TOKENS = "prompt/rollout"
IMPOSSIBLE = "impossible"
UNUSABLE = {StopReason.FORMAT, StopReason.TRUNCATED}


@dataclass(frozen=True)
class Played:
    """All episodes in the order of their tasks; tokens ``generated``; what else the policy counted. ``impossible``:
    turns whose action the environment did not carry out."""

    episodes: list[Line]
    generated: float
    counts: Counter[str]
    impossible: int


def play_all(session: PlaySession, tasks: Sequence[Task], path: Path, evaluated: Mapping[str, str]) -> Played:
    """``episodes_per_task`` base rollouts of every task; ``path`` gets a line a batch, and ``transcripts.jsonl.gz``
    beside it a line an episode.

    Lines of the same ``evaluated`` are kept and not played again: a batch does not depend on the others.
    """
    wanted = [(task, k) for task in tasks for k in range(session.run.evaluation.episodes_per_task)]
    batches = [wanted[i : i + session.batch] for i in range(0, len(wanted), session.batch)]
    lines = [line for line in read_jsonl(path) if line["evaluated"] == evaluated]
    rewrite_jsonl(path, lines)
    done = {(row["task"], row["member"]) for line in lines for row in line["episodes"]}
    left = [batch for batch in batches if _key(batch[0]) not in done]
    transcripts = path.with_name(TRANSCRIPTS)
    rewrite_jsonl(transcripts, [row for row in read_jsonl(transcripts) if (row["task"], row["member"]) in done])
    solved = _solved(lines)
    run = session.run
    with progress(f"{run.env} {run.method} seed {run.seed}, test episodes", len(wanted), done=len(done)) as advance:

        def record(trajectories: Sequence[Trajectory], ctx: RolloutContext) -> None:
            nonlocal solved
            lines.append({"evaluated": dict(evaluated)} | _line(session, trajectories, ctx))
            for trajectory in trajectories:
                append_jsonl(transcripts, transcript(trajectory))
            append_jsonl(path, lines[-1])
            solved += _solved(lines[-1:])
            advance(f"{solved} solved", count=len(trajectories))

        session.wait(_play_batches(session, left, record))
    order = {_key(member): place for place, member in enumerate(wanted)}
    episodes = [row for line in lines for row in line["episodes"]]
    counts: Counter[str] = sum((Counter(line.get("counts", {})) for line in lines), Counter())
    episodes.sort(key=lambda row: order[row["task"], row["member"]])
    impossible = sum(line.get("impossible", 0) for line in lines)
    return Played(episodes, sum(line["generated"] for line in lines), counts, impossible)


Record = Callable[[Sequence[Trajectory], RolloutContext], None]


async def _play_batches(session: PlaySession, batches: Sequence[Sequence[Member]], record: Record) -> None:
    free = asyncio.Semaphore(session.batches_at_once)

    async def one(batch: Sequence[Member]) -> None:
        async with free:
            ctx = session.rollout_context((session.run.seed, "evaluation"), session.run.evaluation.temperature)
            record(await session.gather(partial(_episode, ctx, session.package.refused), batch), ctx)

    await together(one, batches)


async def _episode(ctx: RolloutContext, refused: Callable[[str, str], bool], task_and_member: Member) -> Trajectory:
    task, member = task_and_member
    episode: Episode = await play(ctx, task, member)
    await episode.close()
    turns = episode.trajectory.turns
    answers = [turn.observation for turn in turns[1:]] + [episode.last.text if episode.last else ""]
    done = [(turn, answer) for turn, answer in zip(turns, answers, strict=False) if turn.action is not None]
    ctx.counters[IMPOSSIBLE] += sum(turn.refused or refused(str(turn.action), answer) for turn, answer in done)
    return episode.trajectory


def _key(member: Member) -> tuple[str, int]:
    return member[0].id, member[1]


def _solved(lines: Sequence[Line]) -> int:
    return sum(row["success"] for line in lines for row in line["episodes"])


def _line(session: PlaySession, trajectories: Sequence[Trajectory], ctx: RolloutContext) -> Line:
    """``counts``, where there are any: of all that has been asked since the last line."""
    line: Line = {
        "episodes": [episode_row(trajectory) for trajectory in trajectories],
        "generated": ctx.counters[GENERATED_TOKENS],
        "impossible": int(ctx.counters[IMPOSSIBLE]),
    }
    counts = session.take_counts()
    return line | ({"counts": counts | {"prompt": ctx.counters[PROMPT_TOKENS]}} if counts else {})


def episode_row(trajectory: Trajectory) -> Line:
    """One line of episodes.jsonl. The transcript is hashed over its token ids, or where a server keeps them to itself
    over the texts; the responses over their texts, so that episodes of any two agents can be compared."""
    ids = trajectory.token_ids()
    usages = [turn.usage.prompt + turn.usage.response for turn in trajectory.turns if turn.usage]
    responses = [turn.response for turn in trajectory.turns]
    texts = [text for turn in trajectory.turns for text in (turn.observation, turn.response)]
    return {
        "task": trajectory.task.id,
        "group": trajectory.task.group,
        "member": trajectory.member,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "turns": len(trajectory.turns),
        "stop_reason": trajectory.stop_reason,
        "tokens": max([len(ids), *usages]),
        "transcript_sha256": _digest(ids.astype("<i8").tobytes() if len(ids) else json.dumps(texts).encode()),
        "responses_sha256": _digest(json.dumps(responses).encode()),
    }


def transcript(trajectory: Trajectory) -> Line:
    """One line of transcripts.jsonl.gz: what the agent saw, answered and did, turn by turn."""
    turns = [{"observation": t.observation, "response": t.response, "action": t.action} for t in trajectory.turns]
    told = {"task": trajectory.task.id, "member": trajectory.member, "reward": trajectory.reward}
    return told | {"success": trajectory.success, "stop_reason": trajectory.stop_reason, "turns": turns}


def unusable(transcripts: Path) -> dict[str, list[str]]:
    """Of each reason that makes a response invalid the first task that ended by it, and the response; {} where no
    transcripts were kept."""
    ended = [row for row in read_jsonl(transcripts) if row["stop_reason"] in UNUSABLE and row["turns"]]
    return {row["stop_reason"]: [row["task"], row["turns"][-1]["response"]] for row in reversed(ended)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def scores(episodes: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Success and reward by task group and over ``all``."""
    names = sorted({e["group"] for e in episodes if e["group"]})
    by_group = {name: [e for e in episodes if e["group"] == name] for name in names} | {"all": list(episodes)}
    return {
        name: {
            "episodes": len(rows),
            "success": sum(e["success"] for e in rows) / len(rows),
            "reward": sum(e["reward"] for e in rows) / len(rows),
        }
        for name, rows in by_group.items()
    }
