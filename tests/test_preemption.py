"""Orders to stop, with real signals to this process and to a command at work."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from r3l.preemption import EXIT_CODE, Preempted, orders


@pytest.fixture
def loop():
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def wait(loop, received, coroutine):
    task = loop.create_task(coroutine)
    with received.cancelling(task):
        return loop.run_until_complete(task)


async def sleep_and_tell(seconds=60.0):
    await asyncio.sleep(seconds)
    return "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_an_order_wakes_a_loop_that_waits(loop, number):
    with orders() as received:
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        began = time.monotonic()
        with pytest.raises(Preempted) as told:
            wait(loop, received, sleep_and_tell())
    assert time.monotonic() - began < 5
    assert told.value.code == EXIT_CODE == 75 and told.value.order == number.name


def test_what_is_not_played_is_finished_first(loop):
    with orders() as received:
        os.kill(os.getpid(), signal.SIGTERM)  # in the middle of an update, say: nothing happens
        begun = []

        async def episode():
            begun.append(1)

        with pytest.raises(Preempted):
            wait(loop, received, episode())
        assert not begun


def test_without_an_order_nothing_changes(loop):
    before = signal.getsignal(signal.SIGTERM)

    async def cancelled():
        raise asyncio.CancelledError

    with orders() as received:
        assert wait(loop, received, sleep_and_tell(0)) == "done"
        with pytest.raises(asyncio.CancelledError):
            wait(loop, received, cancelled())
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_evaluation_that_is_stopped_leaves_nothing_half_done(tmp_path):
    run = ["--env", "math", "--method", "zero_shot", "--run-dir", str(tmp_path)]
    r3l = [sys.executable, "-m", "r3l.cli"]
    subprocess.run([*r3l, "train", *run], check=True, capture_output=True)
    process = subprocess.Popen(
        [*r3l, "evaluate", str(tmp_path)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    while not open(children).read() and process.poll() is None:  # its environment worker: the session is open
        time.sleep(0.02)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGTERM)
    _, told = process.communicate()
    assert process.returncode == 75, told
    assert told.splitlines()[-1] == "stopped by SIGTERM; the same command goes on from here"
    assert not {"evaluation.json", "episodes.jsonl", "failed.json"} & {path.name for path in tmp_path.iterdir()}
    subprocess.run([*r3l, "evaluate", str(tmp_path)], check=True, capture_output=True)
    assert json.loads((tmp_path / "evaluation.json").read_text())["episodes"] == 200
