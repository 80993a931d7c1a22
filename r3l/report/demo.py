"""The logged group that `r3l demo` shows (r3l/report/trajectory_view.py prints it), and its lines on
updates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from r3l.report.trajectory_view import LoggedTask, Member, logged_tasks


def shortest_example(run_dirs: Iterable[Path]) -> tuple[LoggedTask, Member] | None:
    """The shortest logged example of a retry that helped; None if no run has one.

    A failed attempt is solved by a retry from a later turn than the first, which then trains with a positive
    advantage. Of equally short ones it is the first.
    """
    found = [
        (task, member)
        for run_dir in run_dirs
        for task in logged_tasks(run_dir)
        for member in task.members
        if member.rescued and member.pivot and _learns(member)
    ]
    return min(found, key=lambda example: _turns(example[1]), default=None)


def _learns(member: Member) -> bool:
    distilled = member.first("distilled")
    return distilled is not None and (distilled["advantage"] or 0) > 0


def _turns(member: Member) -> int:
    """Number of turns that a reader of the example reads."""
    return sum(
        len(trajectory["turns"]) - trajectory["restart_turn"]
        for trajectory in member.trajectories
        if trajectory["kind"] in ("base", "guided_retry")
    )


def update_line(metrics: dict[str, float], steps: int) -> str:
    """One sentence on an update, from its ``metrics``; ``steps``: the number of updates in all."""
    retries, better = metrics.get("retry/count", 0), metrics.get("retry/improved", 0)
    seconds = metrics["seconds/collect"] + metrics["seconds/train"]
    return (
        f"update {metrics['step']:.0f}/{steps}: {metrics['train/success']:.0%} of the attempts solved; "
        f"{metrics.get('reflection/valid', 0):.0f} reflections, {retries:.0f} retries, {better:.0f} of them better; "
        f"learnt from {metrics['tokens/trained']:.0f} tokens in {seconds:.1f} s"
    )
