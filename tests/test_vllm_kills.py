"""The standing attack on a vLLM server: killed while it is asked, and started again, it costs no episode."""

import random
import time

import kills
import psutil
import pytest
from attack import SEED, kills_of
from evaluation.test_vllm import evaluation
from ports import free_port
from start_models import START_MODEL
from vllm_server import INSTALLED, vllm

from r3l.files.json_files import read_jsonl

pytestmark = [pytest.mark.attack, INSTALLED]


def kill_one(rng):
    """A random process of a server; its name. What is left of the server then is ended, as a service manager does."""
    (server,) = [child for child in psutil.Process().children() if "vllm.entrypoints" in " ".join(child.cmdline())]
    family = [server, *server.children(recursive=True)]
    victim, number = rng.choice(family), rng.choice(kills.SIGNALS)
    name = victim.name()
    victim.send_signal(number)
    psutil.wait_procs([victim], timeout=kills.ENDING)
    return f"{number.name} to {name!r} of {len(family)} processes"


def test_kills(tmp_path, capsys):
    """One evaluation after the other, the server killed after every so many episodes, until there were enough kills."""
    rng, count, evaluations, episodes = random.Random(SEED), 0, 0, 0
    port = free_port()
    server = ["--server", f"http://127.0.0.1:{port}", "--model", START_MODEL, "--batch", 64]
    here = tmp_path / "here"
    assert evaluation(here, "--model", START_MODEL).wait() == 0
    local = [row | {"transcript_sha256": ""} for row in read_jsonl(here / "episodes.jsonl")]
    while count < kills_of("vllm"):
        out, evaluations = tmp_path / str(evaluations), evaluations + 1
        played = None
        while not (out / "evaluation.json").exists():
            with vllm(START_MODEL, port):
                if played is None or played.poll() is not None:
                    assert played is None or played.returncode in (0, 2)
                    played = evaluation(out, *server)
                before = len(read_jsonl(out / "episodes.played.jsonl"))
                wanted, began = before + rng.randint(0, 80), time.monotonic()
                while len(read_jsonl(out / "episodes.played.jsonl")) <= wanted and played.poll() is None:
                    assert time.monotonic() - began < 600
                    time.sleep(0.05)
                time.sleep(rng.uniform(0, 1))
                if count < kills_of("vllm") and played.poll() is None:
                    told, count = kill_one(rng), count + 1
                    with capsys.disabled():
                        print(f"\nvllm: {told} after {len(read_jsonl(out / 'episodes.played.jsonl'))} episodes", end="")
                else:
                    played.wait()
        played.wait()
        rows = [row | {"transcript_sha256": ""} for row in read_jsonl(out / "episodes.jsonl")]
        assert rows == local
        episodes += len(rows)
    with capsys.disabled():
        print(
            f"\nattack: seed {SEED}, {count} kills of a vLLM server in {evaluations} evaluations: 0 of {episodes} lost"
        )
