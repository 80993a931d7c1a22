"""Environments with reset and step, of gymnasium and others: played by hand, restarted by replay, trained."""

import itertools
import sys

import numpy as np
import pytest
from gymnasium import spaces
from program import run as program
from r3l.envs.adapters.gymnasium import GameArguments, TextGame
from r3l.envs.adapters.number_spaces import read_numbers

import r3l
from r3l.config import environment_of
from r3l.config.user_code import user_code
from r3l.core.environment import StopReason
from r3l.core.errors import ConfigError, ContractError, EngineError
from r3l.core.task import Task
from r3l.files.json_files import read_jsonl

LAKE = {"make": {"id": "FrozenLake-v1", "render_mode": "ansi", "is_slippery": False}}
NAMES = ["left", "down", "right", "up"]
STEPS = {"train.steps": 3, "train.tasks_per_step": 2, "method_settings.group_size": 4, "workers": 0}


@pytest.fixture
def lake(write):
    return write("lake", "gymnasium", actions=NAMES, rules="Reach G.", **LAKE)


def test_frozen_lake_is_crossed_in_six_steps(lake, begin):
    engine, opening = begin(lake)
    assert opening == [("user", "[S]FFF\nFHFH\nFFFH\nHFFG")]
    seen = [engine.step(action) for action in ("right", "right", "down", "down", "down", "right")]
    assert [now.text for now in seen[:3]] == [
        "(Right)\nS[F]FF\nFHFH\nFFFH\nHFFG",
        "(Right)\nSF[F]F\nFHFH\nFFFH\nHFFG",
        "(Down)\nSFFF\nFH[F]H\nFFFH\nHFFG",
    ]
    assert [(now.done, now.success, now.reward) for now in seen] == [(False, False, 0.0)] * 5 + [
        (True, True, 1.0)
    ]
    assert engine.rewind(3) == seen[2]
    fallen = engine.step("right")
    assert (fallen.text, fallen.done, fallen.success, fallen.reward) == (
        "(Right)\nSFFF\nFHF[H]\nFFFH\nHFFG",
        True,
        False,
        0,
    )


def test_on_ice_a_task_is_its_seed(write, begin):
    make = LAKE["make"] | {"is_slippery": True}
    name = write("ice", "gymnasium", actions=NAMES, **LAKE | {"make": make})

    def walk(index):
        engine, _ = begin(name, index)
        return engine, [engine.step(action) for action in ("down", "left", "down", "left")]

    engine, seen = walk(7)
    assert walk(7)[1] == seen and engine.rewind(2) == seen[1]
    assert len({tuple(now.text for now in walk(index)[1]) for index in range(6)}) > 1


def test_actions_stand_in_tags_where_they_have_names(lake, begin):
    _, full = begin(lake, style="full")
    assert full[0] == (
        "system",
        "Reach G.\nThe actions are: left, down, right, up.\n"
        "Answer with <think>...</think> and one <action>...</action>.",
    )
    engine, _ = begin(lake)
    dialogue, now = environment_of(lake).dialogue("full", 4), engine.step("down")
    read = {text: dialogue.parse(text, now, []) for text in ("left", "<think></think><action>left</action>")}
    assert [(parsed.action, parsed.error) for parsed in read.values()] == [
        (None, StopReason.FORMAT),
        ("left", None),
    ]
    assert dialogue.parse("<think></think><action>jump</action>", now, []).error is StopReason.INADMISSIBLE
    assert dialogue.parse("<think></think><action>left</action>", now, ["left"] * 5).action == "left"
    assert dialogue.closing(0.0, False, 4, None).startswith("The task was not completed.")


def echo(kind, **arguments):
    return {"make": {"id": "games:Echo-v0", "space": [kind, arguments]}}


def test_the_names_of_discrete_actions_begin_at_its_start(write, begin):
    engine, _ = begin(
        write("dial", "gymnasium", actions=["left", "stay", "right"], **echo("Discrete", n=3, start=-1))
    )
    assert [engine.step(action).text for action in ("left", "stay", "right")] == ["-1", "0", "1"]


def test_a_game_that_cannot_be_closed_is_warned_of_and_played(write):
    """It is made and closed once to read its actions, before anything is played."""
    make = {"id": "games:Unclosable-v0", "space": ["MultiBinary", {"n": 2}]}
    package = environment_of(write("dial", "gymnasium", make=make))
    words = r"'dial': 1 of 1 engines did not close \(\w+\.close\(\) raised RuntimeError: the window is gone\)"
    with pytest.warns(UserWarning, match=words):
        assert package.numbers()
    engine = package.create({})
    engine.reset(package.tasks("train")[0])
    assert engine.step("1 0").text == "[1 0]"


