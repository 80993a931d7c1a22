"""The table of what checks found: a row a check, differences by the id that explains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from r3l.released.check import Outcome
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Section, Table

COLUMNS = ("subject", "check", "release", "cases", "equal", "explained", "unexplained")


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
    """As the terminal and docs/released.md have it. ``source``: what the checks ran on."""
    sections = [Section("", [_cells(row) for row in found if not row["missing"]])]
    total = {key: sum(row[key] for row in found) for key in ("cases", "equal", "unexplained")}
    explained = sum(sum(row["explained"].values()) for row in found)
    sections.append(Section("", [_cells({"subject": "all", **total, "explained": {"in all": explained}})]))
    absent = sorted({path for row in found for path in row["missing"]})
    notes = [source, "explained: cases that differ for the reason that docs/audit.md gives under the id"]
    notes += [f"not there, so its checks did not run: {path}" for path in absent]
    right = {"cases", "equal", "unexplained"}
    return Table("Our code and the released code", [Column(name, name in right) for name in COLUMNS], sections, notes)


def examples(outcomes: Sequence[Outcome], each: int = 3) -> list[str]:
    """The first unexplained cases of each check, for a person to look into."""
    return [
        f"{outcome.subject}/{outcome.name}: {mismatch.case}\n  ours {mismatch.ours}\n  released {mismatch.theirs}"
        for outcome in outcomes
        for mismatch in [m for m in outcome.mismatches if not m.audit][:each]
    ]


def _cells(row: LongRow) -> dict[str, Cell]:
    shown = row | {"explained": ", ".join(f"{count} {audit}" for audit, count in row["explained"].items())}
    return {name: Cell(str(shown.get(name, ""))) for name in COLUMNS}
