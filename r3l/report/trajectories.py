"""Training trajectories for the viewer of the HTML report: read, laid out by attempt, kept small."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from r3l.tracking import read_jsonl
from r3l.trajectories import FILE

Line = dict[str, Any]
KINDS = ("base", "reflection", "critique", "guided_retry", "distilled", "refined")  # columns, from left to right


def pack(run_dir: Path, limit: int) -> Line | None:
    """What the viewer shows of a run, at most ``limit`` characters of JSON (but always one task); None without a file.

    ``tasks``: step, task, group, why, and ``members``: the trajectories of each member of the group, in the order of
    KINDS and retries. Texts repeat (the attempts of a group share prompts), so turns name them by their place in
    ``texts``. ``left_out``: how many tasks did not fit; further tasks of a step go before its first one.
    """
    lines = read_jsonl(run_dir / FILE)
    if not lines:
        return None
    texts: dict[str, int] = {}
    tasks: list[tuple[int, Line]] = []
    size = 0
    for index in _by_turns(lines):
        before = len(texts)
        task = _task(lines[index], texts)
        new = list(texts)[before:]
        cost = len(json.dumps(task)) + len(json.dumps(new))
        if tasks and size + cost > limit:
            for text in new:
                del texts[text]
            continue
        tasks.append((index, task))
        size += cost
    shown = [task for _, task in sorted(tasks, key=lambda pair: pair[0])]
    return {"tasks": shown, "texts": list(texts), "left_out": len(lines) - len(shown), "file": FILE}


def _by_turns(lines: Sequence[Line]) -> list[int]:
    """Line numbers, a step at a time from the last one: what fits is spread over the steps."""
    steps: dict[int, list[int]] = {}
    for index, line in enumerate(lines):
        steps.setdefault(line["step"], []).append(index)
    for of_step in steps.values():
        of_step.sort(key=lambda index: lines[index]["why"] == "first")  # what teaches before what does not
    rounds = zip_longest(*[steps[step] for step in sorted(steps, reverse=True)])
    return [index for one in rounds for index in one if index is not None]


def _task(line: Line, texts: dict[str, int]) -> Line:
    columns = [
        {**trajectory, "objective": group["objective"], "turns": [_turn(turn, texts) for turn in trajectory["turns"]]}
        for group in line["groups"]
        for trajectory in group["trajectories"]
    ]
    columns.sort(key=lambda c: (c["member"], c["kind"] != "base", c["attempt"], KINDS.index(c["kind"])))
    members = sorted({column["member"] for column in columns})
    grouped = [[column for column in columns if column["member"] == member] for member in members]
    return {key: line[key] for key in ("step", "task", "group", "why")} | {"members": grouped}


def _turn(turn: Line, texts: dict[str, int]) -> list[Any]:
    """[prompt, [[text, tokens, trained], ...], error]; texts by number."""

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    response = [[number(text), tokens, int(trained)] for text, tokens, trained in turn["response"]]
    return [number(turn["prompt"]), response, turn["error"]]
