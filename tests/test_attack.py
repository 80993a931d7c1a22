"""The standing attack, `pytest -m attack`: hostile texts through every reader, hostile bytes through every file reader.

R3L_ATTACK_SEED repeats one (it is printed); R3L_ATTACK_TEXTS and R3L_ATTACK_MINUTES say how many texts and how long.
"""

import gzip
import json
import os
import random
import secrets
import shutil
import time
from collections import Counter

import pytest
import torch
from readers import READERS, hostile, reader, seconds

from r3l.core.errors import CheckpointError, DataError
from r3l.core.files import SUMS, read_json, read_jsonl
from r3l.core.paths import STORED, STORED_MODELS
from r3l.evaluation.verification import check_signed
from r3l.local.checkpoint import load_model

pytestmark = pytest.mark.attack

SEED = int(os.environ.get("R3L_ATTACK_SEED") or secrets.randbelow(2**32))
TEXTS = int(os.environ.get("R3L_ATTACK_TEXTS") or 100_000)
MINUTES = float(os.environ.get("R3L_ATTACK_MINUTES") or 30)
LENGTHS = (10, 100, 100, 100, 1_000, 1_000, 1_000, 10_000)  # characters; 10,000 is what a response of 4,096 tokens has
SLOW = 0.05  # seconds of processor time
FILES = 20_000
CPU = torch.device("cpu")


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
    formats = {
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
RUN = STORED / "nano/alfworld/nano/r3l/seed0"


def ranges(folder, count):
    """A byte of each of ``count`` equal ranges of the files of ``folder`` together, each file having three at least."""
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        of_file = max(3, round(count * size / sum(p.stat().st_size for p in folder.iterdir())))
        for k in range(of_file):
            start, end = size * k // of_file, size * (k + 1) // of_file
            yield path, start, max(end, start + 1)


def test_flipped_bits(tmp_path, capsys):
    """One flipped bit in each byte range of each file of a run and of a start model is noticed.

    Or harmless: nothing but the notes of the digests has changed, and they say the same.
    """
    rng, outcomes = random.Random(SEED), Counter()
    for source, check in ((RUN, check_signed), (STORED_MODELS / "nano", lambda f: load_model(str(f), CPU))):
        folder = tmp_path / source.name
        shutil.copytree(source, folder)
        check(folder)
        for path, start, end in ranges(folder, FLIPS // 2):
            whole = path.read_bytes()
            changed = bytearray(whole)
            changed[rng.randrange(start, min(end, len(whole)))] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            try:
                check(folder)
                assert path.name == SUMS, (path, start, SEED)
                outcomes["harmless"] += 1
            except (DataError, CheckpointError):
                outcomes["noticed"] += 1
            path.write_bytes(whole)
    with capsys.disabled():
        print(
            f"\nattack: seed {SEED}, {outcomes.total()} flipped bits: {outcomes['noticed']} noticed, "
            f"{outcomes['harmless']} harmless"
        )
    assert outcomes.total() >= FLIPS
