"""The episodes of a real vLLM server (`make vllm`), which is killed in the middle: those of the local policy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from r3l.core.files import read_json, read_jsonl
from r3l.core.paths import ROOT, STORED_MODELS

PYTHON = Path(os.environ.get("R3L_VLLM", ROOT / ".venv-vllm")) / "bin" / "python"
NANO = STORED_MODELS / "nano"
START = 300.0  # seconds that a server may take to start on a busy machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason="make vllm, or R3L_VLLM=/path/to/environment"),
]


@contextlib.contextmanager
def vllm(port: int, tokenizer: Path):
    """A server of the stored nano model, as docs/endpoints.md starts it; killed at the end."""
    options = {"model": NANO, "served-model-name": "nano", "tokenizer": tokenizer, "generation-config": "vllm"}
    options |= {"dtype": "float32", "max-model-len": 1024, "max-num-seqs": 64, "host": "127.0.0.1", "port": port}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    limits = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words, "--enforce-eager"]
    environment = os.environ | limits | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        wait_for(process, port)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        assert process.poll() is None, "vLLM ended at its start"
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"vLLM did not start within {START:g} s")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Without config.json: AutoTokenizer would put Qwen2's word splitting in place of the file's."""
    folder = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(NANO / name, folder)
    return folder


@pytest.fixture(scope="module")
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def evaluation(out: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """``r3l evaluate``, greedy, started."""
    words = [*map(str, arguments), "--temperature", "0", "--out", str(out)]
    return subprocess.Popen([sys.executable, "-m", "r3l.cli", "evaluate", "--env", "alfworld", *words])


def test_a_killed_server_costs_no_episode(tmp_path, tokenizer, port):
    here, by_messages, by_tokens = (tmp_path / name for name in ("here", "messages", "tokens"))
    server = ["--server", f"http://127.0.0.1:{port}", "--model", "nano", "--batch", 64]
    assert evaluation(here, "--model", "nano").wait() == 0
    with vllm(port, tokenizer):
        played = evaluation(by_messages, *server)
        while len(read_jsonl(by_messages / "episodes.played.jsonl")) < 50:
            assert played.poll() is None
            time.sleep(0.2)
    with vllm(port, tokenizer):
        played.wait()
        if played.returncode:  # the machine took longer to start it again than the evaluation waits
            assert evaluation(by_messages, *server).wait() == 0
        assert evaluation(by_tokens, *server, "--dialog", "tokens").wait() == 0
    local, messages, tokens = (read_jsonl(folder / "episodes.jsonl") for folder in (here, by_messages, by_tokens))
    assert len(local) == 200 and tokens == local
    assert [row | {"transcript_sha256": ""} for row in messages] == [row | {"transcript_sha256": ""} for row in local]
    result = read_json(by_messages / "evaluation.json")
    assert result["agent"]["same_template"] is True
    assert sum(count for reason, count in result["requests"].items() if reason != "requests") > 0
