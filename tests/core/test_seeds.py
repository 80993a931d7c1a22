"""Seeds by address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.core.seeds import generator, seed_of
from r3l.core.task import tasks_of_step

parts = st.lists(st.one_of(st.integers(0, 99), st.text(max_size=4)), min_size=1, max_size=5)


@given(parts, parts)
def test_different_addresses_differ(a, b):
    same_address = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (seed_of(*a) == seed_of(*b)) == same_address or "\x1f" in "".join(map(str, a + b))


def test_generators_are_independent_of_use():
    first = generator("x", 1).random(3)
    generator("x", 2).random(100)
    assert (generator("x", 1).random(3) == first).all()


@given(st.integers(1, 9), st.integers(1, 20))
def test_every_pass_over_the_panel_visits_each_task_once(count, size):
    steps = -(-2 * size // count) + 1
    order = [task for n in range(1, steps + 1) for task in tasks_of_step(list(range(size)), 0, n, count)]
    assert sorted(order[:size]) == list(range(size)) == sorted(order[size : 2 * size])


@pytest.mark.parametrize("extra", [0, 1])
def test_no_tasks_are_refused(extra):
    with pytest.raises(ValueError, match="no tasks"):
        tasks_of_step([], 0, 1, 4, extra)
