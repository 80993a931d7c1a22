"""The evening of docs/tiers.md, command by command, with a small stand-in for the published model."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import blocks

from r3l.files.paths import ROOT, STORED_MODELS

FETCH = "r3l model fetch qwen2.5-coder-0.5b"  # the network; tests/sft/test_download


@pytest.mark.slow
def test_the_evening_on_two_cores(tmp_path):
    """The stand-in knows WebShop's protocol, so its reflections are read and its retries played."""
    (block,) = (text for text in blocks(ROOT / "docs/tiers.md") if text.startswith(FETCH))
    shutil.copytree(STORED_MODELS / "webshop-1.5m", tmp_path / "cache/models/qwen2.5-coder-0.5b")
    block = block.replace(FETCH, "true").replace("/qwen2.5-coder-0.5b/", "/*/")
    environment = os.environ | {
        "R3L_CACHE": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out = done.stdout
    assert "R3L minus GRPO: expected" in out  # the probe's last line
    assert len(re.findall(r"seed 0: success 0\.\d+ \(95 % interval", out)) == 2
    assert re.search(r"^webshop +GRPO +1 .*incomplete", out, re.MULTILINE)
    assert (tmp_path / "results/report.html").stat().st_size > 100_000
