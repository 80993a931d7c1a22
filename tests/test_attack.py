"""The standing attack, `pytest -m attack`: hostile texts through every reader, damaged files, flipped bits, a soak."""

import contextlib
import gzip
import json
import os
import random
import secrets
import statistics
import time
from collections import Counter

import psutil
import pytest
from program import Program, run
from readers import READERS, hostile, reader, seconds

from r3l.config import resolve
from r3l.core.errors import DataError
from r3l.evaluation.evaluate import evaluate_run
from r3l.files.columns import read_columns, write_columns
from r3l.files.digests import SUMS
from r3l.files.json_files import read_json, read_jsonl
from r3l.local.engine import train

pytestmark = pytest.mark.attack

SEED = int(os.environ.get("R3L_ATTACK_SEED") or secrets.randbelow(2**32))
TEXTS = int(os.environ.get("R3L_ATTACK_TEXTS") or 100_000)
MINUTES = float(os.environ.get("R3L_ATTACK_MINUTES") or 30)  # of the hostile texts
STEPS = int(os.environ.get("R3L_ATTACK_STEPS") or 1200)  # of the soak; memory grows in the first 450
LENGTHS = (10, 100, 100, 100, 1_000, 1_000, 1_000, 10_000)  # characters; 10,000 is what a response of 4,096 tokens has
SLOW = 0.05  # seconds of processor time
FILES = 20_000


def test_hostile_texts(capsys):
    errors, slow, slowest = Counter(), Counter(), (0.0, "", 0)
    began = time.monotonic()
    texts = 0
    while texts < TEXTS and time.monotonic() - began < 60 * MINUTES:
        number, texts = texts, texts + 1
        text = hostile(SEED + number, random.Random(SEED + number).choice(LENGTHS))
        for name in READERS:
            try:
                took = seconds(reader(name), text, SLOW)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                errors[f"{name}: {type(error).__name__} with seed {SEED + number}"] += 1
                continue
            slowest = max(slowest, (took, name, SEED + number))
            slow[f"{name}, seed {SEED + number}"] += took >= SLOW
    with capsys.disabled():
        print(
            f"\nattack: seed {SEED}, {texts} texts, {len(READERS)} readers, {texts * len(READERS)} readings in "
            f"{time.monotonic() - began:.0f} s: {errors.total()} exceptions, {slow.total()} slower than "
            f"{1000 * SLOW:.0f} ms; the slowest {1000 * slowest[0]:.1f} ms ({slowest[1]}, seed {slowest[2]})"
        )
    assert not errors and not +slow, (errors.most_common(5), (+slow).most_common(5))


def damaged(rng, content):
    """``content`` with one to four of: a bit flipped, a piece cut out, doubled or replaced."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(1, 200))
        match rng.randrange(4):
            case 0 if start < len(data):
                data[start] ^= 1 << rng.randrange(8)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end] * rng.randrange(1, 50)
            case _:
                data[start:end] = hostile(rng.randrange(2**32), 100).encode(errors="surrogatepass")
    return bytes(data)


def test_hostile_files(tmp_path, capsys):
    rng, outcomes = random.Random(SEED), Counter()
    rows = [json.dumps({"step": k, "text": hostile(SEED + k, 300)}).encode() + b"\n" for k in range(5)]
    packed = b"".join(gzip.compress(row, mtime=0) for row in rows)
    columns = tmp_path / "columns.json.xz"
    write_columns(columns, map(json.loads, rows))
    formats = {
        "a.json.xz": (columns.read_bytes(), read_columns),
        "a.jsonl": (b"".join(rows), read_jsonl),
        "a.jsonl.gz": (packed, read_jsonl),
        "a.json": (rows[0], read_json),
    }
    for _ in range(FILES):
        name, (content, read) = rng.choice(list(formats.items()))
        (tmp_path / name).write_bytes(damaged(rng, content))
        try:
            read(tmp_path / name)
            outcomes["read"] += 1
        except DataError:
            outcomes["refused"] += 1
    with capsys.disabled():
        print(f"\nattack: seed {SEED}, {FILES} damaged files: {outcomes['refused']} refused, {outcomes['read']} read")
    assert outcomes.total() == FILES


FLIPS = 200
LAST = "step-000004"


def ranges(folder, count):
    """A byte of each of ``count`` equal ranges of the files of ``folder`` together, each file having three at least."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    whole = sum(path.stat().st_size for path in paths)
    for path in paths:
        size = path.stat().st_size
        of_file = max(3, round(count * size / whole))
        for k in range(of_file):
            start, end = size * k // of_file, size * (k + 1) // of_file
            yield path, start, max(end, start + 1)


