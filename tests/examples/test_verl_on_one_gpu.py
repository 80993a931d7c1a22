"""examples/verl_on_one_gpu.py, with the nano model on a CPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from r3l.files.paths import ROOT
from r3l.trinity.processes import TrinityEnvironment

TRINITY = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity"))


@pytest.mark.slow
@pytest.mark.skipif(
    not TrinityEnvironment(TRINITY).has("verl"), reason=f"no verl: {TRINITY} does not have it (make trinity)"
)
def test_verl_and_the_local_engine_agree(tmp_path):
    program = [TRINITY / "bin/python", ROOT / "examples/verl_on_one_gpu.py", "--nano", "--json"]
    sizes = ["--rows", "16", "--length", "64", "--microbatch", "256"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*program, *sizes], capture_output=True, text=True, env=variables, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    print(report)
    assert report["agree"] and abs(report["gradient_difference"]) < 1e-4
    local, verl = report["local"], report["verl"]
    assert verl["loss"] == pytest.approx(local["loss"], abs=1e-6) and local["grad_norm"] > 0
    for engine in (local, verl):
        assert engine["logprob_mismatch/mean"] < 1e-5 and engine["tokens_per_s"] > 0
