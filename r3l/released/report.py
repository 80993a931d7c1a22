"""What checks found, as tables: a row a check, differences by the id that explains them; and which files they read.

``python -m r3l.released.report`` prints the tables of docs/reliability.md from the stored rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from r3l.core.markdown import pipe_table
from r3l.files.json_files import read_json
from r3l.files.paths import STORED
from r3l.original.clones import R3L, RLTF
from r3l.released.check import Outcome
from r3l.report.table import Cell, Column, Section, Table

LongRow = dict[str, Any]
STORED_ROWS = STORED / "released" / "checks.json"
COLUMNS = ("check", "release", "cases", "equal", "explained", "unexplained")
NUMBERS = {"cases", "equal", "unexplained"}
CLONED_AS = {release.name: PurePosixPath(release.url).stem for release in (R3L, RLTF)}
_ID = re.compile(r"\b[AB]-\d+|RLTF (?:audit|defect) \d+")
FOLDER_FROM = 8  # files of one folder from which their number stands for their names


def rows(outcomes: Sequence[Outcome]) -> list[LongRow]:
    """One row a check; ``explained``: number by id; ``missing``: files that the clone lacks, so it did not run."""
    return [
        {
            "subject": outcome.subject,
            "check": outcome.name,
            "release": outcome.release,
            "cases": outcome.cases,
            "equal": outcome.cases - len(outcome.mismatches),
            "explained": dict(sorted(Counter(m.audit for m in outcome.mismatches if m.audit).items())),
            "unexplained": sum(not m.audit for m in outcome.mismatches),
            "files": list(outcome.files),
            "missing": list(outcome.missing),
        }
        for outcome in outcomes
    ]


def table(found: Sequence[LongRow], source: str) -> Table:
    """As the terminal has it. ``source``: what the checks ran on."""
    columns = [Column(name, right=name in NUMBERS) for name in COLUMNS]
    sections = [Section("", [_cells(row) for row in found if not row["missing"]]), Section("", [_cells(_total(found))])]
    absent = sorted({path for row in found for path in row["missing"]})
    notes = [source, "explained: cases that differ for the reason that docs/audit.md gives under the id"]
    notes += [f"not there, so its checks did not run: {path}" for path in absent]
    return Table("Our code and the released code", columns, sections, notes)


def examples(outcomes: Sequence[Outcome], each: int = 3) -> list[str]:
    """The first unexplained cases of each check, for a person to look into."""
    return [
        f"{outcome.subject}: {outcome.name}: {mismatch.case}\n  ours {mismatch.ours}\n  released {mismatch.theirs}"
        for outcome in outcomes
        for mismatch in [m for m in outcome.mismatches if not m.audit][:each]
    ]


def markdown(found: Sequence[LongRow], source: str) -> str:
    """The table, what it ran on, and the files of each subject, as docs/reliability.md has them."""
    shown = table(found, source)
    lines = [[_linked(cell.text) for cell in cells] for cells in shown.cells()]
    checks = pipe_table(COLUMNS, lines, right=NUMBERS)
    by_subject: dict[tuple[str, str], dict[str, None]] = {}
    for row in found:
        by_subject.setdefault((row["subject"], row["release"]), {}).update(dict.fromkeys(row["files"]))
    files = [[subject, release, ", ".join(_named(release, paths))] for (subject, release), paths in by_subject.items()]
    return "\n\n".join([f"It {source}.", checks, pipe_table(("subject", "release", "files"), files)])


def _linked(text: str) -> str:
    """With every id that has an anchor of its own linked to the audit."""
    return _ID.sub(lambda found: f"[{found[0]}](audit.md#{found[0].lower().replace(' ', '-')})", text)


def _named(release: str, paths: Iterable[str]) -> list[str]:
    """Files in code, in the folder that ``git clone`` makes; many of one folder by their number."""
    folders: dict[str, list[str]] = {}
    for path in (PurePosixPath(CLONED_AS[release], path) for path in paths):
        folders.setdefault(str(path.parent), []).append(str(path))
    return [
        text
        for folder, files in folders.items()
        for text in ([f"{len(files)} in `{folder}`"] if len(files) >= FOLDER_FROM else [f"`{path}`" for path in files])
    ]


def _total(found: Sequence[LongRow]) -> LongRow:
    explained: Counter[str] = Counter()
    for row in found:
        explained.update(row["explained"])
    return {"check": "all", "explained": dict(explained)} | {key: sum(row[key] for row in found) for key in NUMBERS}


def _cells(row: Mapping[str, object]) -> dict[str, Cell]:
    explained = row["explained"]
    assert isinstance(explained, dict)
    name = f"{row['subject']}: {row['check']}" if "subject" in row else str(row["check"])
    texts = {name: str(row.get(name, "")) for name in COLUMNS}
    texts |= {"check": name, "explained": ", ".join(f"{audit}: {count}" for audit, count in explained.items())}
    return {name: Cell(text) for name, text in texts.items()}


if __name__ == "__main__":
    stored = read_json(STORED_ROWS)
    print(markdown(stored["rows"], stored["source"]))
