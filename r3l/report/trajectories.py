"""Training trajectories for the viewer of the HTML report: read, laid out by attempt, packed small."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
from pydantic import ValidationError

from r3l.config.files import explain
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.unpacking import LINES, most, unpacked
from r3l.runs.manifest import Manifest
from r3l.runs.run_dir import MANIFEST
from r3l.runs.trajectory_log import FILE, LoggedTrajectory, TrajectoryLine

log = logging.getLogger(__name__)
Line = dict[str, Any]


class ExplainedTrajectory(LoggedTrajectory):
    """A logged trajectory, with its group's ``objective``: policy (policy gradient), sft or none.

    ``derivation``: how its advantage was computed, in words (:func:`read`). r3l/runs/trajectory_log.py
    explains the other keys.
    """

    objective: str
    derivation: NotRequired[str]


# Columns, from left to right.
KINDS = ("base", "reflection", "critique", "guided_retry", "distilled", "refined")


def read(run_dir: Path) -> list[Line]:
    """Read the logged trajectories of a run, one line a task; [] if it kept none.

    In groups that R3L trains by policy gradient, each trajectory gets a ``derivation``: how its advantage
    follows from rewards and the run's settings, if this version knows these settings. Raises DataError for
    damaged files.
    """
    lines: list[Line] = [{**line} for line in read_jsonl(run_dir / FILE, TrajectoryLine)]
    manifest = run_dir / MANIFEST
    run: Mapping[str, Any] = read_json(manifest, Manifest)["run"] if lines and manifest.is_file() else {}
    if run.get("method_code") == "r3l.algorithm:R3L":
        from r3l.algorithm import R3L  # with torch

        try:
            method = R3L(run["method_settings"])
        except ValidationError as error:
            log.warning(
                "%s: no derivation of advantages (%s)", manifest, explain(R3L.Settings, error.errors()[0])
            )
            return lines
        for group in (group for line in lines for group in line["groups"]):
            if group["objective"] != "policy":
                continue
            rewards = np.array([trajectory["reward"] for trajectory in group["trajectories"]], dtype=float)
            explained = method.explained_advantages(rewards)
            for trajectory, (advantage, how) in zip(group["trajectories"], explained, strict=True):
                # Else the logged advantage was made from other returns.
                if math.isclose(advantage, trajectory["advantage"], abs_tol=1e-6):
                    trajectory["derivation"] = how
    return lines


def pack(run_dir: Path, limit: int) -> str | None:
    """The trajectories of a run for the viewer: compressed JSON in base64; None if the run logged none.

    Its keys: ``tasks`` (each with step, task, group, selected_as, and ``members`` by :func:`by_member`),
    ``left_out`` (number of tasks that did not fit) and ``file``. It holds at least one task, and as many as
    fit into ``limit`` characters: first one task of every step, from the last step back, then a second task
    of every step, and so on. Within a step, tasks that taught something come first. Raises DataError for
    damaged files.
    """
    lines = read(run_dir)
    if not lines:
        return None
    # One line of each step after the other, from the last step on.
    steps: dict[int, list[int]] = {}
    for index, line in enumerate(lines):
        steps.setdefault(line["step"], []).append(index)
    for of_step in steps.values():
        of_step.sort(key=lambda index: lines[index]["selected_as"] == "first")
    rounds = zip_longest(*[steps[step] for step in sorted(steps, reverse=True)])
    ordered = [index for one in rounds for index in one if index is not None]

    # A search tries several numbers of tasks: each task is written as JSON once.
    @cache
    def task(index: int) -> str:
        line = lines[index]
        keys = ("step", "task", "group", "selected_as")
        return as_json({key: line[key] for key in keys} | {"members": by_member(line)})

    @cache
    def first(count: int) -> str:
        tasks = ",".join(map(task, sorted(ordered[:count])))
        rest = as_json({"file": FILE, "left_out": len(lines) - count})
        return compressed(f'{rest[:-1]},"tasks":[{tasks}]}}')

    count = bisect_right(range(2, len(lines) + 1), limit, key=lambda count: len(first(count))) + 1
    return first(count)


def packed(content: Any) -> str:
    """JSON, compressed by gzip and in base64, for a page's script; equal content gives equal text."""
    return compressed(as_json(content))


def as_json(content: Any) -> str:
    """JSON without blanks, keys sorted."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def compressed(text: str) -> str:
    """``text`` compressed by gzip, in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpack(text: str) -> Line:
    """The content that :func:`packed` packed into ``text``.

    Raises DataError if that is larger than any page's content.
    """
    content = base64.b64decode(text)
    line: Line = json.loads(
        unpacked(content, zlib.decompressobj(wbits=31), most(len(content), LINES), "a packed page")
    )
    return line


def by_member(line: Line) -> list[list[ExplainedTrajectory]]:
    """The trajectories of a task, one list per member: a base rollout with all that was sampled after it.

    A list begins with the base rollout; then come reflections and retries, retry by retry, in the order of
    KINDS.
    """
    columns: list[ExplainedTrajectory] = [
        trajectory | {"objective": group["objective"]}
        for group in line["groups"]
        for trajectory in group["trajectories"]
    ]
    columns.sort(key=lambda c: (c["member"], c["kind"] != "base", c["attempt"], KINDS.index(c["kind"])))
    members = sorted({column["member"] for column in columns})
    return [[column for column in columns if column["member"] == member] for member in members]
