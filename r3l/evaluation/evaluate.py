"""Evaluation: every task of the test task set, no reflection, no guidance, the last checkpoint.

Batches that were played before a stop are not played again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from r3l.config import Run, validate
from r3l.core.files import append_jsonl, read_json, read_jsonl, rewrite_jsonl, write_json_atomic, write_text_atomic
from r3l.core.progress import progress
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory
from r3l.local.session import Session, open_session
from r3l.runs.manifest import describe_task_set
from r3l.runs.metrics import GENERATED_TOKENS
from r3l.runs.run_dir import locked

PLAYED = "episodes.played.jsonl"  # in a run directory while its evaluation is under way


def run_of(run_dir: Path) -> Run:
    """The run that a directory holds, as its manifest has it."""
    manifest = run_dir / "manifest.json"
    return validate(Run, read_json(manifest)["run"], str(manifest))


def evaluate_run(run_dir: Path, task_set: str | None = None) -> dict[str, Any]:
    """Evaluate a finished run; writes episodes.jsonl, then evaluation.json. Returns the latter."""
    with locked(run_dir):
        result = read_json(run_dir / "result.json")
        run = run_of(run_dir)
        name = task_set or run.env_settings.test_task_set
        described = describe_task_set(run.env, name)
        evaluated = {
            "checkpoint": result["checkpoint_sha256"],
            "task_set": described["sha256"],
            "run": run.fingerprint(),
        }
        with open_session(run, str(run_dir / result["checkpoint"])) as session:
            played = play_all(session, session.package.tasks(name), run_dir / PLAYED, evaluated)
        episodes = [episode for batch in played for episode in batch["episodes"]]
        evaluation = {
            **{k: result[k] for k in ("schema", "cell", "tier", "label", "env", "method", "method_label")},
            **{k: result[k] for k in ("model", "seed", "fingerprint")},
            "task_set": described,
            "temperature": run.evaluation.temperature,
            "episodes": len(episodes),
            "checkpoint": {"step": result["steps"], "sha256": result["checkpoint_sha256"]},
            "groups": scores(episodes),
            "stops": dict(sorted(Counter(e["stop_reason"] for e in episodes).items())),
            "tokens": {"generated": sum(batch["generated"] for batch in played)},
        }
        lines = "".join(json.dumps(e, sort_keys=True) + "\n" for e in episodes)
        write_text_atomic(run_dir / "episodes.jsonl", lines)
        write_json_atomic(run_dir / "evaluation.json", evaluation)
        (run_dir / PLAYED).unlink()
        return evaluation


def play_all(
    session: Session, tasks: Sequence[Task], path: Path, evaluated: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """``episodes_per_task`` base rollouts of every task: the lines of ``path``, one a batch.

    Lines of the same ``evaluated`` are kept and not played again: a batch does not depend on those before it.
    """
    run = session.run
    wanted = [(task, k) for task in tasks for k in range(run.evaluation.episodes_per_task)]
    batches = [wanted[i : i + run.evaluation.batch] for i in range(0, len(wanted), run.evaluation.batch)]
    lines: list[Mapping[str, Any]] = [line for line in read_jsonl(path) if line["evaluated"] == evaluated]
    rewrite_jsonl(path, lines)
    solved = sum(row["success"] for line in lines for row in line["episodes"])
    with progress("evaluating", len(wanted), done=sum(map(len, batches[: len(lines)]))) as advance:
        for batch in batches[len(lines) :]:
            ctx = session.rollout_context((run.seed, "evaluation"), run.evaluation.temperature)
            trajectories = session.concurrently(partial(_one, ctx), batch)
            rows = [episode_row(trajectory) for trajectory in trajectories]
            generated = ctx.counters[GENERATED_TOKENS]
            lines.append({"evaluated": dict(evaluated), "episodes": rows, "generated": generated})
            append_jsonl(path, lines[-1])
            solved += sum(row["success"] for row in rows)
            advance(f"{solved} solved", count=len(batch))
    return lines


async def _one(ctx: RolloutContext, task_and_member: tuple[Task, int]) -> Trajectory:
    task, member = task_and_member
    episode: Episode = await play(ctx, task, member)
    await episode.close()
    return episode.trajectory


def episode_row(trajectory: Trajectory) -> dict[str, Any]:
    """One line of episodes.jsonl; the transcript is hashed over its token ids."""
    ids = trajectory.token_ids()
    return {
        "task": trajectory.task.id,
        "group": trajectory.task.group,
        "member": trajectory.member,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "turns": len(trajectory.turns),
        "stop_reason": trajectory.stop_reason,
        "tokens": len(ids),
        "transcript_sha256": hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()[:16],
    }


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
