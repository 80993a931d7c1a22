"""The held-out learning curve: the test task set, played at set updates while a run trains.

``curve.jsonl`` in the run's directory has one line for each update that ``evaluation.curve`` names. Tasks,
seeds and temperature are the final evaluation's, so that points of one run differ by its weights
alone. Sampling is seeded by address, so training continues as it would without these episodes.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from typing_extensions import TypedDict

from r3l.config import Run, trains
from r3l.core.errors import ConfigError
from r3l.evaluation.episodes import GroupScore, play_all, scores
from r3l.evaluation.protocols import select_tasks
from r3l.files.json_files import Number, append_jsonl, read_jsonl
from r3l.runs.manifest import with_all
from r3l.runs.run_dir import CURVE
from r3l.runs.run_paths import PLAYED
from r3l.runs.session import PlaySession


class CurvePoint(TypedDict):
    """One line of curve.jsonl: scores on the test task set after update ``step``.

    ``groups``: scores by task group, and of ``all``. ``stops``: number of episodes by how they ended.
    ``solved``: ``TASK/MEMBER`` of each successful episode.
    """

    step: int
    task_set: str
    temperature: Number
    groups: Annotated[dict[str, GroupScore], AfterValidator(with_all)]
    stops: dict[str, int]
    solved: list[str]


def check_curve(run: Run) -> None:
    """Raise ConfigError if test tasks cannot be played after the updates that ``evaluation.curve`` names.

    That is the case if the method trains nothing, with another engine than local, for an update beyond
    ``train.steps``, and for one after which the sampling weights are not synchronised (no multiple of
    ``train.sync_interval``). A run without a curve passes.
    """
    if not run.evaluation.curve:
        return
    if not trains(run):
        raise ConfigError(
            f"evaluation.curve={list(run.evaluation.curve)} names updates, and {run.cell} trains nothing: "
            "leave it out"
        )
    if run.engine != "local":
        raise ConfigError(
            f"evaluation.curve={list(run.evaluation.curve)} needs the local engine, and {run.cell} has "
            f"{run.engine}: leave it out; Trinity-RFT evaluates on the way by itself"
        )
    beyond = [update for update in run.evaluation.curve if update > run.train.steps]
    stale = [update for update in run.evaluation.curve if update % run.train.sync_interval]
    if beyond or stale:
        why = f"train.steps is {run.train.steps}"
        if not beyond:
            why = f"train.sync_interval is {run.train.sync_interval}"
        update = (beyond or stale)[0]
        raise ConfigError(f"evaluation.curve names update {update}, but {why}: choose other updates")


def record_point(session: PlaySession, run_dir: Path, update: int) -> None:
    """Play the evaluation's test tasks with the weights after ``update``; append a CurvePoint to curve.jsonl.

    Nothing is done at updates that ``evaluation.curve`` does not name, or whose line exists already. A call
    that is stopped leaves the episodes it has played; the next one plays only the rest. Once the line is
    written, its episodes and transcripts are deleted. Raises DataError if curve.jsonl is damaged.
    """
    run = session.run
    path = run_dir / CURVE
    if update not in run.evaluation.curve:
        return
    if any(line["step"] == update for line in read_jsonl(path, CurvePoint)):
        return
    tasks = select_tasks(run, session.package.tasks(run.env_settings.test_task_set))

    # Episodes played before a stop stay in this folder, so that a resumed run plays only the rest.
    folder = run_dir / "curve"
    folder.mkdir(exist_ok=True)
    played = play_all(session, tasks, folder / PLAYED, {"run": run.fingerprint(), "update": str(update)})
    point: CurvePoint = {
        "step": update,
        "task_set": run.env_settings.test_task_set,
        "temperature": run.evaluation.temperature,
        "groups": scores(played.episodes),
        "stops": dict(sorted(Counter(episode["stop_reason"] for episode in played.episodes).items())),
        "solved": [f"{e['task']}/{e['member']}" for e in played.episodes if e["success"]],
    }
    append_jsonl(path, point)
    shutil.rmtree(folder)