def flip(path, start, end, rng):
    """Flip a bit of ``path`` between two places; what it held."""
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[rng.randrange(start, min(end, len(whole)))] ^= 1 << rng.randrange(8)
    path.write_bytes(changed)
    return whole


def test_flipped_bits_of_a_run_with_its_checkpoints(tmp_path, monkeypatch, capsys):
    """Every one is named by `r3l verify`; one in the last checkpoint also by `r3l evaluate`.

    Or harmless: a bit of the notes of the digests, which say the same to whoever reads them.
    """
    small = ["train.steps=4", "train.save_every=2", "train.tasks_per_step=2", "method_settings.group_size=4"]
    train(resolve("nano", "math", "r3l", 0, overrides=small), tmp_path)
    evaluate_run(tmp_path)
    rng, outcomes, wrong = random.Random(SEED), Counter(), []
    for path, start, end in ranges(tmp_path, FLIPS):
        whole = flip(path, start, end, rng)
        for verb in ("verify", "evaluate") if path.parent.name == LAST else ("verify",):
            code, _, stderr = run(monkeypatch, capsys, verb, tmp_path)
            noticed = code == 2 and stderr.startswith("error: ") and len(stderr.splitlines()) == 1
            outcomes["noticed" if noticed else "harmless"] += 1
            if not noticed and not (path.name == SUMS and code == 0):
                wrong.append((path, start, verb, code, stderr))
        path.write_bytes(whole)
    assert run(monkeypatch, capsys, "verify", tmp_path)[0] == 0
    with capsys.disabled():
        print(f"\nattack: seed {SEED}, flipped bits: {dict(outcomes)}")
    assert not wrong and outcomes.total() >= FLIPS


SECONDS = 2.0  # between samples
RUN = ["env_settings.max_turns=4", "method_settings.group_size=4", "train.tasks_per_step=1", "workers=2"]
FLAT = ("processes", "descriptors", "threads", "temporary files")
LINE = 3000  # bytes of a line of metrics.jsonl, at most


def samples(process, run_dir, temporary):
    """What ``process`` and its workers hold, every few seconds from the first step on until they end."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(SECONDS)
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):  # it has ended, a checkpoint was replaced
            everyone = [process, *process.children(recursive=True)]
            yield {
                "step": len((run_dir / "metrics.jsonl").read_bytes().splitlines()),
                "processes": len(everyone),
                "memory": sum(one.memory_info().rss for one in everyone),
                "descriptors": sum(one.num_fds() for one in everyone),
                "threads": sum(one.num_threads() for one in everyone),
                "checkpoints": sum(path.stat().st_size for path in run_dir.glob("checkpoints/*/*")),
                "temporary files": len(list(temporary.iterdir())),
            }


def test_a_long_run_takes_no_more_at_its_end(tmp_path, monkeypatch, capsys):
    """WebShop with two workers and a checkpoint every five steps."""
    run_dir, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    options = [part for setting in [*RUN, f"train.steps={STEPS}"] for part in ("--set", setting)]
    program = Program("r3l.cli", "train", "--env", "webshop", "--method", "grpo", "--run-dir", run_dir, *options)
    rows = list(samples(psutil.Process(program.process.pid), run_dir, temporary))
    code, _, stderr = program.wait()
    assert code == 0, stderr
    second, last = ([row for row in rows if STEPS * k / 4 <= row["step"] < STEPS * (k + 1) / 4] for k in (1, 3))
    median = {key: [statistics.median(row[key] for row in quarter) for quarter in (second, last)] for key in rows[0]}
    with capsys.disabled():
        ends = ", ".join(f"{key} {a:.0f} -> {b:.0f}" for key, (a, b) in median.items())
        print(f"\nattack: {STEPS} steps, medians of the second and of the last quarter: {ends}")
    for key in FLAT:
        assert median[key][0] == median[key][1], key
    for key in ("memory", "checkpoints"):
        assert median[key][1] <= 1.05 * median[key][0], key
    assert (run_dir / "metrics.jsonl").stat().st_size <= LINE * STEPS
