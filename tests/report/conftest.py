from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from report.runs import write_three_seeds

from r3l.files.paths import STORED
from r3l.report.reading import read_runs
from r3l.runs.run_paths import CURVES, find_runs


@pytest.fixture
def three_seeds(tmp_path: Path) -> Path:
    """A results folder with three methods of three seeds."""
    return write_three_seeds(tmp_path)


@pytest.fixture(scope="session")
def stored() -> pd.DataFrame:
    """Our stored runs, read once."""
    return read_runs(find_runs(STORED, may_be_none=True))


@pytest.fixture(scope="session")
def stored_curves() -> pd.DataFrame:
    """Our stored runs that were also scored on the way, read once."""
    return read_runs(find_runs(STORED / CURVES, may_be_none=True))
