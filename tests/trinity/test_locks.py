"""The packages of Trinity's environment can be installed together: uv resolves what is asked for to the lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from r3l.files.paths import ROOT

UV = Path(sys.executable).with_name("uv")
FOLDER = ROOT / "configs" / "trinity"


@pytest.mark.skipif(not UV.is_file(), reason="no uv in this environment (make setup)")
@pytest.mark.parametrize("machine", ["gpu", "cpu"])
def test_the_lock_is_what_its_requirements_resolve_to(machine, tmp_path):
    # With the lock as the output file uv keeps its versions, unless they no longer satisfy a requirement.
    lock = tmp_path / f"{machine}.txt"
    lock.write_text((FOLDER / lock.name).read_text())
    more = ["--overrides", "overrides-cpu.txt"] if machine == "cpu" else []
    options = [
        "--overrides",
        "overrides.txt",
        *more,
        "--python-version",
        "3.11",
        "--no-annotate",
        "--no-header",
    ]
    command = [UV, "pip", "compile", "--quiet", *options, f"{machine}.in", "--output-file", lock]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    committed = [x for x in (FOLDER / lock.name).read_text().splitlines() if not x.startswith("#")]
    assert [x for x in lock.read_text().splitlines() if not x.startswith("#")] == committed
