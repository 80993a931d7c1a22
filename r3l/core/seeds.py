"""Randomness by address: the seed of every draw is a hash of where the draw happens.

A seed address is (run seed, purpose, step, task, member, turn ...). There is no random stream, so a resumed
run needs no generator state, and two methods at the same address draw the same numbers (common random
numbers).
"""

from __future__ import annotations

import hashlib

import numpy as np

Address = tuple[str | int, ...]


def seed_of(*address: str | int) -> int:
    """The 64-bit seed of a seed address, a sequence of words and numbers such as ("rollout", 3, "task-7").

    The parts are separated, so ("a", "bc") and ("ab", "c") have different seeds.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in address)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*address: str | int) -> np.random.Generator:
    """A new numpy generator (Philox, counter based) for a seed address; equal addresses, equal draws."""
    return np.random.Generator(np.random.Philox(seed_of(*address)))


def uniforms(seed: int, count: int) -> np.ndarray:
    """``count`` uniform draws in [0, 1), float64, shape (count,).

    The tokens of one response are sampled by them. ``seed``: :func:`seed_of` the response's address.
    """
    return np.random.Generator(np.random.Philox(seed)).random(count)
