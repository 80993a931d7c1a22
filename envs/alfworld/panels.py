"""ALFWorld's panels: which tasks results are measured on, committed as counts, ids and hashes.

A panel of our houses is defined in ``configs/panels/alfworld_NAME.yaml`` and regenerated from its seeds; what is
committed beside this module (``panels/NAME.json``) is the proof that the same tasks came out. A panel of published
games (``valid_seen``, ``valid_unseen``, ``train``) is a count and a hash; the games are the user's own download.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs.alfworld.houses import generate, prove
from r3l.core.environment import Environment
from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task

OFFICIAL = ("train", "valid_seen", "valid_unseen")
COMMITTED = Path(__file__).resolve().parent / "panels"
DEFINITIONS = Path(__file__).resolve().parents[2] / "configs" / "panels"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Group(_Strict):
    """A stratum of houses that results are reported by."""

    families: tuple[str, ...] = Field(min_length=1)
    receptacles: int
    objects: int


class Split(_Strict):
    """Seeds ``first_seed`` onwards; ``counts`` tasks of each group, its families taking turns."""

    first_seed: int = Field(ge=0)
    counts: Mapping[str, int]


class Definition(_Strict):
    """configs/panels/alfworld_NAME.yaml."""

    name: str
    groups: Mapping[str, Group]
    splits: Mapping[str, Split]
    warmstart_first_seed: int
    sources: Mapping[str, str]

    def seeds(self, split: str) -> range:
        """The seeds of a split; its groups take turns in the order of the definition."""
        first = self.splits[split].first_seed
        return range(first, first + sum(self.splits[split].counts.values()))


def load(panel: str, split: str) -> list[Task]:
    """The tasks of a split of a panel of houses, sorted by id. About 1 ms a task; needs no engine.

    Raises DataError where they are not those that were committed, ConfigError for an unknown panel or split.
    """
    tasks = _regenerate(definition(panel), split)
    path = COMMITTED / f"{panel}.json"
    expected = committed_hash(f"{panel}/{split}")
    found = sha256_of(tasks)
    if found != expected:
        raise DataError(
            f"{path}: split {split} has sha256 {expected}, but the tasks regenerated from "
            f"{_definition_path(panel)} have {found}. If the change is meant, run: r3l panel build"
        )
    return tasks


def load_official(split: str, root: str | Path | None = None) -> list[Task]:
    """The published games of a split, sorted by id. Raises DataError when they are not there or others."""
    from envs.alfworld.games import ids_sha256, load_games

    path = COMMITTED / f"{_official(split)}.json"
    expected = _read(path)
    tasks = list(load_games(split, root, int(expected["count"])))
    found = ids_sha256(task.id for task in tasks)
    if found != expected["sha256"]:
        raise DataError(
            f"{path}: expected ids with sha256 {expected['sha256']}, found {found}: these are other games. "
            "Fetch the published ones with alfworld-download -f."
        )
    return tasks


def tasks(panel: str) -> list[Task]:
    """The tasks of ``NAME/SPLIT`` (houses) or of a published split."""
    name, slash, split = panel.partition("/")
    return load(name, split) if slash else load_official(name)


def committed_hash(panel: str) -> str:
    """The sha256 committed for ``NAME/SPLIT`` or for a published split; reads no task."""
    name, slash, split = panel.partition("/")
    if not slash:
        return str(_read(COMMITTED / f"{_official(name)}.json")["sha256"])
    if split not in definition(name).splits:
        raise ConfigError(f"ALFWorld panel {name} has no split {split!r}; it has {', '.join(definition(name).splits)}")
    return str(_read(COMMITTED / f"{name}.json")["splits"].get(split, {}).get("sha256", "nothing"))


def warmstart_task(index: int, panel: str = "nano") -> Task:
    """Task ``index`` (from 0, without end) of those that pretraining demonstrates; in no split of the panel."""
    defined = definition(panel)
    if index < 0:
        raise ConfigError(f"warm-start task {index}: indices start at 0")
    groups = list(defined.groups)
    return _task(
        defined,
        groups[index % len(groups)],
        index // len(groups),
        defined.warmstart_first_seed + index,
        "warmstart",
    )


def build(panel: str, engine: Environment | None = None) -> Path:
    """Play every task of a panel of houses to its win and write the file to commit; its path."""
    from envs.alfworld.engine import AlfworldEngine

    defined = definition(panel)
    player = engine or AlfworldEngine()
    splits: dict[str, Any] = {}
    for split in defined.splits:
        proved = [prove(task, player) for task in _regenerate(defined, split)]
        rejected: Counter[str] = Counter()
        for task in proved:
            rejected.update(task.payload["rejected"])
        splits[split] = {
            "count": len(proved),
            "sha256": sha256_of(proved),
            "rejected_draws": dict(sorted(rejected.items())),
            "ids": [task.id for task in proved],
        }
    return _write(COMMITTED / f"{panel}.json", {"panel": panel, "splits": splits})


def build_official(split: str, ids: Sequence[str]) -> Path:
    """Write the file of a published split from its game ids; its path."""
    from envs.alfworld.games import ids_sha256

    content = {"panel": _official(split), "count": len(ids), "sha256": ids_sha256(ids)}
    return _write(COMMITTED / f"{split}.json", content)


def sha256_of(tasks: Iterable[Task]) -> str:
    """A hash of ids, groups, sentences, problems and walkthroughs: of all that a task is made of."""
    digest = hashlib.sha256()
    for task in sorted(tasks, key=lambda task: task.id):
        content = {key: task.payload[key] for key in ("goal_text", "pddl_problem", "walkthrough")}
        digest.update(json.dumps([task.id, task.group, content], sort_keys=True).encode("utf-8") + b"\n")
    return digest.hexdigest()


@lru_cache(maxsize=8)
def definition(panel: str) -> Definition:
    """Read a panel's definition. Raises ConfigError where it is unknown, malformed, or its seeds overlap."""
    path = _definition_path(panel)
    if not path.is_file():
        known = sorted(p.stem.removeprefix("alfworld_") for p in DEFINITIONS.glob("alfworld_*.yaml"))
        raise ConfigError(
            f"ALFWorld panel {panel!r} is unknown; houses: {', '.join(f'{k}/SPLIT' for k in known)}; "
            f"published games: {', '.join(OFFICIAL)}"
        )
    try:
        defined = Definition.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from error
    _check(defined, path)
    return defined


