"""Published ALFWorld games as tasks, read from a user's own download.

Layout of ``alfworld-download``: ``ROOT/json_2.1.1/SPLIT/TASK/TRIAL/game.tw-pddl``, where ROOT is
``$ALFWORLD_DATA`` or, as in the alfworld package, ``~/.cache/alfworld``. A game's id is
``SPLIT/TASK/TRIAL``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path

from r3l.envs.alfworld.engine.translate import packaged_text

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.files.digests import digest_of_all

# Counts of the published releases 2.1.1 to 2.1.3 (the README of alfworld and the folders themselves).
EXPECTED_GAMES: Mapping[str, int] = {
    "train": 3553,
    "valid_train": 200,
    "valid_seen": 140,
    "valid_unseen": 134,
}
LISTED: Mapping[str, str] = {"agentbench": "valid_unseen"}  # subset of a split, by committed ids -> the split
_GAMES_FOLDER = "json_2.1.1"
_GAME_FILE = "game.tw-pddl"
_UNKNOWN = "UNKNOWN GOAL"
PACKAGED = {  # sha256 of the domain and grammar in alfworld 0.4.2 (pyproject.toml)
    "alfred.pddl": "f1473041ed01da514de1f87adfd7ef0804862361f83ccf63c75e43633b0eb280",
    "alfred.twl2": "c5b22f0f73309a7fd7c8e5b71de42ad4803b60766ab4a51cc2feb34162be036b",
}
_SENTENCE = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)\."')
_COMMAND = re.compile(r'template :: "(.+?)";')
_DOWNLOAD = "Run alfworld-download (it comes with the alfworld package), or point ALFWORLD_DATA at the games."


def data_root(root: str | Path | None = None) -> Path:
    """Folder of the games: ``root``, else ``$ALFWORLD_DATA``, else ``~/.cache/alfworld`` (not checked)."""
    return Path(root or os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()


def list_games(split: str, root: str | Path | None = None, expected: int | None = None) -> list[str]:
    """The sorted game ids of a split. ``root``: folder of the games, see :func:`data_root`.

    ``expected``: required number of games (default: the published one; 0: any number, at least 1). Raises
    DataError for an unknown split or another number, naming folder, both numbers and download command.
    """
    if split not in EXPECTED_GAMES:
        raise DataError(f"ALFWorld has no split {split!r}; it has {', '.join(EXPECTED_GAMES)}")
    folder = data_root(root) / _GAMES_FOLDER / split
    trials = [path.parent for path in folder.glob(f"*/*/{_GAME_FILE}")]
    ids = sorted(f"{split}/{trial.parent.name}/{trial.name}" for trial in trials)
    wanted = EXPECTED_GAMES[split] if expected is None else expected
    if not ids or (wanted and len(ids) != wanted):
        raise DataError(
            f"{folder} holds {len(ids)} ALFWorld games, expected {wanted or 'at least 1'}. {_DOWNLOAD}",
        )
    return ids


def ids_sha256(ids: Iterable[str]) -> str:
    """sha256 of the sorted ids, joined by line breaks (the rule of ``r3l.envs.base.task_sets``)."""
    return hashlib.sha256("\n".join(sorted(ids)).encode("utf-8")).hexdigest()


def load_game(game_id: str, root: str | Path | None = None) -> Task:
    """Read one downloaded game as a task. Raises DataError naming the file if it is missing or damaged."""
    path = data_root(root) / _GAMES_FOLDER / game_id / _GAME_FILE
    try:
        game = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist. {_DOWNLOAD}") from error
    except ValueError as error:  # JSON and UTF-8 errors
        raise _damaged(path, str(error)) from error
    if not isinstance(game, dict):
        raise _damaged(path, "not a JSON object")
    required = ("pddl_domain", "grammar", "pddl_problem")
    missing = [key for key in required if not isinstance(game.get(key), str)]
    if missing:
        raise _damaged(path, "no " + ", ".join(missing))

    # Older releases have other commands (put ... in/on ...), which prompts and the expert do not know.
    grammar = game["grammar"]
    other = sorted(_commands(grammar) ^ _commands(packaged_text("alfred.twl2")))
    if other:
        raise DataError(
            f"{path} is of another release: its grammar and the alfworld package's differ in "
            f"{', '.join(other)}, and prompts name the package's commands. Fetch the current games: "
            "alfworld-download -f"
        )
    sentences = _SENTENCE.findall(grammar)
    if len(sentences) != 1:
        raise _damaged(path, f"its grammar has {len(sentences)} task sentences, expected 1")

    split, name, _ = game_id.split("/", 2)
    payload = {
        "goal_text": str(json.loads(f'"{sentences[0]}"')),
        "pddl_domain": sys.intern(game["pddl_domain"]),  # one object: all games have the same 17 KB
        "grammar": grammar,
        "pddl_problem": game["pddl_problem"],
        "walkthrough": list(game.get("walkthrough") or []),
    }
    return Task(id=game_id, env="alfworld", split=split, group=name.split("-", 1)[0], payload=payload)


def load_games(split: str, root: str | Path | None = None, expected: int | None = None) -> Iterator[Task]:
    """The tasks of a split in id order, read one at a time (a game has about 90 KB).

    Arguments and errors as for :func:`list_games` and :func:`load_game`.
    """
    for game_id in list_games(split, root, expected):
        yield load_game(game_id, root)


def game_texts(task: Task) -> tuple[str, str, str]:
    """The texts (PDDL domain, grammar, PDDL problem) of a task's game, from its payload.

    A domain or grammar that the payload lacks is taken from the alfworld package; the task's sentence is then
    inserted into the grammar. Raises DataError for a payload without a problem, or without both grammar and
    sentence.
    """
    payload = task.payload
    problem = payload.get("pddl_problem")
    if not isinstance(problem, str) or not problem.strip():
        raise DataError(
            f"ALFWorld task {task.id}: its game has no pddl_problem; fetch it again with alfworld-download -f"
        )
    domain = payload.get("pddl_domain") or packaged_text("alfred.pddl")
    grammar = payload.get("grammar")
    if not grammar:
        if not payload.get("goal_text"):
            raise DataError(f"ALFWorld task {task.id}: its game has neither a grammar nor a goal_text")
        grammar = packaged_text("alfred.twl2").replace(_UNKNOWN, payload["goal_text"])
    return domain, grammar, problem


def text_digests(task_sets: Iterable[str]) -> dict[str, str]:
    """Hashes of the texts behind the games of some task sets, for fingerprints: task ids do not cover them.

    Generated houses (``NAME/SPLIT``) use domain and grammar files of the alfworld package: one sha256 each,
    by file name. Published games have their own files: one sha256 over all files of a split, by ``SPLIT,
    games``; if they are not downloaded, "none" by ``SPLIT, first game``. Read once per process.
    """
    names = sorted(set(task_sets))
    digests: dict[str, str] = {}
    if any("/" in name for name in names):
        digests |= {text: _digest_of_packaged(text) for text in PACKAGED}
    for split in sorted({LISTED.get(name, name) for name in names if "/" not in name}):
        digests |= _digests_of_split(split, data_root())
    return digests


@lru_cache(maxsize=2)
def _digest_of_packaged(name: str) -> str:
    try:
        return hashlib.sha256(packaged_text(name).encode("utf-8")).hexdigest()
    except ImportError:  # a workflow is planned without the packages: use the digest of the required release
        return PACKAGED[name]


@cache  # a run is fingerprinted many times; thousands of files are listed once per process
def _digests_of_split(split: str, root: Path) -> dict[str, str]:
    try:
        ids = list_games(split, root, expected=0)
    except DataError:
        return {f"{split}, first game": "none"}  # the key of stored runs
    files = {id_: root / _GAMES_FOLDER / id_ / _GAME_FILE for id_ in ids}
    return {f"{split}, games": digest_of_all(files)}


@lru_cache(maxsize=16)
def _commands(grammar: str) -> frozenset[str]:
    """Command templates of a grammar, e.g. ``move {o} to {r}``."""
    return frozenset(_COMMAND.findall(grammar))


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged ({why}). Fetch it again (alfworld-download -f) or remove it.")
