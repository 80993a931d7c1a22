"""The problem sets: one record a problem, read from a folder, from this package or from the Hugging Face hub.

Wherever a set comes from, it must be the set that ``sets.json`` froze: its number of records and the sha256 over them
are compared at every load. This package holds only what its licence allows (MIT: ``data/LICENSES.md``); the others
are read from a folder (``R3L_MATH``; docs/environments.md lists files and addresses) or from the hub. Those
of tier nano are made (``r3l.envs.math.task_sets.arithmetic``).

Published training data is cleaned of duplicates, contradictions and test problems; what each rule dropped is counted.
Two problems are the same when they differ in layout only: case, white space, punctuation, and LaTeX commands that say
how to print something rather than what it is. Translations are not recognised (a fifth of DAPO is Chinese).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from r3l.envs.math.task_sets.arithmetic import TEMPLATED, rows
from r3l.envs.math.task_sets.published import ORIGINS, Fields, Origin, rows_of

from r3l.core.errors import ConfigError, DataError, check_known
from r3l.files.json_files import read_json
from r3l.files.unpacking import bounded_lines, most

FOLDER = "R3L_MATH"  # environment variable that names a folder with the data files
HERE = Path(__file__).resolve().parents[1]
FROZEN = HERE / "sets.json"
PACKAGED = HERE / "data"

_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|text|mathrm|textbf|mathbf|textit|emph|operatorname|mbox)(?![a-z])"
    r"|\\[!,;: ()\[\]]|[\s~${}.,:;?!*\"'`’‘“”_\\]"
)
_FRACTION = re.compile(r"\\[dt]frac")


@dataclass(frozen=True)
class Problem:
    """``gold`` is bare, as the data set has it: the grader boxes it. ``source`` is the set; ``lang`` is en or zh.

    ``sha256`` (16 hex digits) is over problem and gold, so that stored results can name the item they are of.
    """

    id: str
    problem: str
    gold: str
    source: str
    lang: str
    sha256: str


def record(source: str, key: str, problem: str, gold: str) -> Problem:
    """A record with its language and hash filled in."""
    digest = hashlib.sha256(json.dumps([problem, gold]).encode()).hexdigest()[:16]
    lang = "zh" if _CHINESE.search(problem) else "en"
    return Problem(f"{source}/{key}", problem, gold, source, lang, digest)


# Parts of a training set that SFT and RL share out, by tenths of the problems' digests. Sizes: our choice.
DIVIDED = ("gsm8k_train",)
SHARES = {"sft": range(4), "validation": range(4, 5), "rl": range(5, 10)}
TEST_SETS = ("gsm8k", "math500", "minerva", "olympiadbench", "amc23", "aime24")
TEMPLATED_TEST_SETS = ("gsm8k_templated", "math500_templated")


@dataclass(frozen=True)
class Cleaning:
    """``held_out``: test problems of cleaned training data. ``tests``: sets whose problems may not stand in it."""

    held_out: int
    tests: tuple[str, ...]


CLEANING = {  # training data that is cleaned here: NAME_raw becomes NAME and NAME_train
    "dapo": Cleaning(300, TEST_SETS),  # as many as the paper's own split (spec: weijiezz/DAPO-Math-17k-split)
    "deepmath": Cleaning(500, TEST_SETS),  # as many as RLTF's, which are the last rows (RLTF audit 5)
    "dapo_templated": Cleaning(200, TEMPLATED_TEST_SETS),
    "deepmath_templated": Cleaning(200, TEMPLATED_TEST_SETS),
}
CLEANED = {part: name for name in CLEANING for part in (name, f"{name}_train")}
SETS = tuple(name for name in (*ORIGINS, *TEMPLATED) if not name.endswith("_raw")) + tuple(CLEANED)


def load(name: str, source: Path | None = None) -> list[Problem]:
    """The records of a set, in its own order. ``source`` is a folder of data files (default: ``$R3L_MATH``).

    Raises ConfigError for an unknown set, DataError where a set cannot be found, read, or is not the frozen one.
    """
    known_set(name)
    problems = cleaned(CLEANED[name], source)[0][name] if name in CLEANED else read_set(name, source)
    _verify(name, problems)
    return problems


def known_set(name: str) -> str:
    """``name``. Raises ConfigError where it is no set."""
    check_known("set", name, SETS)
    return name


def sha256_of(problems: Sequence[Problem]) -> str:
    """Hex digest over the records, in order."""
    return hashlib.sha256("".join(_line(p) for p in problems).encode()).hexdigest()


@cache
def frozen() -> dict[str, dict[str, Any]]:
    """sets.json: rows, sha256 and, for test sets, the ids that stand in DAPO."""
    return dict(read_json(FROZEN))


def _line(problem: Problem) -> str:
    return json.dumps(asdict(problem), sort_keys=True) + "\n"


def _verify(name: str, problems: Sequence[Problem]) -> None:
    if name not in frozen():
        raise DataError(
            f"set {name!r} is not frozen yet: {FROZEN} has no sha256 of it. Run, once: r3l data build "
            f"{CLEANED[name]} --env math; it reads the published files and writes their hash there"
        )
    expected = frozen()[name]
    if (len(problems), sha256_of(problems)) != (expected["rows"], expected["sha256"]):
        raise DataError(
            f"set {name!r} is not the frozen one: {len(problems)} records with sha256 {sha256_of(problems)[:16]}, "
            f"{FROZEN.name} has {expected['rows']} with {expected['sha256'][:16]}. Get the file named in "
            f"docs/environments.md and give its folder in {FOLDER}; if the change is meant: "
            "python -m r3l.envs.math.task_sets.tasks DIR"
        )


def share_of(problem: Problem) -> str:
    """``sft``, ``validation`` or ``rl``: which part of a training set that is divided a problem is in, by its text."""
    tenth = int(problem.sha256, 16) % 10
    return next(share for share, tenths in SHARES.items() if tenth in tenths)


def solutions(name: str) -> dict[str, str]:
    """Worked solutions of a published training set by the ids of its problems. Raises as :func:`load`."""
    rows = (row for file in _files(name, None) for row in rows_of(file, ORIGINS[name].columns))
    return {f"{name}/{number}": str(row["answer"]) for number, row in enumerate(rows)}


def read_set(name: str, source: Path | None) -> list[Problem]:
    """A set as the folder, this package or the hub has it (the first that does), whether frozen or not."""
    if name in TEMPLATED:
        read = ORIGINS[TEMPLATED[name].layout].read
        return [record(name, *read(row, number)) for number, row in enumerate(rows(TEMPLATED[name]))]
    packaged, folder = PACKAGED / f"{name}.jsonl.gz", _folder(source)
    if packaged.is_file() and not (folder and any(folder.glob(ORIGINS[name].file))):
        with gzip.open(packaged) as file:
            lines = bounded_lines(file, most(packaged.stat().st_size), packaged)
            return [record(name, *json.loads(line)) for line in lines]
    return _read_files(name, _files(name, source))


def _files(name: str, source: Path | None) -> list[Path]:
    """The published files of a set, of the folder where there is one, else of the hub."""
    origin, folder = ORIGINS[name], _folder(source)
    if folder is None:
        return _download(name, origin)
    if files := sorted(folder.glob(origin.file)):
        return files
    raise DataError(f"{folder} has no {origin.file} (set {name!r}); docs/environments.md says where to get it")


def _read_files(name: str, files: Sequence[Path]) -> list[Problem]:
    return [record(name, *fields) for file in files for fields in read_file(file, ORIGINS[name])]


def _folder(source: Path | None) -> Path | None:
    folder = source or (Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else None)
    if folder and not folder.is_dir():
        raise ConfigError(f"the data folder {folder} does not exist; correct {FOLDER}")
    return folder


def _download(name: str, origin: Origin) -> list[Path]:
    """The hub's files, from its cache or the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, file = origin.hub
    try:
        snapshot = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=file))
        if not (files := sorted(snapshot.glob(file))):
            raise FileNotFoundError("it has no such file.")
        return files
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"set {name!r} cannot be had from the hub ({repository}, {file}): {str(error).splitlines()[0]} Give a "
            f"folder with {origin.file} in {FOLDER} (docs/environments.md says where to get it)"
        ) from error


