"""Stop signals, with real ones to this process and to a command at work."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from program import Program

from r3l.config import base_checkpoint_of, resolve
from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.evaluation.evaluate import PLAYED, evaluate_run
from r3l.files.json_files import read_jsonl
from r3l.local import engine
from r3l.local.engine import train
from r3l.local.sampling.policy import SamplingProgress
from r3l.local.session import open_session
from r3l.runs import preemption
from r3l.runs.preemption import EXIT_CODE, Preempted, stop_signals
from r3l.runs.run_paths import TRANSCRIPTS, evaluation_folder


@pytest.fixture
def loop():
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def wait(loop, received, coroutine):
    task = loop.create_task(coroutine)
    with received.cancelling(task):
        return loop.run_until_complete(task)


async def sleep_and_answer(seconds=60.0):
    await asyncio.sleep(seconds)
    return "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_stop_signal_wakes_a_loop_that_waits(loop, number):
    with stop_signals() as received:
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        began = time.monotonic()
        with pytest.raises(Preempted) as stopped:
            wait(loop, received, sleep_and_answer())
    assert time.monotonic() - began < 5
    assert stopped.value.code == EXIT_CODE == 75 and stopped.value.signal_name == number.name


@pytest.fixture(params=[signal.default_int_handler])
def ctrl_c(request):
    """What Ctrl-C does before the test; a shell may have started the tests ignoring it."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_an_update_waits_for_its_end_and_a_second_one_does_not(ctrl_c, loop, capfd):
    with stop_signals() as received:
        signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().err == "\nstops when this update ends; Ctrl-C again stops at once\n"
        with pytest.raises(Preempted) as stopped:
            wait(loop, received, sleep_and_answer())  # the next rollouts
        assert stopped.value.code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("ctrl_c", [signal.SIG_IGN], indirect=True)
def test_a_background_job_that_ignores_ctrl_c_goes_on_ignoring_it(ctrl_c, loop):
    with stop_signals() as received:
        signal.raise_signal(signal.SIGINT)
        assert wait(loop, received, sleep_and_answer(0)) == "done"


def test_a_stop_signal_ends_a_response_between_two_tokens(monkeypatch):
    """A published model on a CPU takes minutes for one, and a scheduler waits for half a minute. No stop
    token is given, so the response would have 200 tokens."""
    sampled = []

    def third_token(progress, live):
        sampled.append(live)
        if len(sampled) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SamplingProgress, "__call__", third_token)
    with open_session(RUN, base_checkpoint_of(RUN)) as session:

        async def respond(member):
            dialog = session.policy.open()
            dialog.add(Message("user", "1 + 1"))
            return await dialog.respond(Sampling(0.0, 200), ("stop", member))

        monkeypatch.setattr(session.policy.renderer, "stops", lambda more: frozenset())
        with pytest.raises(Preempted):
            session.concurrently(respond, range(2))
    assert sampled == [2, 2, 2]


RUN = resolve("nano", "math", "zero_shot", 0, overrides=["evaluation.batch=16", "env_settings.max_turns=2"])
TASKS = "chain/validation"  # the smallest set: 128 tasks


def test_a_stopped_evaluation_goes_on_after_its_last_whole_batch(tmp_path):
    """Eight batches; stopped after the first, then damaged as a kill in the middle of a line would."""
    train(RUN, tmp_path / "quiet")
    shutil.copytree(tmp_path / "quiet", tmp_path / "stopped")
    quiet, stopped = (evaluation_folder(tmp_path / name, TASKS, "test") for name in ("quiet", "stopped"))
    evaluate_run(tmp_path / "quiet", TASKS)
    program = Program("r3l.cli", "evaluate", tmp_path / "stopped", "--task-set", TASKS)
    while not read_jsonl(stopped / PLAYED) and program.process.is_alive():
        time.sleep(0.02)
    os.killpg(program.process.pid, signal.SIGTERM)
    code, _, stderr = program.wait()
    assert code == 75, stderr
    assert stderr.splitlines()[-1] == "stopped by SIGTERM; re-run to resume"
    assert not {"evaluation.json", "episodes.jsonl", "failed.json"} & {
        path.name for path in stopped.iterdir()
    }
    assert 1 <= len(read_jsonl(stopped / PLAYED)) < 8
    with (stopped / PLAYED).open("ab") as file:
        file.write(b'{"evaluated": {"ch')
    evaluate_run(tmp_path / "stopped", TASKS)
    assert {path.name for path in stopped.iterdir()} == {path.name for path in quiet.iterdir()}
    for name in ("evaluation.json", "episodes.jsonl"):
        assert (stopped / name).read_bytes() == (quiet / name).read_bytes()
    said = {
        row["task"]: json.dumps([turn["response"] for turn in row["turns"]])
        for row in read_jsonl(stopped / TRANSCRIPTS)
    }
    hashed = {row["task"]: row["responses_sha256"] for row in read_jsonl(stopped / "episodes.jsonl")}
    assert {task: hashlib.sha256(text.encode()).hexdigest()[:16] for task, text in said.items()} == hashed


def test_batches_of_another_checkpoint_are_played_again(tmp_path):
    train(RUN, tmp_path)
    lies = {"checkpoint": "another", "task_set": "one", "run": RUN.fingerprint()}
    played = evaluation_folder(tmp_path, TASKS, "test") / PLAYED
    played.parent.mkdir(parents=True)
    played.write_text(json.dumps({"evaluated": lies, "episodes": [], "generated": 0}) + "\n")
    assert evaluate_run(tmp_path, TASKS)["episodes"] == 128


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (("update", 1), "the first step ended after 11.7 minutes, later than --minutes 10"),
        (("collect", 1), "no step ended within 10 minutes"),
        (("collect", 2), ""),
    ],
)
def test_a_first_step_beyond_the_limit_is_said_and_no_other(tmp_path, monkeypatch, caplog, late, said):
    """The clock goes 700 s on in one phase of a step, and then the limit's signal comes."""
    jumped, steps = [], {"update": 0, "collect": 0}
    clock = SimpleNamespace(monotonic=lambda: 700.0 * len(jumped), perf_counter=time.perf_counter)
    for module in (engine, preemption):
        monkeypatch.setattr(module, "time", clock)

    def delayed(phase, work):
        def run(*arguments):
            steps[phase] += 1
            if (phase, steps[phase]) == late:
                jumped.append(phase)
                os.kill(os.getpid(), signal.SIGALRM)
            return work(*arguments)

        return run

    for phase in steps:
        monkeypatch.setattr(engine, phase, delayed(phase, getattr(engine, phase)))
    small = ["train.steps=3", "train.tasks_per_step=1", "method_settings.group_size=2", "workers=0"]
    with pytest.raises(Preempted):
        train(resolve("nano", "math", "grpo", 0, overrides=small), tmp_path, minutes=10)
    assert (said in caplog.text) if said else "minutes" not in caplog.text


def test_an_endless_time_limit_is_none():
    """``--minutes inf`` and a typo with many zeros: the timer of the system holds neither."""
    for seconds in (float("inf"), 1e300):
        with preemption.time_limit(seconds):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 9e8
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
