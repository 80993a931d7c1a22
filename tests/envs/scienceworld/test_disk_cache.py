"""The disk cache: shared between processes, by task and actions, never used for another simulator."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.engine.cache import CachedEngine, DiskCache, ObservationCache, open_disk_cache
from r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine
from r3l.envs.scienceworld.task_sets.tasks import TASK_SETS

from r3l.core.environment import Observation


@pytest.fixture
def disk(tmp_path):
    return DiskCache(tmp_path / "cache.sqlite")


def nobody():
    raise AssertionError("no simulator is needed")


def test_a_second_process_needs_no_simulator(disk, tmp_path):
    task = TASK_SETS.tasks("nano/test")[0]
    bare = ScienceWorldEngine()
    first = CachedEngine(ObservationCache(lambda: bare, disk=disk))
    observations = [first.reset(task), *map(first.step, task.payload["solution"])]
    first.close()
    second = CachedEngine(ObservationCache(nobody, disk=DiskCache(tmp_path / "cache.sqlite")))
    assert [second.reset(task), *map(second.step, task.payload["solution"])] == observations
    assert observations[-1].success
    bare.close()


CHANGES = {
    "reward": "UPDATE observations SET observation = replace(observation, '0.0', '1.0')",
    "actions": "UPDATE observations SET actions = '[\"look in\"]' WHERE actions != '[]'",
    "no JSON": "UPDATE observations SET observation = 'x'",
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_altered_row_is_never_believed_and_is_replaced(disk, tmp_path, change, caplog):
    known = {(): Observation("a room"), ("look",): Observation("a mug", ("take",), 0.0)}
    disk.add("task", known)
    with sqlite3.connect(tmp_path / "cache.sqlite") as file:
        file.execute(CHANGES[change])
    again = DiskCache(tmp_path / "cache.sqlite")
    assert again.load("task").items() <= known.items()
    assert "damaged rows" in caplog.text
    again.add("task", known)  # as whoever plays it again does
    assert again.load("task") == known


KNOWN = {
    (): Observation("a room"),
    **{(f"look at {k}",): Observation(f"thing {k} " * 50) for k in range(200)},
}


def overwritten(path, begin, length):
    """Damage bytes in a closed database."""
    content = bytearray(path.read_bytes())
    content[begin : begin + length] = b"\xa5" * len(content[begin : begin + length])
    path.write_bytes(content)


@pytest.mark.parametrize("begin", [0, 4096])
def test_a_broken_file_is_set_aside_and_made_anew(tmp_path, begin, caplog):
    """Damage the header, or the root of the table."""
    path = tmp_path / "cache.sqlite"
    first = DiskCache(path)
    first.add("task", KNOWN)
    first._file.close()
    overwritten(path, begin, 4096 if begin else 100)
    again = DiskCache(path)
    assert again.load("task") == {}
    assert "cache.sqlite is broken" in caplog.text and (tmp_path / "cache.sqlite.damaged").is_file()
    again.add("task", KNOWN)
    assert DiskCache(path).load("task") == KNOWN


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
def test_what_is_kept_comes_back_as_it_was(tmp_path_factory, observations):
    disk = DiskCache(tmp_path_factory.mktemp("cache") / "cache.sqlite")
    disk.add("a task", observations)
    disk.add("a task", observations)  # another process had the same idea
    assert disk.load("a task") == observations
    assert disk.load("another task") == {}


def test_settings_of_the_engine_have_a_store_each(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    fresh: Callable[[ScienceWorldOptions], DiskCache] = open_disk_cache.__wrapped__
    fresh(ScienceWorldOptions())
    fresh(ScienceWorldOptions(reward="max_delta_released"))
    assert len(list((tmp_path / "scienceworld").glob("*.sqlite"))) == 2


def test_versions_with_other_fields_of_an_observation_have_a_file_each(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Later(Observation):
        inventory: str = ""

    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    fresh: Callable[[ScienceWorldOptions], DiskCache] = open_disk_cache.__wrapped__
    fresh(ScienceWorldOptions())
    monkeypatch.setattr("r3l.envs.scienceworld.engine.cache.Observation", Later)
    fresh(ScienceWorldOptions())
    assert len(list((tmp_path / "scienceworld").glob("*.sqlite"))) == 2
