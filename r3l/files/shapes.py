"""What the files of a run hold: a type for each kind of file, checked whenever one is read.

Whoever reads a file may rely on these keys and types; further keys are allowed. A value is given back as it was read.
"""
# ruff: noqa: D101 - the keys say what a type is; a docstring stands where they do not

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.core.text import shown

Number = Annotated[float, Field(allow_inf_nan=False)]  # or an int
Text = str | None


def _with_all(groups: dict[str, Any]) -> dict[str, Any]:
    if "all" not in groups:
        raise ValueError("the group 'all' is missing")
    return groups


class ConstantAnswer(TypedDict):
    answer: str
    success: Annotated[dict[str, Number], AfterValidator(_with_all)]  # by group


class TaskSet(TypedDict):
    name: str
    sha256: str
    tasks: int
    warning: NotRequired[str]
    constant_answer_baseline: NotRequired[ConstantAnswer]


class TaskSetOfManifest(TypedDict):
    train: NotRequired[TaskSet]  # where nothing trains, its tasks are not loaded
    test: TaskSet


class TrainSettings(TypedDict):
    lr: NotRequired[Number]


class RunSettings(TypedDict):
    """Of the ``run`` of a manifest what reports read; whoever plays or verifies it checks all of it (Run)."""

    profile: str
    method_settings: dict[str, Any]
    env_settings: dict[str, Any]
    train: NotRequired[TrainSettings]


class Recorded(TypedDict):
    """What says whose directory it is, in a manifest of any version."""

    schema: NotRequired[int]
    fingerprint: str


class Manifest(Recorded):
    run: RunSettings
    inputs: dict[str, Any]
    task_set: TaskSetOfManifest
    versions: dict[str, Any]
    hardware: dict[str, Any]
    commit: Text
    preregistration_sha256: NotRequired[Text]
    start_model_warning: NotRequired[str]
    agent: NotRequired[dict[str, Any]]


class Named(TypedDict):
    """What result and evaluation say of their run."""

    schema: int
    cell: str
    tier: str
    label: str
    env: str
    method: str
    method_label: str
    model: str
    seed: int
    fingerprint: str


class Result(Named):
    profile: str
    steps: int
    checkpoint: Text
    checkpoint_sha256: Text
    budget: dict[str, Number]
    final: dict[str, Number]


class Score(TypedDict):
    episodes: int
    success: Number
    reward: Number


class Checkpoint(TypedDict):
    step: int
    sha256: Text


class Evaluation(Named):
    task_set: TaskSet
    temperature: Number
    episodes: int
    checkpoint: Checkpoint
    groups: Annotated[dict[str, Score], AfterValidator(_with_all)]
    stops: dict[str, int]
    tokens: dict[str, Number]
    agent: NotRequired[dict[str, Any]]
    requests: NotRequired[dict[str, Number]]


class Failed(TypedDict):
    error: str


class Episode(TypedDict):
    task: str
    group: str
    member: int
    reward: Number
    success: bool
    turns: int
    stop_reason: str
    tokens: int


class Played(TypedDict):
    """A batch of an evaluation that is under way."""

    evaluated: dict[str, Text]
    episodes: list[Episode]
    generated: Number
    counts: NotRequired[dict[str, Number]]


class LoggedTurn(TypedDict):
    prompt: str
    prompt_tokens: int
    response: list[Annotated[list[str | int | bool], Field(min_length=3, max_length=3)]]
    finish_reason: str
    action: NotRequired[Text]
    error: NotRequired[Text]
    advantage: NotRequired[Number]


class LoggedTrajectory(TypedDict):
    kind: str
    member: int
    attempt: int
    reward: Number
    success: bool
    stop_reason: NotRequired[Text]
    advantage: Number | None
    restart_turn: int
    trainable: Annotated[list[int], Field(min_length=2, max_length=2)]
    feedback: str
    parsed: dict[str, Any] | None
    turns: list[LoggedTurn]


class LoggedGroup(TypedDict):
    objective: str
    trajectories: list[LoggedTrajectory]


class Trajectories(TypedDict):
    step: int
    method: str
    task: str
    group: str
    selected_as: str
    groups: list[LoggedGroup]


class Release(TypedDict):
    """The archive of stored runs that was made with a wheel."""

    address: Text
    sha256: Text