def read_file(path: Path, origin: Origin) -> list[Fields]:
    """Every row with a gold answer of a .jsonl or .parquet file. Raises DataError naming file, row, key and fix."""
    parsed = []
    for number, row in enumerate(rows_of(path, origin.columns)):
        if number in origin.without_gold:
            continue
        try:
            fields = origin.read(row, number)
            if not all(isinstance(part, str) and part for part in fields):
                raise ValueError("id, problem and gold must be non-empty text")
        except KeyError as error:
            raise DataError(
                f"{path}, row {number + 1}: key {error} is missing; it has {', '.join(map(repr, row))}. "
                f"Take the file that docs/environments.md names"
            ) from error
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"{path}, row {number + 1}: {error}; take the file that docs/environments.md names"
            ) from error
        parsed.append(fields)
    return parsed


@cache
def cleaned(name: str, source: Path | None) -> tuple[dict[str, list[Problem]], CleaningReport]:
    """NAME and NAME_train of published training data, whether frozen or not, and what cleaning dropped, by reason."""
    raw = read_set(f"{name}_raw", source)
    tests = {test: [p.problem for p in load(test, source)] for test in CLEANING[name].tests}
    train, test, report = clean([(p.problem, p.gold) for p in raw], tests, CLEANING[name].held_out)
    return {
        part: [record(name, key[:16], problem, gold) for key, problem, gold in rows]
        for part, rows in ((name, test), (f"{name}_train", train))
    }, report


