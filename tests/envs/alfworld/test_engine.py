"""The engine compared with the original packages; snapshots, cache and errors."""

import hashlib
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from official_alfworld import OfficialEnvironment
from r3l.envs.alfworld.engine import translate
from r3l.envs.alfworld.engine.games import load_game
from r3l.envs.alfworld.engine.text_engine import AlfworldEngine
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House

from r3l.core.errors import DataError, EngineError

ROOT = Path(__file__).resolve().parents[3]
HOUSES = [
    generate(House("pick_heat_then_place_in_recep", seed=1)),
    generate(House("look_at_obj_in_light", seed=2)),
    generate(House("pick_two_obj_and_place", seed=3)),
]


@pytest.fixture
def engine():
    engine = AlfworldEngine()
    yield engine
    engine.close()


def play(engine, steps, seed=0):
    rng = random.Random(seed)
    actions, seen = [], []
    for _ in range(steps):
        now = seen[-1] if seen else engine._observation
        actions.append(rng.choice([*now.admissible, "fly away"]))
        seen.append(engine.step(actions[-1]))
    return actions, seen


def check_identical(engine, task):
    """The walkthrough, then random actions, some impossible: each observation equals the original
    packages'."""
    official = OfficialEnvironment()
    rng = random.Random(7)
    ours, theirs = engine.reset(task), official.reset(task)
    assert ours == theirs
    plan = [*task.payload["walkthrough"], *[""] * 6]
    for action in plan:
        action = action or rng.choice([*ours.admissible, " look ", "open", "TAKE"])
        ours, theirs = engine.step(action), official.step(action)
        assert ours == theirs, action
    official.close()


@pytest.mark.parametrize("task", HOUSES[:2], ids=lambda task: task.id)
def test_house_is_what_the_packages_show(engine, task):
    check_identical(engine, task)


@pytest.mark.parametrize("game", [0, *(pytest.param(game, marks=pytest.mark.slow) for game in (1, 2))])
def test_published_game_is_what_the_packages_show(engine, download, game):
    ids = sorted(
        str(path.parent.relative_to(download / "json_2.1.1")) for path in download.rglob("game.tw-pddl")
    )
    check_identical(engine, load_game(ids[game], download))


def test_restore_then_the_same_steps_give_the_same_observations(engine):
    engine.reset(HOUSES[0])
    _, before = play(engine, 12)
    mark = engine.snapshot()
    actions, after = play(engine, 10, 100)
    assert engine.restore(mark) == before[-1]
    assert [engine.step(action) for action in actions] == after
    assert engine.restore(mark) == before[-1]  # a mark serves more than once


def test_engines_in_threads_do_not_disturb_one_another():
    def run(task):
        player = AlfworldEngine()
        seen = [player.reset(task), *play(player, 25)[1]]
        player.close()
        return seen

    alone = [run(task) for task in HOUSES]
    with ThreadPoolExecutor(len(HOUSES)) as threads:
        assert list(threads.map(run, HOUSES)) == alone


def test_the_same_text_under_every_hash_seed(cache):
    """Texts and translation do not depend on hash order (the other process translates again)."""
    script = (
        "import hashlib\nfrom r3l.envs.alfworld.engine.text_engine import AlfworldEngine\n"
        "from r3l.envs.alfworld.task_sets.houses import generate\nfrom r3l.envs.alfworld.task_sets.rooms import House\n"
        "e = AlfworldEngine(); task = generate(House('pick_cool_then_place_in_recep', seed=5))\n"
        "out = [e.reset(task)] + [e.step(a) for a in task.payload['walkthrough']]\n"
        "print(hashlib.sha256(repr(out).encode()).hexdigest())"
    )
    task = generate(House("pick_cool_then_place_in_recep", seed=5))
    here = AlfworldEngine()
    seen = [here.reset(task), *map(here.step, task.payload["walkthrough"])]
    here.close()
    env = {**os.environ, "PYTHONHASHSEED": "1", "R3L_CACHE": str(cache / "seed1")}
    run = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == (f"{hashlib.sha256(repr(seen).encode()).hexdigest()}\n", "")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("(:goal", "(:gaol"),
        lambda text: text.replace("(:init", "(:init (atLocation nobody nowhere)"),
    ],
    ids=["cut", "no goal", "unknown object"],
)
def test_damaged_problem_names_the_task_and_leaves_nothing(damage, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    broken = replace(
        HOUSES[0],
        id="broken-1",
        payload={**HOUSES[0].payload, "pddl_problem": damage(HOUSES[0].payload["pddl_problem"])},
    )
    with pytest.raises(DataError, match="broken-1"):
        engine.reset(broken)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(EngineError):
        engine.step("look")
    assert "middle of a room" in engine.reset(HOUSES[0]).text  # the engine is still good


@pytest.mark.parametrize("key, value", [("grammar", "grammar :: nonsense"), ("goal_text", "")])
def test_damaged_grammar_names_the_task(engine, key, value):
    broken = replace(HOUSES[0], id="broken-2", payload={**HOUSES[0].payload, key: value})
    with pytest.raises(DataError, match="broken-2"):
        engine.reset(broken)


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000])
def test_a_damaged_cache_entry_is_made_again(engine, tmp_path, monkeypatch, content):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    first = engine.reset(HOUSES[0])
    (entry,) = tmp_path.rglob("*.bin")
    whole = entry.read_bytes()
    entry.write_bytes(content or whole[:-10])
    again = AlfworldEngine()
    assert again.reset(HOUSES[0]) == first
    assert entry.read_bytes() == whole
    again.close()


def test_an_unwritable_cache_says_what_to_do(engine, tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    monkeypatch.setenv("R3L_CACHE", str(blocker))
    with pytest.raises(EngineError, match="R3L_CACHE"):
        engine.reset(HOUSES[0])


def test_other_versions_are_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(translate, "EXPECTED_VERSIONS", {"alfworld": "9.9.9", "no-such-package": "1"})
    with pytest.raises(EngineError) as caught:
        AlfworldEngine()
    message = str(caught.value)
    assert f"alfworld is {translate.metadata.version('alfworld')}, expected 9.9.9" in message
    assert "no-such-package is not installed" in message
    assert "pip install alfworld==9.9.9 no-such-package==1" in message