class TriedRun(TypedDict):
    seed: int
    success: Number
    commit: Text
    rollouts: Number
    generated: Number
    trained: Number
    seconds: Number


class TriedRate(TypedDict):
    lr: Number
    success: Number
    runs: list[TriedRun]


class Tuning(TypedDict):
    """results/tuning/TIER/ENV/METHOD.json."""

    tier: str
    env: str
    method: str
    chosen: Number
    rule: str
    standard_error: Number
    task_set: TaskSet
    rates: Annotated[list[TriedRate], Field(min_length=3, max_length=3)]


class ProbedModel(TypedDict):
    name: str
    weights_sha256: Text
    parameters: int | None


class Judged(TypedDict):
    target: Text
    met: bool | None


class Measure(TypedDict):
    value: Number | None
    low: Number | None
    high: Number | None
    n: int
    tasks: int | None
    target: NotRequired[Text]
    met: NotRequired[bool | None]


class Probe(TypedDict):
    """What r3l probe writes."""

    env: str
    label: str
    tier: str
    model: ProbedModel
    temperature: Number
    task_set: TaskSet
    attempts: int
    tasks: int
    measures: dict[str, Measure]
    gate: NotRequired[dict[str, Judged]]
    reflection_schema: NotRequired[str]


class SplitSize(TypedDict):
    tasks: int


class CheckedTaskSets(TypedDict):
    """results/task_sets/TIER/ENV.json."""

    task_sets: dict[str, SplitSize]


class Taught(TypedDict):
    env: str


class SFT(TypedDict):
    """sft.json of a base checkpoint."""

    config: Taught
    weights_sha256: str


class Phased(TypedDict):
    phases: list[dict[str, Any]]


class SFTUnderWay(SFT):
    """The same, which may be resumed."""

    config: Phased  # type: ignore[misc]
    loss: list[Any]
    examples: list[Any]


class Packaged(TypedDict):
    """source.json of a model that came in a package."""

    file_sha256: str
    weights_sha256: str


class Digest(TypedDict):
    """What is kept of large files, so that they are not read again."""

    files: list[list[str | int]]
    sha256: str


class TrainerState(TypedDict):
    """state.json of a checkpoint."""

    step: int
    fingerprint: str
    totals: dict[str, Number]


def _with_step(row: Any) -> Any:
    if isinstance(row, dict) and not isinstance(row.get("step"), int):
        raise ValueError("the step is missing, or no whole number")
    return row


WHOLE: Mapping[str, Any] = {
    "manifest.json": Manifest,
    "result.json": Result,
    "evaluation.json": Evaluation,
    "failed.json": Failed,
    "sft.json": SFT,
    "source.json": Packaged,
}
LINES: Mapping[str, Any] = {  # however they are kept: .jsonl, .jsonl.gz, .json.xz
    "metrics": Annotated[dict[str, Number], BeforeValidator(_with_step)],
    "episodes": Episode,
    "episodes.played": Played,
    "trajectories": Trajectories,
}
ANY_LINE = dict[str, Any]


def check_whole(path: Path, content: Any, shape: Any = None) -> None:
    """Raise DataError unless ``content`` of the file ``path`` has ``shape``; by default that which its name has."""
    shape = WHOLE.get(path.name) if shape is None else shape
    if shape is not None:
        _check(shape, content, str(path))


def check_lines(path: Path, rows: list[Any]) -> None:
    """The same of lines, one by one."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json.xz")
    shape = LINES.get(name, ANY_LINE)
    for number, row in enumerate(rows, 1):
        _check(shape, row, f"{path}, line {number}")


def _check(shape: Any, content: Any, where: str) -> None:
    try:
        _adapter(shape).validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        what = f"key {key!r} is missing" if first["type"] == "missing" else f"{_named(key)} is {shown(first['input'])}"
        why = "" if first["type"] == "missing" else f" ({first['msg'].removeprefix('Value error, ').lower()})"
        raise DataError(
            f"{where}: {what}{why}; the file is damaged. Restore it from a copy (git checkout of a stored run), or "
            "delete it and run again the command that wrote it"
        ) from error


def _named(key: str) -> str:
    return f"key {key!r}" if key else "its content"


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
