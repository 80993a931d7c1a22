from __future__ import annotations

from pathlib import Path

import pytest
from report.runs import write_three_seeds

from r3l.files.paths import STORED
from r3l.report import records
from r3l.report.records import Record
from r3l.runs.run_paths import find_runs


@pytest.fixture
def three_seeds(tmp_path: Path) -> Path:
    """A results folder with three methods of three seeds."""
    return write_three_seeds(tmp_path)


@pytest.fixture(scope="session")
def stored() -> list[Record]:
    """Our stored runs, read once."""
    return records.load(find_runs(STORED, may_be_none=True))
