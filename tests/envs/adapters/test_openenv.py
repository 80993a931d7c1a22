"""A real OpenEnv server: played by hand, killed in the middle of an episode, trained on."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import r3l
from r3l.config import environment_of
from r3l.core.errors import EngineError
from r3l.files.json_files import read_jsonl
from r3l.processes.pool import EnvironmentPool

FIELDS = {"observation": "message", "action": "response"}
STEPS = {"train.steps": 3, "train.tasks_per_step": 2, "method_settings.group_size": 4, "workers": 0}


class Server:
    """The server of mine/stamps_server.py in a separate process."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.process = None

    def start(self, sessions=16):
        command = [sys.executable, "-m", "uvicorn", "stamps_server:app", "--port", str(self.port)]
        environment = {"SESSIONS": str(sessions), "PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(command, cwd=Path(__file__).with_name("mine"), env=environment)
        until = time.monotonic() + 120
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server():
    made = Server()
    yield made
    if made.process:
        made.kill()


@pytest.fixture
def stamps(server, write):
    server.start()
    return write("stamps", "openenv", url=server.url, max_turns=2, **FIELDS)


def test_a_served_game_is_the_game(stamps, begin, monkeypatch):
    """Seed 0 gives 21 + 6 - 3 = 24 by numpy's generator, as in the test of the game without a server."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("mine"))
    from games import Stamps

    game = Stamps()
    question, _ = game.reset(seed=0)
    engine, opening = begin(stamps)
    assert opening == [("user", question)]
    wrong = engine.step("\\boxed{-1}")
    assert (wrong.text, wrong.reward, wrong.done) == ("not correct. Try again.", 0.0, False)
    right = engine.step(f"\\boxed{{{game.answer}}}")
    assert (right.reward, right.done, right.success) == (1.0, True, True)
    assert engine.rewind(1) == wrong and engine.rewind(0).text == question
    crashed = engine.step("crash")
    assert crashed.done and "out of ink" in crashed.failed
    engine.reset(environment_of(stamps).tasks("train")[0])
    assert engine.step(f"\\boxed{{{game.answer}}}").success


def test_an_episode_goes_on_when_the_server_was_restarted(stamps, server):
    pool = EnvironmentPool(environment_of(stamps), workers=0)
    task = environment_of(stamps).tasks("train")[0]

    async def play():
        handle = pool.open()
        await handle.reset(task)
        before = await handle.step("\\boxed{-1}")
        server.kill()
        server.start()
        with pytest.warns(UserWarning, match="was lost at step.*an episode is played again"):
            after = await handle.step("\\boxed{-1}")
        return before, after

    before, after = asyncio.run(play())
    assert (before.done, after.done, pool.lost) == (False, True, 1)


def test_a_server_with_too_few_sessions_says_so(server, write):
    server.start(sessions=1)
    package = environment_of(write("stamps", "openenv", url=server.url, **FIELDS))
    first, second = package.create({}), package.create({})
    task = package.tasks("train")[0]
    first.reset(task)
    with pytest.raises(
        EngineError, match="starts no episode with seed 0: give its create_app a max_concurrent_envs"
    ):
        second.reset(task)


@pytest.mark.parametrize("method", ["grpo", "r3l"])
def test_three_steps_train(stamps, tmp_path, method):
    steps = read_jsonl(r3l.train(stamps, method, settings=STEPS, run_dir=tmp_path / "run") / "metrics.jsonl")
    assert len(steps) == 3 and all(1 <= step["train/turns"] <= 2 for step in steps)
    assert any(0 < step["train/success"] < 1 and step["grad_norm"] > 0 for step in steps)
    assert not any("env_failed" in step for step in steps)
