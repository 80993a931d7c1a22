"""Validates a task set and writes the file to commit: its answers verify, its critics do not tell them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from r3l.envs.base.task_sets import commit, summary
from r3l.envs.puzzles.base import CORRECT
from r3l.envs.puzzles.constant_answers import scores_of
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.puzzles.task_sets import ENV, definition, regenerate

from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.processes.progress import tracked

_LISTED = 1000  # ids of larger splits are not written out: they are numbered without choice


def build(name: str) -> Path:
    """Validate every task of a task set and write the file that is committed; its path."""
    content: dict[str, Any] = {"task_set": name, "splits": {}}
    for split in definition(name).splits:
        tasks = regenerate(name, split)
        for task in tracked(tasks, f"validating {name}/{split}"):
            validate(task)
        content["splits"][split] = summary(tasks) | {"constant_answer": asdict(scores_of(tasks).best)}
        if len(tasks) <= _LISTED:
            content["splits"][split]["ids"] = [task.id for task in tasks]
    return commit(ENV, name, content)


def validate(task: Task) -> None:
    """Raise DataError unless answer and worked solution verify, a careless attempt does not, and the critic is silent
    about the answer.
    """
    kind, data, answer = puzzle(task.payload["puzzle"]), task.payload["data"], task.payload["answer"]
    wrong = kind.attempt(data, generator("proof", task.id), skill=0)
    critique = kind.critique(data, wrong.answer)
    facts = {
        "its answer does not verify": not kind.verify(data, answer) or kind.critique(data, answer) != CORRECT,
        "its worked solution does not verify": not kind.verify(data, kind.work(data).answer),
        "a careless attempt verifies": kind.verify(data, wrong.answer) or critique == CORRECT,
        "the critic tells the answer": answer in critique,
    }
    failed = [fact for fact, holds in facts.items() if holds]
    if failed:
        raise DataError(f"task {task.id}: {'; '.join(failed)}")
