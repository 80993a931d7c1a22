"""The problem sets, read from a folder, from this package or from the Hugging Face hub.

At each load the number of records and their sha256 are compared with ``sets.json``, wherever a set comes
from. This package contains the sets whose licence allows it (MIT: ``data/LICENSES.md``). Other sets are read
from the folder in ``R3L_MATH`` (docs/environments.md lists files and addresses) or from the hub. Those of
tier nano are generated (``r3l.envs.math.task_sets.arithmetic``).

Published training data is cleaned of duplicates, contradictions and test problems, and the number dropped by
each rule is counted. Two problems are duplicates if they differ only in layout: case, white space,
punctuation, and LaTeX commands for typesetting. Translations are not recognised (a fifth of DAPO is
Chinese).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from r3l.envs.math.task_sets.arithmetic import TEMPLATED, rows
from r3l.envs.math.task_sets.published import ORIGINS, Fields, Origin, rows_of

from r3l.core.errors import ConfigError, DataError, check_known, first_line
from r3l.core.named_folders import named_folder
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
class MathProblem:
    """A problem of a published set; its ``id`` is SET/KEY.

    ``gold``: the right answer without a box. ``source``: name of the set. ``lang``: en or zh. ``sha256``: 16
    hex digits over problem and gold, by which stored results name a problem.
    """

    id: str
    problem: str
    gold: str
    source: str
    lang: str
    sha256: str


def record(source: str, key: str, problem: str, gold: str) -> MathProblem:
    """A problem with its sha256 and its language: zh if it has a Chinese character, else en.

    ``source``: name of the set. ``key``: id within it.
    """
    digest = hashlib.sha256(json.dumps([problem, gold]).encode()).hexdigest()[:16]
    lang = "zh" if _CHINESE.search(problem) else "en"
    return MathProblem(f"{source}/{key}", problem, gold, source, lang, digest)


# A training set is divided between SFT and RL by the problems' sha256 modulo 10. Sizes: our choice.
DIVIDED = ("gsm8k_train",)
SHARES = {"sft": range(4), "validation": range(4, 5), "rl": range(5, 10)}
TEST_SETS = ("gsm8k", "math500", "minerva", "olympiadbench", "amc23", "aime24")
TEMPLATED_TEST_SETS = ("gsm8k_templated", "math500_templated")


@dataclass(frozen=True)
class Cleaning:
    """How to clean training data.

    ``held_out``: number of problems to split off for testing. ``tests``: names of the test sets whose
    problems are dropped.
    """

    held_out: int
    tests: tuple[str, ...]


CLEANING = {  # NAME_raw becomes NAME, the held-out problems, and NAME_train
    "dapo": Cleaning(300, TEST_SETS),  # as many as the paper's own split (spec: weijiezz/DAPO-Math-17k-split)
    "deepmath": Cleaning(500, TEST_SETS),  # as many as RLTF's, which are the last rows (RLTF audit 5)
    "dapo_templated": Cleaning(200, TEMPLATED_TEST_SETS),
    "deepmath_templated": Cleaning(200, TEMPLATED_TEST_SETS),
}
CLEANED = {part: name for name in CLEANING for part in (name, f"{name}_train")}
SETS = tuple(name for name in (*ORIGINS, *TEMPLATED) if not name.endswith("_raw")) + tuple(CLEANED)


def load(name: str, source: Path | None = None) -> list[MathProblem]:
    """The problems of the set ``name``, in its own order.

    ``source``: a folder of data files (default: ``$R3L_MATH``). Raises ConfigError for an unknown set;
    DataError for one that cannot be found or read, or whose sha256 is not the one in sets.json.
    """
    check_known("set", name, SETS)
    if name in CLEANED:
        parts, _ = cleaned(CLEANED[name], source)
        problems = parts[name]
    else:
        problems = read_set(name, source)
    if name not in frozen():
        raise DataError(
            f"set {name!r} is not frozen yet: {FROZEN} has no sha256 of it. Run, once: r3l data build "
            f"{CLEANED[name]} --env math; it reads the published files and writes their hash there"
        )
    digest = problems_sha256(problems)
    expected = frozen()[name]
    if (len(problems), digest) != (expected["rows"], expected["sha256"]):
        raise DataError(
            f"set {name!r} is not the frozen one: {len(problems)} records with sha256 {digest[:16]}, "
            f"{FROZEN.name} has {expected['rows']} with {expected['sha256'][:16]}. Get the file named in "
            f"docs/environments.md and give its folder in {FOLDER}; if the change is meant: "
            "python -m r3l.envs.math.task_sets.tasks DIR"
        )
    return problems


def problems_sha256(problems: Sequence[MathProblem]) -> str:
    """Hex sha256 of the problems as JSON lines; their order matters."""
    lines = (json.dumps(asdict(problem), sort_keys=True) + "\n" for problem in problems)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@cache
def frozen() -> dict[str, dict[str, Any]]:
    """The contents of sets.json, read once: number of problems ("rows") and sha256 of each set, by its name.

    Test sets also list the ids of their problems that occur in the training set DAPO (``in_dapo``).
    Raises DataError if the file is missing or damaged.
    """
    return dict(read_json(FROZEN))


def share_of(problem: MathProblem) -> str:
    """The part of a training set to which a problem belongs: ``sft``, ``validation`` or ``rl``.

    By its sha256 modulo 10: ``sft`` for 0 to 3, ``validation`` for 4, ``rl`` for 5 to 9.
    """
    tenth = int(problem.sha256, 16) % 10
    return next(share for share, tenths in SHARES.items() if tenth in tenths)


def solutions(name: str) -> dict[str, str]:
    """The worked solutions of a published set in GSM8K's layout (column ``answer``), by problem id.

    ``name``: gsm8k or gsm8k_train. Raises DataError if its files cannot be found or read.
    """
    found: dict[str, str] = {}
    for file in _files(name, None):
        for row in rows_of(file, ORIGINS[name].columns):
            found[f"{name}/{len(found)}"] = str(row["answer"])
    return found


def read_set(name: str, source: Path | None) -> list[MathProblem]:
    """Read a set from the folder ``source``, else this package, else the hub; templated sets are generated.

    ``source`` None: ``$R3L_MATH``. Its sha256 is not checked. Raises DataError if it cannot be found or read,
    ConfigError if the folder does not exist, KeyError for an unknown or a cleaned set.
    """
    if name in TEMPLATED:
        read = ORIGINS[TEMPLATED[name].layout].read
        return [record(name, *read(row, number)) for number, row in enumerate(rows(TEMPLATED[name]))]
    packaged = PACKAGED / f"{name}.jsonl.gz"
    folder = _folder(source)
    if packaged.is_file() and not (folder and any(folder.glob(ORIGINS[name].file))):
        with gzip.open(packaged) as content:
            lines = bounded_lines(content, most(packaged.stat().st_size), packaged)
            return [record(name, *json.loads(line)) for line in lines]
    problems = []
    for file in _files(name, source):
        problems += [record(name, *fields) for fields in read_file(file, ORIGINS[name])]
    return problems


def _files(name: str, source: Path | None) -> list[Path]:
    """The published files of a set, from the folder if one is given, else from the hub."""
    origin = ORIGINS[name]
    folder = _folder(source)
    if folder is None:
        return _download(name, origin)
    files = sorted(folder.glob(origin.file))
    if not files:
        raise DataError(
            f"{folder} has no {origin.file} (set {name!r}); docs/environments.md says where to get it"
        )
    return files


def _folder(source: Path | None) -> Path | None:
    """The data folder: ``source``, else $R3L_MATH, else None. Raises ConfigError if it does not exist."""
    if source is None:
        return named_folder(FOLDER)
    if not source.is_dir():
        raise ConfigError(f"the data folder {source} does not exist; correct the path")
    return source


def _download(name: str, origin: Origin) -> list[Path]:
    """The files of the hub, from its cache or the network. Raises DataError without either."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, file = origin.hub
    try:
        snapshot = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=file))
        files = sorted(snapshot.glob(file))
        if not files:
            raise FileNotFoundError("it has no such file")
        return files
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"set {name!r} cannot be had from the hub ({repository}, {file}): {first_line(error).rstrip('.')}. "
            f"Give a folder with {origin.file} in {FOLDER} (docs/environments.md says where to get it)"
        ) from error


