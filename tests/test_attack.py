"""The standing attack, `pytest -m attack`: hostile texts through every reader, damaged files, flipped bits."""

import gzip
import json
import random
import time
from collections import Counter

import pytest
from attack import MINUTES, SEED, TEXTS
from program import run
from readers import READERS, hostile, reader, seconds

from r3l.config import resolve
from r3l.core.errors import DataError
from r3l.evaluation.evaluate import evaluate_run
from r3l.files.columns import read_columns, write_columns
from r3l.files.digests import SUMS
from r3l.files.json_files import read_json, read_jsonl
from r3l.local.engine import train

pytestmark = pytest.mark.attack

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
