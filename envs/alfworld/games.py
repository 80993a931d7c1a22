"""The published ALFWorld games as tasks: a user's own download, or the same games packed into one small file.

Layout of a download (``alfworld-download``): ``ROOT/json_2.1.1/SPLIT/TASK/TRIAL/game.tw-pddl``, where ROOT is
``$ALFWORLD_DATA`` or, as in the alfworld package, ``~/.cache/alfworld``. A game's id is ``SPLIT/TASK/TRIAL``.
Packed form: rows ``[id, task sentence, walkthrough, problem]`` in ``NAME.jsonl.xz``; the domain and the
grammar, one text each for all games, lie beside it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from r3l.envs.alfworld.translate import packaged_text

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.files.unpacking import bounded_lines
from r3l.files.writing import write_atomic

# Counts of the published releases 2.1.1 to 2.1.3 (the README of alfworld and the folders themselves).
EXPECTED_GAMES: Mapping[str, int] = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
DOMAIN_FILE = "shared_domain.pddl"
GRAMMAR_FILE = "shared_grammar.twl2"
_GAMES_FOLDER = "json_2.1.1"
_GAME_FILE = "game.tw-pddl"
_PACKED = ".jsonl.xz"
UNPACKED = 1 << 30  # bytes of a pack of games at most; our choice, four times what the official games take
_UNKNOWN = "UNKNOWN GOAL"
_SENTENCE = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)\."')
_DOWNLOAD = "Run alfworld-download (it comes with the alfworld package), or point ALFWORLD_DATA at the games."


class _Game(NamedTuple):
    """What games differ in; domain and grammar are the same for all, but for the task sentence in the grammar."""

    id: str
    sentence: str
    walkthrough: Sequence[str]
    problem: str


def data_root(root: str | Path | None = None) -> Path:
    """Where the games lie: ``root``, else ``$ALFWORLD_DATA``, else the alfworld package's default."""
    return Path(root or os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()


def list_games(split: str, root: str | Path | None = None, expected: int | None = None) -> list[str]:
    """The sorted game ids of a split.

    ``expected`` is the count that must be there (default: the published one; 0 accepts any number but none).
    Raises DataError naming the folder, both counts and the download command.
    """
    folder = data_root(root) / _GAMES_FOLDER / _known(split)
    ids = sorted(f"{split}/{path.parent.parent.name}/{path.parent.name}" for path in folder.glob(f"*/*/{_GAME_FILE}"))
    wanted = EXPECTED_GAMES[split] if expected is None else expected
    if not ids or (wanted and len(ids) != wanted):
        raise DataError(f"{folder} holds {len(ids)} ALFWorld games, expected {wanted or 'at least 1'}. {_DOWNLOAD}")
    return ids


def count_games(root: str | Path | None = None) -> dict[str, int]:
    """How many games of each split are there; 0 where a split is missing."""
    base = data_root(root) / _GAMES_FOLDER
    return {split: sum(1 for _ in (base / split).glob(f"*/*/{_GAME_FILE}")) for split in EXPECTED_GAMES}


def ids_sha256(ids: Iterable[str]) -> str:
    """sha256 of the sorted ids, newline-joined (the rule of ``r3l.envs.base.task_sets``)."""
    return hashlib.sha256("\n".join(sorted(ids)).encode("utf-8")).hexdigest()


def load_game(game_id: str, root: str | Path | None = None) -> Task:
    """One downloaded game as a task. Raises DataError naming the file that is missing or damaged."""
    path = data_root(root) / _GAMES_FOLDER / game_id / _GAME_FILE
    try:
        game = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist. {_DOWNLOAD}") from error
    except ValueError as error:  # JSON and UTF-8 errors
        raise _damaged(path, str(error)) from error
    if not isinstance(game, dict):
        raise _damaged(path, "not a JSON object")
    missing = [key for key in ("pddl_domain", "grammar", "pddl_problem") if not isinstance(game.get(key), str)]
    if missing:
        raise _damaged(path, "no " + ", ".join(missing))
    domain, grammar = game["pddl_domain"], game["grammar"]
    row = _Game(game_id, _sentence(grammar, path), game.get("walkthrough") or [], game["pddl_problem"])
    return _task(row, domain, grammar)


def load_games(split: str, root: str | Path | None = None, expected: int | None = None) -> Iterator[Task]:
    """The tasks of a split in id order, read one at a time (a game is about 90 KB).

    Packed files in the games' folder are read in place of the unpacked games.
    """
    for path in sorted(data_root(root).glob(f"*{_PACKED}")):
        if any(game.id.startswith(f"{split}/") for game in _rows(path)):
            yield from load_packed(path, split)
            return
    for game_id in list_games(split, root, expected):
        yield load_game(game_id, root)


def pack(root: str | Path | None, out: str | Path, splits: Collection[str] | None = None) -> int:
    """Write the games below ``root`` to ``out`` (``.jsonl.xz``), domain and grammar beside it; their number.

    Comments and needless blanks of a problem are dropped; nothing that is played changes. Splits that are
    empty are left out. Raises DataError when there is no game, or when games disagree in domain or grammar.
    """
    present = [split for split, count in count_games(root).items() if count and split in (splits or EXPECTED_GAMES)]
    if not present:
        raise DataError(f"{data_root(root) / _GAMES_FOLDER} holds no ALFWorld games to pack. {_DOWNLOAD}")
    rows: list[str] = []
    shared: tuple[str, str] | None = None
    for task in (task for split in present for task in load_games(split, root, expected=0)):
        sentence = task.payload["goal_text"]
        texts = (
            task.payload["pddl_domain"],
            task.payload["grammar"].replace(f"Your task is to: {sentence}.", f"Your task is to: {_UNKNOWN}."),
        )
        if shared is not None and texts != shared:
            raise DataError(f"ALFWorld game {task.id} has another domain or grammar than the others: cannot pack")
        shared = texts
        row = [task.id, sentence, task.payload["walkthrough"], _compact(task.payload["pddl_problem"])]
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    assert shared is not None  # every split that is present has a game
    target = Path(out)
    write_atomic(target.with_name(DOMAIN_FILE), shared[0].encode("utf-8"))
    write_atomic(target.with_name(GRAMMAR_FILE), shared[1].encode("utf-8"))
    write_atomic(target, lzma.compress("".join(rows).encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))
    return len(rows)


def game_texts(task: Task) -> tuple[str, str, str]:
    """Domain, grammar and problem of a task; what its payload leaves out comes from the alfworld package."""
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
    """sha256 of the texts that games are made of, of which task ids say nothing; ``none`` where they are not here.

    Houses take domain and grammar from the alfworld package. Published games bring their own: the first game of a split
    stands for all, which share these two texts (reading all 3,553 would take seconds).
    """
    names = sorted(set(task_sets))
    digests = {}
    if any("/" in name for name in names):
        digests |= {text: _digest_of_packaged(text) for text in ("alfred.pddl", "alfred.twl2")}
    return digests | {f"{split}, first game": _digest_of_first(split) for split in names if "/" not in split}


@lru_cache(maxsize=2)
def _digest_of_packaged(name: str) -> str:
    try:
        return _sha256(packaged_text(name))
    except ModuleNotFoundError:
        return "none"


def _digest_of_first(split: str) -> str:
    try:
        game = next(load_games(split, expected=0))
    except DataError:
        return "none"
    return _sha256(json.dumps(game.payload, sort_keys=True))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def load_packed(path: str | Path, split: str | None = None, ids: Collection[str] | None = None) -> list[Task]:
    """The tasks of a packed file in id order: all, those of one ``split``, or those of ``ids``.

    Raises DataError naming the file that is missing or damaged, or the ids that it lacks.
    """
    source = Path(path)
    domain = _shared_text(source.with_name(DOMAIN_FILE))
    grammar = _shared_text(source.with_name(GRAMMAR_FILE))
    wanted = None if ids is None else set(ids)
    tasks: list[Task] = []
    for game in _rows(source):
        if (split is None or game.id.startswith(split + "/")) and (wanted is None or game.id in wanted):
            own = grammar.replace(_UNKNOWN, json.dumps(game.sentence, ensure_ascii=False)[1:-1])
            tasks.append(_task(game, domain, own))
    absent = (wanted or set()) - {task.id for task in tasks}
    if absent or not tasks:
        lacking = (
            f"{len(absent)} of {len(wanted or ())} wanted ids, first {min(absent)}" if absent else f"split {split}"
        )
        raise DataError(
            f"{source} lacks {lacking}. Pack it again from a whole download (r3l.envs.alfworld.games.pack)."
        )
    return sorted(tasks, key=lambda task: task.id)


def _task(game: _Game, domain: str, grammar: str) -> Task:
    split, name, _ = game.id.split("/", 2)
    payload = {
        "goal_text": game.sentence,
        "pddl_domain": _shared(domain),
        "grammar": grammar,
        "pddl_problem": game.problem,
        "walkthrough": list(game.walkthrough),
    }
    return Task(id=game.id, env="alfworld", split=split, group=name.split("-", 1)[0], payload=payload)


@lru_cache(maxsize=16)
def _shared(text: str) -> str:
    """The same object for equal texts: all games share one 17 KB domain."""
    return text


def _known(split: str) -> str:
    if split not in EXPECTED_GAMES:
        raise DataError(f"ALFWorld has no split {split!r}; it has {', '.join(EXPECTED_GAMES)}")
    return split


def _sentence(grammar: str, path: Path) -> str:
    sentences = _SENTENCE.findall(grammar)
    if len(sentences) != 1:
        raise _damaged(path, f"its grammar has {len(sentences)} task sentences, expected 1")
    return str(json.loads(f'"{sentences[0]}"'))


def _compact(problem: str) -> str:
    """The problem without comments (';' to the end of the line) and runs of blanks."""
    return " ".join(re.sub(r";[^\n]*", " ", problem).split())


def _rows(source: Path) -> Iterator[_Game]:
    try:
        with lzma.open(source) as stream:
            for number, line in enumerate(bounded_lines(stream, UNPACKED, source), start=1):
                yield _row(json.loads(line), source, number)
    except FileNotFoundError as error:
        raise DataError(f"{source} does not exist. Make it with r3l.envs.alfworld.games.pack. {_DOWNLOAD}") from error
    except (lzma.LZMAError, EOFError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise _damaged(source, str(error)) from error


def _row(row: Any, source: Path, number: int) -> _Game:
    whole = (
        isinstance(row, list)
        and len(row) == 4
        and isinstance(row[0], str)
        and row[0].count("/") == 2
        and isinstance(row[1], str)
        and isinstance(row[2], list)
        and isinstance(row[3], str)
    )
    if not whole:
        raise _damaged(source, f"line {number} is not [split/task/trial, sentence, walkthrough, problem]")
    return _Game(*row)


def _shared_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing beside the packed games; pack them again or copy it too") from error


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged ({why}). Fetch it again (alfworld-download -f) or remove it.")