def read_file(path: Path, origin: Origin) -> list[Fields]:
    """Read (id within the set, problem, gold answer) from each row of a .jsonl or .parquet file, in order.

    Rows that ``origin.without_gold`` lists are skipped. Raises DataError naming file, row, key and fix if any
    other row lacks one of the three.
    """
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
def cleaned(name: str, source: Path | None) -> tuple[dict[str, list[MathProblem]], CleaningReport]:
    """Clean the training data NAME_raw (:func:`clean`): its problems by part, and a report.

    The parts are NAME, the held-out problems, and NAME_train. Cached. Raises DataError for a set, of training
    or test data, that cannot be found or read; the test sets must have their frozen sha256.
    """
    raw = read_set(f"{name}_raw", source)
    tests = {test: [p.problem for p in load(test, source)] for test in CLEANING[name].tests}
    train, test, report = clean([(p.problem, p.gold) for p in raw], tests, CLEANING[name].held_out)
    parts = {
        name: [record(name, key[:16], problem, gold) for key, problem, gold in test],
        f"{name}_train": [record(name, key[:16], problem, gold) for key, problem, gold in train],
    }
    return parts, report


@dataclass(frozen=True)
class CleaningReport:
    """Numbers of problems in a cleaning of training data.

    A cluster is a problem with its duplicates. ``rows``: before cleaning. ``duplicates``: rows less clusters.
    ``conflicting``: clusters dropped for two different answers. ``overlaps``: by test set, clusters that it
    has (also conflicting ones; one that several have counts for the last). ``train``, ``test``: problems
    kept.
    """

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
    """The text of a problem in lower case and without layout: blanks, punctuation, LaTeX for typesetting.

    Problems with equal results are duplicates.
    """
    return _LAYOUT.sub("", _FRACTION.sub(r"\\frac", problem.lower()))


