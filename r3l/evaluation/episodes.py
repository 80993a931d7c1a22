"""Episodes of an evaluation, played in batches.

A batch leaves a line when it is done, so a stop loses little.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, cast

from pydantic import AfterValidator
from typing_extensions import TypedDict

from r3l.core.environment import StopReason
from r3l.core.rollout import play
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory
from r3l.files.json_files import Number, append_jsonl, read_jsonl, rewrite_jsonl
from r3l.processes.barrier import together
from r3l.processes.progress import progress
from r3l.runs.manifest import TaskSetSummary, with_all
from r3l.runs.metrics import GENERATED_TOKENS
from r3l.runs.result import RunIdentity
from r3l.runs.run_paths import TRANSCRIPTS
from r3l.runs.session import PlaySession

Line = dict[str, Any]
Member = tuple[Task, int]  # a task, and which of its episodes
PROMPT_TOKENS = "prompt/rollout"
IMPOSSIBLE = "impossible"
SHOWN_ENDINGS = {StopReason.FORMAT, StopReason.TRUNCATED, StopReason.ENV_FAILED}


class EpisodeRow(TypedDict):
    """One line of episodes.jsonl. ``member``: number of the episode within its task, from 0.

    ``group``: the task's, such as easy. ``stop_reason``: a value of r3l.core.environment.StopReason.
    ``tokens``: length of the dialog, prompts included. ``transcript_sha256``: over token ids, or over texts
    if a server keeps its ids; ``responses_sha256``: over the texts of responses; both 16 hex digits.
    """

    task: str
    group: str
    member: int
    reward: Number
    success: bool
    turns: int
    stop_reason: str
    tokens: int
    transcript_sha256: NotRequired[str]
    responses_sha256: NotRequired[str]


class EpisodeBatch(TypedDict):
    """One batch of an evaluation that is not finished, as a line of its file.

    ``evaluated``: digests of model, task set and settings; the line counts only while they are the same.
    ``generated``: tokens sampled. ``impossible``: turns whose action the environment did not carry out.
    ``counts``: ``prompt`` (tokens of prompts); of a model at a server also requests, retries and the like
    since the line before.
    """

    evaluated: dict[str, str | None]
    episodes: list[EpisodeRow]
    generated: Number
    impossible: NotRequired[int]
    counts: NotRequired[dict[str, Number]]


class GroupScore(TypedDict):
    """Scores of a group of tasks: number of episodes, share of successes (0 to 1), mean reward."""

    episodes: int
    success: Number
    reward: Number


class EvaluatedCheckpoint(TypedDict):
    """The checkpoint that an evaluation played: its training step and the digest of its weights.

    ``sha256`` is None for a model at a server.
    """

    step: int
    sha256: str | None


class Evaluation(RunIdentity):
    """The content of evaluation.json, which r3l.evaluation.evaluate writes.

    ``groups``: scores by task group, and of ``all``. ``stops``: episodes by how they ended. ``agent`` and
    ``requests``: only of a served model. ``protocol`` and ``turns``: only under a named protocol.
    """

    task_set: TaskSetSummary
    temperature: Number
    episodes: int
    checkpoint: EvaluatedCheckpoint
    groups: Annotated[dict[str, GroupScore], AfterValidator(with_all)]
    stops: dict[str, int]
    tokens: dict[str, Number]
    agent: NotRequired[dict[str, Any]]
    requests: NotRequired[dict[str, Number]]
    protocol: NotRequired[dict[str, Any]]
    turns: NotRequired[dict[str, int]]


@dataclass(frozen=True)
class PlayedEpisodes:
    """All episodes of an evaluation, in the order of their tasks.

    ``generated``: tokens sampled. ``counts``: ``prompt`` (tokens of prompts); of a model at a server also
    requests, retries and the like. ``impossible``: turns whose action the environment did not carry out.
    """

    episodes: list[EpisodeRow]
    generated: float
    counts: Counter[str]
    impossible: int


def play_all(
    session: PlaySession, tasks: Sequence[Task], path: Path, evaluated: Mapping[str, str | None]
) -> PlayedEpisodes:
    """Play ``episodes_per_task`` rollouts of every task, without reflection or guidance.

    ``path`` gets an EpisodeBatch for each batch, and ``transcripts.jsonl.gz`` in the same folder a line for
    each episode. Batches that ``path`` already has are not played again, but returned, if they have the same
    ``evaluated`` (weights, task set, configuration); others are removed. That is sound since every draw is
    seeded by its address: an episode does not depend on its batch. Shows progress. The transcripts of removed
    batches are removed too.
    """
    run = session.run
    wanted: list[Member] = [(task, k) for task in tasks for k in range(run.evaluation.episodes_per_task)]
    batches = [wanted[i : i + session.batch] for i in range(0, len(wanted), session.batch)]

    # Keep the finished batches of an earlier call, and only their transcripts: a stop can fall between the
    # two.
    lines = [line for line in read_jsonl(path, EpisodeBatch) if line["evaluated"] == evaluated]
    rewrite_jsonl(path, lines)
    done = {(row["task"], row["member"]) for line in lines for row in line["episodes"]}
    transcripts = path.with_name(TRANSCRIPTS)
    kept = [row for row in read_jsonl(transcripts) if (row["task"], row["member"]) in done]
    rewrite_jsonl(transcripts, kept)
    left = [batch for batch in batches if (batch[0][0].id, batch[0][1]) not in done]
    solved = sum(row["success"] for line in lines for row in line["episodes"])

    async def play_batches() -> None:
        free = asyncio.Semaphore(session.batches_at_once)

        def ended(success: bool) -> None:
            nonlocal solved
            solved += success
            advance(f"{solved} solved")

        async def one(batch: Sequence[Member]) -> None:
            async with free:
                line, trajectories = await _play_batch(session, batch, evaluated, ended)
                lines.append(line)
                # Transcripts first: a batch counts as done once its line is written.
                for trajectory in trajectories:
                    append_jsonl(transcripts, transcript(trajectory))
                append_jsonl(path, lines[-1])

        await together(one, left)

    label = f"{run.env} {run.method} seed {run.seed}, test episodes"
    with progress(label, len(wanted), done=len(done)) as advance:
        session.wait(play_batches())

    # Batches end in any order; the result has the order of the tasks.
    order = {(task.id, k): place for place, (task, k) in enumerate(wanted)}
    episodes = [row for line in lines for row in line["episodes"]]
    episodes.sort(key=lambda row: order[row["task"], row["member"]])
    counts: Counter[str] = sum((Counter(line.get("counts", {})) for line in lines), Counter())
    impossible = sum(line.get("impossible", 0) for line in lines)
    return PlayedEpisodes(episodes, sum(line["generated"] for line in lines), counts, impossible)


async def _play_batch(
    session: PlaySession,
    batch: Sequence[Member],
    evaluated: Mapping[str, str | None],
    ended: Callable[[bool], None],
) -> tuple[EpisodeBatch, Sequence[Trajectory]]:
    """Play the episodes of a batch at the same time; return its line and their trajectories.

    ``ended`` is called after each episode, with its success: a batch of long responses can take an hour.
    Requests in its ``counts`` may be of other batches that are played at the same time.
    """
    run = session.run
    refused = session.package.refused
    ctx = session.rollout_context((run.seed, "evaluation"), run.evaluation.temperature)

    async def episode_of(member: Member) -> Trajectory:
        task, k = member
        episode = await play(ctx, task, k)
        await episode.close()
        ended(episode.trajectory.success)
        # A turn's action is answered by the next observation, the last one's by the final state.
        turns = episode.trajectory.turns
        answers = [turn.observation for turn in turns[1:]] + [episode.last.text if episode.last else ""]
        for turn, answer in zip(turns, answers, strict=False):
            if turn.action is not None:
                ctx.counters[IMPOSSIBLE] += turn.refused or refused(str(turn.action), answer)
        return episode.trajectory

    trajectories = await session.gather(episode_of, batch)
    line: EpisodeBatch = {
        "evaluated": dict(evaluated),
        "episodes": [episode_row(trajectory) for trajectory in trajectories],
        "generated": ctx.counters[GENERATED_TOKENS],
        "impossible": int(ctx.counters[IMPOSSIBLE]),
        "counts": session.take_counts() | {"prompt": ctx.counters[PROMPT_TOKENS]},
    }
    return line, trajectories


def episode_row(trajectory: Trajectory) -> EpisodeRow:
    """The line of episodes.jsonl of an episode that has ended.

    The transcript's hash is over its token ids, or over its texts if a server does not return token ids. The
    hash of the responses is over their texts, so that episodes of any two models can be compared.
    """
    ids = trajectory.token_ids()
    usages = [turn.usage.prompt + turn.usage.response for turn in trajectory.turns if turn.usage]
    responses = [turn.response for turn in trajectory.turns]
    texts = [text for turn in trajectory.turns for text in (turn.observation, turn.response)]

    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()[:16]

    return {
        "task": trajectory.task.id,
        "group": trajectory.task.group,
        "member": trajectory.member,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "turns": len(trajectory.turns),
        "stop_reason": cast(str, trajectory.stop_reason),  # an episode that has ended has one
        "tokens": max([len(ids), *usages]),
        "transcript_sha256": digest(ids.astype("<i8").tobytes() if len(ids) else json.dumps(texts).encode()),
        "responses_sha256": digest(json.dumps(responses).encode()),
    }


def transcript(trajectory: Trajectory) -> Line:
    """The line of transcripts.jsonl.gz of an episode: its scores, and observation, response, action by turn.

    ``failed``, only if the environment broke down: its error.
    """
    line: Line = {
        "task": trajectory.task.id,
        "member": trajectory.member,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "stop_reason": trajectory.stop_reason,
    }
    if trajectory.failed:
        line["failed"] = trajectory.failed
    line["turns"] = [
        {"observation": turn.observation, "response": turn.response, "action": turn.action}
        for turn in trajectory.turns
    ]
    return line


def unusable(transcripts: Path) -> dict[str, list[str]]:
    """One example, [task id, last response], for each reason that ended episodes and makes a score doubtful.

    The reasons (keys) are an invalid response, a response that was cut off, and an error of the environment,
    for which the error replaces the response. ``transcripts``: the file; {} if it does not exist.
    """
    ended = [row for row in read_jsonl(transcripts) if row["stop_reason"] in SHOWN_ENDINGS and row["turns"]]
    return {
        row["stop_reason"]: [row["task"], row.get("failed") or row["turns"][-1]["response"]]
        for row in reversed(ended)
    }


def scores(episodes: Sequence[EpisodeRow]) -> dict[str, GroupScore]:
    """Mean success and reward, and the number of episodes, by task group, and over ``all`` (the last key).

    Episodes without a group count only in ``all``. Raises ValueError without episodes.
    """
    if not episodes:
        raise ValueError("there are no episodes to score")
    names = sorted({episode["group"] for episode in episodes if episode["group"]})
    by_group = {name: [episode for episode in episodes if episode["group"] == name] for name in names}
    by_group["all"] = list(episodes)
    found: dict[str, GroupScore] = {}
    for name, rows in by_group.items():
        found[name] = {
            "episodes": len(rows),
            "success": sum(row["success"] for row in rows) / len(rows),
            "reward": sum(row["reward"] for row in rows) / len(rows),
        }
    return found
