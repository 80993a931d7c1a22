"""What the simulator said is kept between processes, by task and actions, and never taken from another simulator."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.core.environment import Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.envs.scienceworld import engine as engines
from r3l.envs.scienceworld import task_sets
from r3l.envs.scienceworld.engine import ScienceWorldEngine
from r3l.envs.scienceworld.memory import Memory, RememberingEngine
from r3l.envs.scienceworld.options import ScienceWorldOptions
from r3l.envs.scienceworld.store import Store, open_store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "said.sqlite")


def nobody():
    raise AssertionError("no simulator is needed")


def test_a_second_process_needs_no_simulator(store, tmp_path):
    task = task_sets.tasks("nano/test")[0]
    bare = ScienceWorldEngine()
    first = RememberingEngine(Memory(lambda: bare, store=store))
    said = [first.reset(task), *map(first.step, task.payload["solution"])]
    first.close()
    second = RememberingEngine(Memory(nobody, store=Store(tmp_path / "said.sqlite")))
    assert [second.reset(task), *map(second.step, task.payload["solution"])] == said
    assert said[-1].success
    bare.close()


def test_a_replay_that_differs_from_what_was_kept_is_an_error(store, tmp_path):
    task = task_sets.tasks("nano/test")[0]
    bare = ScienceWorldEngine()
    engine = RememberingEngine(Memory(lambda: bare, store=store))
    engine.reset(task)
    engine.step("look around")
    engine.close()
    with sqlite3.connect(tmp_path / "said.sqlite") as file:
        file.execute("""UPDATE said SET observation = '["another world", [], 0.0, false, false, 0.0]'""")
    again = RememberingEngine(Memory(lambda: bare, store=Store(tmp_path / "said.sqlite")))
    again.reset(task)
    again.step("look around")
    with pytest.raises(ReplayMismatch, match="another world"):
        again.step("inventory")  # new, so the simulator comes there by replay
    bare.close()


@given(
    st.dictionaries(
        st.lists(st.text(max_size=5), max_size=3).map(tuple),
        st.builds(
            Observation,
            st.text(max_size=20),
            st.lists(st.text(max_size=5), max_size=2).map(tuple),
            st.floats(0, 1),
            st.booleans(),
            st.booleans(),
            st.floats(-1, 1),
        ),
        max_size=5,
    )
)
def test_what_is_kept_comes_back_as_it_was(tmp_path_factory, said):
    store = Store(tmp_path_factory.mktemp("store") / "said.sqlite")
    store.add("a task", said)
    store.add("a task", said)  # another process had the same idea
    assert store.load("a task") == said
    assert store.load("another task") == {}


def test_many_writers_lose_nothing(tmp_path):
    def write(name: int) -> None:
        own = Store(tmp_path / "said.sqlite")
        for k in range(20):
            own.add("task", {(str(name), str(k)): Observation(f"{name} {k}")})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert len(Store(tmp_path / "said.sqlite").load("task")) == 80


def test_settings_of_the_engine_have_a_store_each(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    fresh: Callable[[ScienceWorldOptions], Store] = open_store.__wrapped__
    fresh(ScienceWorldOptions())
    fresh(ScienceWorldOptions(reward="max_delta_released"))
    assert len(list((tmp_path / "scienceworld").glob("*.sqlite"))) == 2


def test_a_store_that_cannot_be_used_says_what_to_do(tmp_path, monkeypatch):
    broken = tmp_path / "said.sqlite"
    broken.write_text("not a database, but long enough to look like one" * 30)
    with pytest.raises(EngineError, match=r"said.sqlite cannot be used .* delete it, or set R3L_CACHE"):
        Store(broken)
    monkeypatch.setattr(engines, "_memories", {})
    monkeypatch.setattr(engines, "open_store", lambda options: Store(tmp_path / "said.sqlite" / "below"))
    with pytest.raises(EngineError, match="R3L_CACHE"):
        engines.create(ScienceWorldOptions())