@dataclass(frozen=True)
class CleaningReport:
    """What became of the rows. ``overlaps``: clusters dropped by the test set that they also stand in."""

    rows: int
    duplicates: int
    clusters: int
    conflicting: int
    overlaps: Mapping[str, int]
    train: int
    test: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def normalise(problem: str) -> str:
    """The problem without layout; equal texts are one problem."""
    return _LAYOUT.sub("", _FRACTION.sub(r"\\frac", problem.lower()))


def key_of(problem: str) -> str:
    """A name for a problem that does not depend on layout or on where a copy of the data has it."""
    return hashlib.sha256(normalise(problem).encode()).hexdigest()


def clean(
    rows: Iterable[tuple[str, str]], tests: Mapping[str, Sequence[str]], held_out: int
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], CleaningReport]:
    """(train, test, report) of (problem, gold) rows; ``tests`` holds the problems of every test set.

    Both parts are lists of (key, problem, gold) in the order of their keys; test is the first ``held_out``. Of a
    cluster's texts the first in alphabetical order stays, so that the result does not depend on the rows' order.
    """
    clusters: dict[str, set[tuple[str, str]]] = {}
    count = 0
    for problem, gold in rows:
        clusters.setdefault(key_of(problem), set()).add((problem, gold))
        count += 1
    where = {key_of(problem): name for name, problems in tests.items() for problem in problems}
    overlaps = {name: sum(where.get(key) == name for key in clusters) for name in tests}
    agreed = {key: texts for key, texts in clusters.items() if len({gold for _, gold in texts}) == 1}
    problems = sorted((key, *min(texts)) for key, texts in agreed.items() if key not in where)
    test, train = problems[:held_out], problems[held_out:]
    report = CleaningReport(
        rows=count,
        duplicates=count - len(clusters),
        clusters=len(clusters),
        conflicting=len(clusters) - len(agreed),
        overlaps=overlaps,
        train=len(train),
        test=len(test),
    )
    return train, test, report