def _check(defined: Definition, path: Path) -> None:
    for name, asked in defined.splits.items():
        unknown = sorted(set(asked.counts) - set(defined.groups))
        if unknown:
            raise ConfigError(f"{path}: splits.{name}.counts names unknown groups {', '.join(unknown)}")
    ranges = sorted(((defined.seeds(split), split) for split in defined.splits), key=lambda x: x[0].start)
    ends = [*((r.start, name) for r, name in ranges[1:]), (defined.warmstart_first_seed, "warmstart")]
    for (seeds, split), (following, other) in zip(ranges, ends, strict=True):
        if seeds.stop > following:
            raise ConfigError(f"{path}: the seeds of {split} ({seeds}) reach into those of {other} ({following}..)")


def _regenerate(defined: Definition, split: str) -> list[Task]:
    if split not in defined.splits:
        known = ", ".join(f"{defined.name}/{name}" for name in defined.splits)
        raise ConfigError(f"ALFWorld panel {defined.name} has no split {split!r}; it has {known}")
    seeds = iter(defined.seeds(split))
    found = [
        _task(defined, group, index, next(seeds), split)
        for group, count in defined.splits[split].counts.items()
        for index in range(count)
    ]
    return sorted(found, key=lambda task: task.id)


def _task(defined: Definition, name: str, index: int, seed: int, split: str) -> Task:
    group = defined.groups[name]
    family = group.families[index % len(group.families)]
    return generate(family, seed, group.receptacles, group.objects, split, name)


def _official(split: str) -> str:
    if split not in OFFICIAL:
        raise ConfigError(
            f"ALFWorld panel {split!r} is unknown; published games: {', '.join(OFFICIAL)}; houses: NAME/SPLIT"
        )
    return split


def _definition_path(panel: str) -> Path:
    return DEFINITIONS / f"alfworld_{panel}.yaml"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. Restore it (git checkout), or run: r3l panel build") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). Restore it (git checkout), or run: r3l panel build") from error
    return dict(content)


def _write(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
