"""Evaluation: every task of the test panel, no reflection, no guidance, the last checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from r3l.config import Run, validate
from r3l.core.rollout import Arena, Episode, play
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory
from r3l.local.session import Session, open_session
from r3l.panel import describe
from r3l.tracking import locked, read_json, write_json_atomic, write_text_atomic


def evaluate_run(run_dir: Path, panel: str | None = None) -> dict[str, Any]:
    """Evaluate a finished run; writes episodes.jsonl, then evaluation.json. Returns the latter."""
    with locked(run_dir):
        result = read_json(run_dir / "result.json")
        run = validate(Run, read_json(run_dir / "manifest.json")["run"], str(run_dir / "manifest.json"))
        name = panel or run.env_settings.test_panel
        with open_session(run, str(run_dir / result["checkpoint"])) as session:
            tasks = session.package.tasks(name)
            trajectories, counters = play_all(session, tasks)
        episodes = [episode_row(t) for t in trajectories]
        evaluation = {
            **{k: result[k] for k in ("schema", "cell", "tier", "label", "env", "method", "method_label")},
            **{k: result[k] for k in ("model", "seed", "fingerprint")},
            "panel": describe(run.env, name),
            "temperature": run.evaluation.temperature,
            "episodes": len(episodes),
            "checkpoint": {"step": result["steps"], "sha256": result["checkpoint_sha256"]},
            "groups": scores(episodes),
            "stops": dict(sorted(Counter(e["stop_reason"] for e in episodes).items())),
            "tokens": {"generated": counters["tokens/generated"]},
        }
        lines = "".join(json.dumps(e, sort_keys=True) + "\n" for e in episodes)
        write_text_atomic(run_dir / "episodes.jsonl", lines)
        write_json_atomic(run_dir / "evaluation.json", evaluation)
        return evaluation


def play_all(session: Session, tasks: Sequence[Task]) -> tuple[list[Trajectory], Mapping[str, float]]:
    """``episodes_per_task`` base rollouts of every task, a batch at a time."""
    run = session.run
    arena = session.arena((run.seed, "evaluation"), run.evaluation.temperature)
    wanted = [(task, k) for task in tasks for k in range(run.evaluation.episodes_per_task)]
    batches = [wanted[i : i + run.evaluation.batch] for i in range(0, len(wanted), run.evaluation.batch)]
    console = Console(stderr=True)
    done: list[Trajectory] = []
    for batch in track(batches, "evaluating", console=console, disable=not console.is_terminal):
        done += session.wait(arena.gather(*[_one(arena, task, k) for task, k in batch]))
        if not console.is_terminal:
            console.print(f"{len(done)} of {len(wanted)} episodes, {sum(t.success for t in done)} solved")
    return done, arena.counters


async def _one(arena: Arena, task: Task, member: int) -> Trajectory:
    episode: Episode = await play(arena, task, member)
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
    chosen = {name: [e for e in episodes if e["group"] == name] for name in names} | {"all": list(episodes)}
    return {
        name: {
            "episodes": len(rows),
            "success": sum(e["success"] for e in rows) / len(rows),
            "reward": sum(e["reward"] for e in rows) / len(rows),
        }
        for name, rows in chosen.items()
    }
