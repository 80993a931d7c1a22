"""Folders of data files: small copies in the published layouts, and the full data where R3L_MATH names it."""

import json
import os
from pathlib import Path

import pytest


@pytest.fixture
def full_data():
    """The folder with every data file; not every licence allows to keep them here."""
    if not os.environ.get("R3L_MATH"):
        pytest.skip("needs the data files of docs/environments.md: set R3L_MATH to their folder")
    return Path(os.environ["R3L_MATH"])


@pytest.fixture
def write_jsonl(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write
