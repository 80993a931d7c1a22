"""The standing attack on the Trinity engine: random processes of a run are killed, and the run goes on."""

import random
import time

import kills
import psutil
import pytest
from attack import SEED, kills_of
from trinity.test_end_to_end import PYTHON, family, finish, start

from r3l.files.json_files import read_json, read_jsonl

pytestmark = [pytest.mark.attack, pytest.mark.skipif(not PYTHON.is_file(), reason="make trinity, or R3L_TRINITY")]

STEPS = 3
LOCAL_ALONE = ("seconds/", "kl_to_start", "logprob_mismatch/")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The local engine's run, and the seconds that Trinity takes for the same."""
    local, trinity = (tmp_path_factory.mktemp(name) for name in ("local", "trinity"))
    assert finish(start("local", STEPS, local))[0] == 0
    began = time.monotonic()
    assert finish(start("trinity", STEPS, trinity))[0] == 0
    assert not differences(local, trinity)
    return local, time.monotonic() - began


def differences(local, trinity):
    """What a run on Trinity has otherwise than the local one: counts are the same, sums of floats nearly."""
    ours, theirs = read_jsonl(local / "metrics.jsonl"), read_jsonl(trinity / "metrics.jsonl")
    wrong = [] if [row["step"] for row in theirs] == list(range(1, STEPS + 1)) else ["steps"]
    for a, b in zip(ours, theirs, strict=False):
        compared = [key for key in a if not key.startswith(LOCAL_ALONE)]
        wrong += [
            f"step {a['step']}, {key}: {a[key]}, {b.get(key)}" for key in compared if not near(a[key], b.get(key))
        ]
    final = [read_json(folder / "result.json")["final"] for folder in (local, trinity)]
    return wrong + ([] if final[0] == pytest.approx(final[1]) else ["final"])


def near(ours, theirs):
    return theirs is not None and theirs == pytest.approx(ours, abs=1e-5)


def kill_once(run_dir, seconds, rng):
    """What was killed, and whether and how the command ended."""
    process, number = start("trinity", STEPS, run_dir), rng.choice(kills.SIGNALS)
    wait = rng.uniform(0.05, 0.95) * seconds
    time.sleep(wait)
    started = [psutil.Process(process.pid), *family(process)] if process.poll() is None else []
    if not started:
        finish(process)
        return None, []
    victim = rng.choice(started)
    name = " ".join(victim.cmdline())[:60] or victim.name()
    victim.send_signal(number)
    code, errors = finish(process)
    _, left = psutil.wait_procs(started, timeout=kills.ENDING)
    wrong = [f"left: {one.cmdline()}" for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    wrong += ["traceback"] if "Traceback (most recent call last)" in errors.split("The end of")[0] else []
    return f"{number.name} after {wait:.0f} s to {name!r}: exit {code}", wrong


def test_kills(quiet, tmp_path, capsys):
    local, seconds = quiet
    rng, wrong, count = random.Random(SEED), [], 0
    while count < kills_of("trinity"):
        run_dir = tmp_path / str(rng.random())
        told, found = kill_once(run_dir, seconds, rng)
        if told is None:
            continue
        count += 1
        code, errors = finish(start("trinity", STEPS, run_dir))
        found += differences(local, run_dir) if code == 0 else [f"exit {code}: {errors[-500:]}"]
        wrong += found
        with capsys.disabled():
            print(f"\ntrinity: {told}: {found or 'same'}", end="", flush=True)
    with capsys.disabled():
        print(f"\nattack: seed {SEED}, {count} kills of processes of the Trinity engine: {len(wrong)} differences")
    assert not wrong
