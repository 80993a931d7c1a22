from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fast_downward import interface
from r3l.envs.alfworld.engine import text_engine
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House

DOWNWARD = Path(interface.DOWNWARD_LIB_PATH)


def test_each_engine_holds_a_problem_of_its_own_and_nothing_is_left_on_disk() -> None:
    house = generate(House("pick_and_place_simple", 0))
    first, second, third = (text_engine.AlfworldEngine() for _ in range(3))
    first.reset(house)
    second.reset(house)
    handles = first._lib._handle, second._lib._handle
    assert handles[0] != handles[1] and Path(interface.DOWNWARD_LIB_PATH) == DOWNWARD
    second.close()
    third.reset(house)
    assert third._lib._handle == handles[1]  # closed engines leave theirs to the next one
    first.close()
    third.close()
    if sys.platform == "linux":
        mapped = [
            line for line in Path("/proc/self/maps").read_text().splitlines() if "libdownward.so" in line
        ]
        assert mapped and all("(deleted)" in line for line in mapped)


def test_engines_opened_by_many_threads_at_once_leave_the_library_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_engine, "_IDLE", [])
    with ThreadPoolExecutor(16) as threads:
        handles = list(threads.map(lambda _: text_engine.take_library()._handle, range(64)))
    assert len(set(handles)) == 64 and Path(interface.DOWNWARD_LIB_PATH) == DOWNWARD
