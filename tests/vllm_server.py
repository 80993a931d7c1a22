"""A real vLLM server of a stored base checkpoint (`make vllm`), started as docs/endpoints.md starts it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import httpx2
import pytest

from r3l.files.paths import ROOT, STORED_MODELS

PYTHON = Path(os.environ.get("R3L_VLLM", ROOT / ".venv-vllm")) / "bin" / "python"
# One thread on any core, and 1 GB of keys and values: by default vLLM takes most of the machine's memory.
LIMITS = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
START = 300.0  # seconds that a server may take to start on a busy machine
INSTALLED = pytest.mark.skipif(not PYTHON.is_file(), reason="make vllm, or R3L_VLLM=/path/to/environment")


@contextlib.contextmanager
def vllm(model: str, port: int):
    """A server of the stored ``model``, by its name; killed (SIGKILL) at the end. Yields its address."""
    with tempfile.TemporaryDirectory() as tokenizer:
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(STORED_MODELS / model / name, tokenizer)  # without config.json: docs/endpoints.md
        process = _started(model, port, tokenizer)
        try:
            _wait_for(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):  # a test has killed it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(model: str, port: int, tokenizer: str) -> subprocess.Popen[bytes]:
    options = {"model": STORED_MODELS / model, "served-model-name": model, "tokenizer": tokenizer}
    options |= {"generation-config": "vllm", "dtype": "float32", "max-model-len": 1024, "max-num-seqs": 64}
    options |= {"host": "127.0.0.1", "port": port}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = [
        PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *words,
        "--enforce-eager",
        "--no-enable-chunked-prefill",
    ]
    environment = os.environ | LIMITS | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        assert process.poll() is None, "vLLM ended at its start"
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"vLLM did not start within {START:g} s")
