from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fast_downward import interface
from r3l.envs.alfworld.engine import text_engine

DOWNWARD = Path(interface.DOWNWARD_LIB_PATH)


def test_each_engine_holds_a_problem_of_its_own_and_nothing_is_left_on_disk() -> None:
    first, second = text_engine.AlfworldEngine(), text_engine.AlfworldEngine()
    handles = first._library()._handle, second._library()._handle
    assert handles[0] != handles[1] and Path(interface.DOWNWARD_LIB_PATH) == DOWNWARD
    second.close()
    third = text_engine.AlfworldEngine()
    assert third._library()._handle == handles[1]  # closed engines leave theirs to the next one
    first.close()
    third.close()
    if sys.platform == "linux":
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "libdownward.so" in line]
        assert mapped and all("(deleted)" in line for line in mapped)


def test_engines_opened_by_many_threads_at_once_leave_the_library_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_engine, "_IDLE", [])
    with ThreadPoolExecutor(16) as threads:
        handles = list(threads.map(lambda _: text_engine.AlfworldEngine()._library()._handle, range(64)))
    assert len(set(handles)) == 64 and Path(interface.DOWNWARD_LIB_PATH) == DOWNWARD
