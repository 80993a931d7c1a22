"""The standing attack, `pytest -m attack`: hostile texts through every reader, hostile bytes through every file reader.

R3L_ATTACK_SEED repeats one (it is printed), R3L_ATTACK_TEXTS says how many texts.
"""

import gzip
import json
import os
import random
import secrets
import time
from collections import Counter

import pytest
from readers import READERS, hostile, reader

from r3l.core.errors import DataError
from r3l.core.files import read_json, read_jsonl

pytestmark = pytest.mark.attack

SEED = int(os.environ.get("R3L_ATTACK_SEED") or secrets.randbelow(2**32))
TEXTS = int(os.environ.get("R3L_ATTACK_TEXTS") or 100_000)
LENGTHS = (10, 100, 100, 100, 1_000, 1_000, 1_000, 10_000)  # characters; 10,000 is what a response of 4,096 tokens has
SLOW = 0.05  # seconds of processor time
FILES = 20_000


def seconds(read, text):
    """Processor time; the least of three where it is much, for others work here too."""
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        read(text)
        least = min(least, time.process_time() - began)
        if least < SLOW:
            break
    return least


def test_hostile_texts(capsys):
    errors, slow, slowest = Counter(), Counter(), (0.0, "", 0)
    began = time.monotonic()
    for number in range(TEXTS):
        text = hostile(SEED + number, random.Random(SEED + number).choice(LENGTHS))
        for name in READERS:
            try:
                took = seconds(reader(name), text)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                errors[f"{name}: {type(error).__name__} with seed {SEED + number}"] += 1
                continue
            slowest = max(slowest, (took, name, SEED + number))
            slow[f"{name}, seed {SEED + number}"] += took >= SLOW
    with capsys.disabled():
        print(
            f"\nattack: seed {SEED}, {TEXTS} texts, {len(READERS)} readers, {TEXTS * len(READERS)} readings in "
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
