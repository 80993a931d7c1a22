"""What a model writes is read in time linear in its length, and no text raises an error."""

import random

import pytest
from readers import ATOMS, READERS, reader, repeated, seconds

SHORT, LONG = 2_500, 10_000  # characters
GROWTH = 10.0  # of the time, where the text is four times as long: 4 is linear, 16 is quadratic
INSTANT = 0.01  # seconds: no growth is measured below
PAIRS = 5


def texts(length):
    """Every atom many times, and one atom many times before or after another."""
    yield from repeated(length)
    rng = random.Random(0)
    for _ in range(PAIRS):
        one, other = rng.sample(ATOMS, 2)
        yield (one * length)[: length // 2] + (other * length)[: length // 2]
        yield ((one + other) * length)[:length]


@pytest.mark.parametrize("name", READERS)
def test_time_grows_with_the_length(name):
    read = reader(name)
    for short, long in zip(texts(SHORT), texts(LONG), strict=True):
        took = seconds(read, long, INSTANT)
        assert took < INSTANT or took < GROWTH * seconds(read, short, INSTANT), (name, long[:40], took)
