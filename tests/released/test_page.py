"""docs/reliability.md holds the tables of the stored rows; what is explained there, the audit explains."""

import re

from docs.pages import text
from docs.test_audit import _HEADING as HEADING
from docs.test_audit import AUDIT, cited

from r3l.files.json_files import read_json
from r3l.released import report
from r3l.released.checks import SUBJECTS
from r3l.released.compare import checks_of

STORED = read_json(report.STORED_ROWS)


def test_stored_rows_are_of_checks_that_there_are():
    names = {(check.subject, check.name) for subject in SUBJECTS for check in checks_of(subject)}
    assert {(row["subject"], row["check"]) for row in STORED["rows"]} <= names


def test_what_is_explained_has_a_section_in_the_audit():
    defined = set(HEADING.findall(text(AUDIT)))
    ids = {audit for row in STORED["rows"] for audit in row["explained"]}
    assert ids <= defined, ids - defined
    assert cited("A-8") == {"A-8"}


def test_nothing_is_unexplained():
    assert [row["check"] for row in STORED["rows"] if row["unexplained"]] == []


def test_files_of_one_folder_are_counted_where_they_are_many():
    row = {"subject": "s", "check": "c", "release": "RLTF", "cases": 1, "equal": 1, "explained": {}, "unexplained": 0}
    few = report.markdown([row | {"files": ["a/b.py"], "missing": []}], "ran")
    many = report.markdown([row | {"files": [f"a/{k}.py" for k in range(9)], "missing": []}], "ran")
    assert "| s | RLTF | `rltf/a/b.py` |" in few and "| s | RLTF | 9 in `rltf/a` |" in many
    assert re.search(r"\| all \|  \| 1 \| 1 \|  \| 0 \|", few)
