"""The episodes of a real vLLM server (`make vllm`), which is killed in the middle: those of the local
policy."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from ports import free_port
from start_models import START_MODEL
from vllm_server import INSTALLED, vllm

from r3l.files.json_files import read_json, read_jsonl

pytestmark = [pytest.mark.slow, INSTALLED]


def evaluation(out: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """``r3l evaluate``, greedy, started."""
    words = [*map(str, arguments), "--set", "evaluation.temperature=0", "--out", str(out)]
    return subprocess.Popen([sys.executable, "-m", "r3l.cli", "evaluate", "alfworld", *words])


def test_a_killed_server_costs_no_episode(tmp_path):
    port = free_port()
    here, by_messages, by_tokens = (tmp_path / name for name in ("here", "messages", "tokens"))
    server = ["--server", f"http://127.0.0.1:{port}", "--model", START_MODEL, "--batch", 64]
    assert evaluation(here, "--model", START_MODEL).wait() == 0
    with vllm(START_MODEL, port):
        played = evaluation(by_messages, *server)
        while len(read_jsonl(by_messages / "episodes.played.jsonl")) < 50:
            assert played.poll() is None
            time.sleep(0.2)
    with vllm(START_MODEL, port):
        played.wait()
        if played.returncode:  # the machine took longer to start it again than the evaluation waits
            assert evaluation(by_messages, *server).wait() == 0
        assert evaluation(by_tokens, *server, "--dialog", "tokens").wait() == 0
    local, messages, tokens = (
        read_jsonl(folder / "episodes.jsonl") for folder in (here, by_messages, by_tokens)
    )
    assert len(local) == 200 and tokens == local
    assert [row | {"transcript_sha256": ""} for row in messages] == [
        row | {"transcript_sha256": ""} for row in local
    ]
    result = read_json(by_messages / "evaluation.json")
    assert result["agent"]["same_template"] is True
    assert sum(count for reason, count in result["requests"].items() if reason != "requests") > 0