@pytest.mark.parametrize(
    ("space", "good", "shown", "bad", "needs"),
    [
        (
            echo("Box", low=-1.0, high=1.0, shape=[2]),
            ["0.5 -1", "[0.5, -1.0]", "1e-1,1"],
            ["[ 0.5 -1. ]", "[ 0.5 -1. ]", "[0.1 1. ]"],
            ["0.5", "0.5 -2", "nan 0", "left up", "", "1 1 1"],
            "2 numbers from -1 to 1",
        ),
        (
            echo("Box", low=0, high=255, shape=[1, 2], dtype="uint8"),
            ["3 255"],
            ["[[  3 255]]"],
            ["3 256", "3 1.5", "3 -1", "3 1e300"],
            "2 whole numbers from 0 to 255",
        ),
        (
            echo("MultiBinary", n=3),
            ["1 0 1"],
            ["[1 0 1]"],
            ["1 0", "1 0 2", "0.5 0 0"],
            "3 whole numbers from 0 to 1",
        ),
        (
            echo("MultiDiscrete", nvec=[3, 2], start=[-1, 5]),
            ["-1 6"],
            ["[-1  6]"],
            ["2 6", "0 4"],
            "2 whole numbers: -1 to 1, 5 to 6",
        ),
    ],
)
def test_an_action_of_numbers_stands_in_tags(write, begin, space, good, shown, bad, needs):
    name = write("echo", "gymnasium", rules="Move.", **space)
    engine, opening = begin(name, style="full")
    assert opening[0] == (
        "system",
        f"Move.\nAn action is {needs}, with blanks between them.\n"
        "Answer with <think>...</think> and one <action>...</action>.",
    )
    now = None
    assert [(now := engine.step(action)).text for action in good] == shown and not now.refused
    for action in bad:
        now = engine.step(action)
        assert (
            now.refused
            and now.text == f"This is no action. An action is {needs}."
            and not (now.done or now.failed)
        )
    assert engine.rewind(1).text == shown[0]
    dialogue = environment_of(name).dialogue("full", 4)
    read = dialogue.parse(f"<think></think><action>{good[0]}</action>", now, [])
    assert read.action == good[0] and dialogue.parse(good[0], now, []).error is StopReason.FORMAT


def test_tasks_are_numbers_and_their_hash_is_of_what_is_shown_too(write):
    one, other = (
        write("one", "gymnasium", actions=NAMES, **LAKE),
        write("other", "gymnasium", actions=NAMES[::-1], **LAKE),
    )
    tasks = environment_of(one).tasks("test")
    assert [task.payload["number"] for task in tasks] == list(range(40, 60)) and tasks[0].id == "one-000040"
    hashes = {
        environment_of(name).task_set_hash(split) for name in (one, other) for split in ("train", "test")
    }
    assert len(hashes) == 4


def test_an_error_of_the_game_ends_the_episode_and_is_counted(write, begin, tmp_path, monkeypatch):
    name = write("stamps", "gymnasium", make={"id": "games:Stamps-v0"})
    engine, _ = begin(name)
    task = environment_of(name).tasks("train")[0]
    now = engine.step("crash")
    assert (now.done, now.success, now.reward, now.failed) == (True, False, 0.0, "RuntimeError: out of ink")
    import games

    # Code that would end the process ends the episode; without a first observation there is none to play.
    with monkeypatch.context() as patched:
        patched.setattr(games.Stamps, "step", lambda self, action: sys.exit(3))
        assert engine.step("crash").failed == "SystemExit: 3"
        patched.setattr(games.Stamps, "reset", lambda self, **options: [][0])
        message = "reset of task .* raised 'IndexError: list index out of range'; a game must begin"
        with pytest.raises(ContractError, match=message):
            engine.engine.reset(task)

    def train(where):
        settings = STEPS | {"train.steps": 1, "workers": 0}
        return r3l.train(name, "grpo", settings=settings, run_dir=tmp_path / where)

    # Some of eight episodes fail: they are counted, are in no group, and are no reward of 0.
    steps = itertools.count()
    works = games.Stamps.step

    def shaky(self, action):
        return 1 / 0 if next(steps) % 4 == 0 else works(self, action)

    monkeypatch.setattr(games.Stamps, "step", shaky)
    with pytest.warns(UserWarning, match="ended in its environment's own error: ZeroDivisionError"):
        (step,) = read_jsonl(train("shaky") / "metrics.jsonl")
    assert step["rollouts"] == 8 and 1 <= step["env_failed"] == step["stop/env_failed"] <= 4
    others = 8 - step["env_failed"]
    assert step["train/reward"] == step["train/success"] == step["stop/success"] / others > 0

    # With more than half of a step there is nothing to learn from.
    monkeypatch.setattr(games.Stamps, "step", lambda self, action: 1 / 0)
    with pytest.warns(UserWarning), pytest.raises(EngineError, match="8 of 8 rollouts .* ZeroDivisionError"):
        train("broken")


