import json

import pytest
from program import run


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    """Run ``r3l evaluate ARGUMENTS`` in an empty folder; its JSON, or where it fails its message."""
    monkeypatch.chdir(tmp_path)

    def evaluate(*arguments):
        code, out, err = run(monkeypatch, capsys, "evaluate", *arguments, "--json")
        return json.loads(out) if code == 0 else err

    return evaluate
