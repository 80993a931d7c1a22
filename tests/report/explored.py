"""A run directory's training trajectories, made by hand: one attempt, its reflection, its retry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from conftest import make_trajectory, make_turn
from scripted import report

from r3l.core.environment import StopReason
from r3l.core.trajectory import Group, TrajectoryKind
from r3l.feedback.feedback import ParsedReflection
from r3l.files.json_files import append_jsonl
from r3l.runs import trajectory_log

HOSTILE = "</script><script>document.body.dataset.broken = 1</script><img src=x onerror=alert(1)> & 'é'"


class Fixed:
    """A method whose advantages are -1 and 3."""

    def step_advantages(self, groups: list[Group]) -> list[np.ndarray]:
        return [np.asarray([-1.0, 3.0]) for _ in groups]


def attempt() -> tuple[list[Group], list]:
    """Three turns of two tokens; retried from turn 1, in three turns, with success. Credit from the pivot on.

    Base and distilled: turn 0 is masked (2 tokens each), turns 1 and 2 train (4 tokens each).
    """
    base = make_trajectory(3, first=1)
    retried = [
        base.turns[0],
        *(replace(make_turn(k), response_ids=(7, 8), prompt_ids=(200 + k,)) for k in (1, 2)),
    ]
    guided = replace(
        base,
        kind=TrajectoryKind.GUIDED_RETRY,
        turns=retried,
        reward=1.0,
        success=True,
        stop_reason=StopReason.SUCCESS,
        restart_turn=1,
    )
    distilled = replace(
        guided,
        kind=TrajectoryKind.DISTILLED,
        turns=[retried[0], *(replace(t, prompt_ids=(3,)) for t in retried[1:])],
    )
    reflection = replace(
        base,
        kind=TrajectoryKind.REFLECTION,
        turns=[*base.turns, make_turn(9)],
        restart_turn=3,
        trainable=range(3, 4),
        parsed=ParsedReflection.of(report(1, improvement_suggestion=HOSTILE)),
    )
    return [Group(base.task, [base, distilled])], [base, reflection, guided, distilled]


def write(run_dir: Path, steps: int = 1, hint: str = HOSTILE) -> None:
    """Leave trajectories in ``run_dir``: one task a step. Tokens 200 and on are the hint, others are
    numbers."""

    def decode(ids: list[int]) -> str:
        return hint if ids[0] >= 200 else " ".join(map(str, ids))

    groups, explored = attempt()
    for step in range(1, steps + 1):
        for line in trajectory_log.lines(Fixed(), [groups], explored, decode):  # type: ignore[arg-type]
            append_jsonl(run_dir / trajectory_log.FILE, {"step": step, "method": "r3l", **line})