def key_of(problem: str) -> str:
    """Hex sha256 of a problem's :func:`normalise`, so that duplicates share it; also its sort key."""
    return hashlib.sha256(normalise(problem).encode()).hexdigest()


def clean(
    rows: Iterable[tuple[str, str]], tests: Mapping[str, Sequence[str]], held_out: int
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], CleaningReport]:
    """Clean (problem, gold answer) rows for training, and split off ``held_out`` problems for testing.

    Drops duplicates (of each cluster the alphabetically first text stays), problems with two different
    answers, and problems that occur in the published test sets ``tests`` (set name -> problems). Returns the
    training problems, the held-out ones and a report. Both lists hold (key, problem, gold) sorted by key, a
    hash, so the split does not depend on the order of the rows.
    """
    # Duplicates share a key. Only the alphabetically first text of a cluster stays, so that the order of the
    # rows does not matter.
    clusters: dict[str, set[tuple[str, str]]] = {}
    count = 0
    for problem, gold in rows:
        clusters.setdefault(key_of(problem), set()).add((problem, gold))
        count += 1

    # A cluster with two gold answers contradicts itself; one that is in a test set would leak it.
    where = {key_of(problem): name for name, problems in tests.items() for problem in problems}
    overlaps = {name: sum(where.get(key) == name for key in clusters) for name in tests}
    agreed = {key: texts for key, texts in clusters.items() if len({gold for _, gold in texts}) == 1}
    problems = sorted((key, *min(texts)) for key, texts in agreed.items() if key not in where)
    test = problems[:held_out]
    train = problems[held_out:]
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
