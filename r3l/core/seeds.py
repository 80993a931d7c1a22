"""Randomness by address: every draw's seed is a hash of where the draw happens.

An address is (run seed, purpose, step, task, member, turn ...). Nothing is streamed, so a resumed run
needs no generator state, and two methods that visit the same address see the same noise.
"""

from __future__ import annotations

import hashlib

import numpy as np

Address = tuple[str | int, ...]


def seed_of(*address: str | int) -> int:
    """A 64-bit seed for ``address``; parts are separated, so ("a", "bc") differs from ("ab", "c")."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in address)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*address: str | int) -> np.random.Generator:
    """A numpy generator (Philox, counter based) that belongs to ``address`` alone."""
    return _generator(seed_of(*address))


def uniforms(seed: int, count: int) -> np.ndarray:
    """The draws that ``count`` tokens are sampled with at the address whose :func:`seed_of` is ``seed``."""
    return _generator(seed).random(count)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))
