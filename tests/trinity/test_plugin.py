"""Start the tests of inside/ in Trinity's own virtual environment, each file in a process."""

import os
import subprocess
from pathlib import Path

import pytest

from r3l.files.paths import ROOT

PYTHON = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity")) / "bin" / "python"
INSIDE = Path(__file__).with_name("inside")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.is_file(), reason=f"no Trinity: {PYTHON} does not exist (make trinity)")
@pytest.mark.parametrize("file", sorted(path.name for path in INSIDE.glob("test_*.py")))
def test_inside(file):
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    program = [PYTHON, "-m", "pytest", "-x", INSIDE / file]
    variables = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(program, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
