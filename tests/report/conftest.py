from __future__ import annotations

from pathlib import Path

import pytest
from report.runs import write_three_seeds


@pytest.fixture
def three_seeds(tmp_path: Path) -> Path:
    """A results folder with three methods of three seeds."""
    return write_three_seeds(tmp_path)