def test_the_module_of_a_game_is_part_of_the_configuration(write):
    name = write("stamps", "gymnasium", make={"id": "games:Stamps-v0"})
    assert set(user_code(name)["envs"]) == {"stamps.yaml", "games.py"}


def test_three_steps_train(write, tmp_path):
    """Sums, one per response, with a model that was trained on sums."""
    name = write("stamps", "gymnasium", make={"id": "games:Stamps-v0"}, max_turns=2)
    steps = read_jsonl(r3l.train(name, "r3l", settings=STEPS, run_dir=tmp_path / "run") / "metrics.jsonl")
    assert len(steps) == 3 and all(1 <= step["train/turns"] <= 2 for step in steps)
    assert any(
        0 < step["train/success"] < 1 and step["rows/trained"] > 0 and step["grad_norm"] > 0 for step in steps
    )
    assert not any("env_failed" in step or "train/success/" in step for step in steps)


def test_an_object_of_another_library_needs_one_method(write, begin):
    name = write("down", "games:Down", solved_at=0)
    engine, opening = begin(name, index=1)
    assert opening == [("user", "2")]
    first, last = engine.step("1"), engine.step("0")
    assert not first.done and (last.text, last.reward, last.success) == ("0", 0.0, True)
    assert engine.rewind(1) == first
    assert (lost := engine.step("7")).reward == lost.invalid_action_reward == -1.0 and not lost.success


def test_a_game_without_text_is_one_paragraph(write, monkeypatch, capsys):
    write("grid", "games:Silent")
    code, _, err = program(
        monkeypatch, capsys, "train", "--env", "grid", "--method", "grpo", "--set", "workers=0"
    )
    words = "grid.yaml: the observation is of type list and not a text, and the game has no render()"
    assert code == 2 and words in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"make": {"id": "NoSuchLake-v0"}},
            "key arguments.make is {'id': 'NoSuchLake-v0'}: gymnasium cannot make it",
        ),
        (
            {"actions": NAMES[:3]},
            "key arguments.actions is ['left', 'down', 'right']: FrozenLake-v1 has 4 actions",
        ),
        ({"splits": {"train": [0, 9], "test": [5, 12]}}, "test and train share task 5"),
        (
            echo("MultiBinary", n=4),
            "key arguments.actions is ['left', 'down', 'right', 'up']: games:Echo-v0 has actions of numbers; "
            "names are for Discrete ones, so leave them out",
        ),
        (
            echo("Tuple", spaces=[]) | {"actions": []},
            "gymnasium's Tuple spaces cannot be played by text",
        ),
        (
            {"colour": "red"},
            "key arguments.colour is 'red': extra inputs are not permitted; known keys: splits, domain",
        ),
    ],
)
def test_wrong_arguments_are_one_paragraph(write, monkeypatch, capsys, arguments, words):
    write("lake", "gymnasium", **{**LAKE, "actions": NAMES, **arguments})
    code, _, err = program(
        monkeypatch, capsys, "train", "--env", "lake", "--method", "grpo", "--set", "workers=0"
    )
    assert code == 2 and err.startswith("error: lake.yaml") and words in " ".join(err.split())


@pytest.mark.parametrize("action", ["inf 0", "-inf 0", "1e39 0", "nan 0"])
def test_a_number_that_is_infinite_is_no_action(action):
    """A Box without ends has infinity as an element, and 1e39 is infinite in float32."""
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert read_numbers(action, space) is None
    assert read_numbers("1e38 0", space) is not None


class RenderRaises:
    """gymnasium.Env has a render() that raises unless a game overrides it."""

    def reset(self, seed):
        return b"bytes", {}

    def render(self):
        raise NotImplementedError


def test_a_render_that_raises_is_one_paragraph():
    task = Task("t", "lake", "test", payload={"number": 0})
    words = r"lake.yaml: the observation is of type bytes and not a text, and render\(\) raises NotImpl"
    with pytest.raises(ConfigError, match=words):
        TextGame("lake", RenderRaises(), GameArguments()).reset(task)
