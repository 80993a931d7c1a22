"""Environments of verifiers: scripted dialogues, restarts by replay, the library's rewards, training."""

import pytest
from program import run as program

import r3l
from r3l.config import environment_of
from r3l.config.user_code import user_code
from r3l.core.errors import DataError
from r3l.files.json_files import read_jsonl

STEPS = {"train.steps": 3, "train.tasks_per_step": 2, "method_settings.group_size": 4, "workers": 0}
SMALL = {"train": [0, 2], "test": [2, 4]}


def test_one_reply_is_scored_with_the_weights_of_the_taskset(write, begin):
    engine, opening = begin(write("chain", "verifiers", taskset={"id": "chain"}))
    assert opening == [("user", "Dan has 5 stamps. Dan buys 1. Dan eats 2. How many stamps are left?")]
    last = engine.step("\\boxed{4}")
    assert (last.done, last.success, last.reward) == (True, True, 2.0)
    assert engine.rewind(0).text == opening[0][1]
    assert engine.step("x" * 101).reward == -1.0
    engine.rewind(0)
    assert engine.step("x" * 101 + "\\boxed{4}").reward == 2.0 - 1.0


def test_lines_of_a_response_are_one_reply(write, begin):
    name = write("chain", "verifiers", taskset={"id": "chain"}, turns="segments")
    engine, _ = begin(name)
    seen = [engine.step(line) for line in ("5+1=6\n", "6-2=4\n", "\\boxed{4}")]
    assert [now.text for now in seen] == ["", "", ""] and [now.reward for now in seen] == [0.0, 0.0, 2.0]
    assert engine.rewind(1) == seen[0]
    assert not engine.step("\\boxed{3}").success
    dialogue = environment_of(name).dialogue("compact", 4)
    assert dialogue.stop == "line" and dialogue.following(seen[0], ["5+1=6\n"], seen[0]) is None
    assert dialogue.closing(0.0, False, 3, None) == "not correct. 3 lines."
    full = environment_of(name).dialogue("full", 1)
    assert full.closing(0.0, False, 1, None) == "The task was not completed. Reward: 0. Steps: 1."


@pytest.mark.parametrize(
    ("opened_by", "opening"),
    [
        ("prompt", [("system", "Be short."), ("user", "Say yes.")]),
        ("user", [("system", "Be short."), ("user", "Say yes.")]),
        ("messages", [("user", "Say so."), ("assistant", "so"), ("user", "Say yes.")]),
    ],
)
@pytest.mark.parametrize("style", ["full", "compact"])
def test_what_an_env_says_reaches_the_policy(write, begin, opened_by, opening, style):
    name = write("echo", "verifiers", taskset={"id": "echo", "opened_by": opened_by}, splits=SMALL)
    engine, messages = begin(name, style=style)
    assert messages == opening
    now = engine.step("yeah")
    assert (now.text, now.done) == ("That was 'yeah'. Again.", False)
    assert environment_of(name).dialogue(style, 4).following(now, ["yeah"], now).content == now.text
    last = engine.step("yes")
    assert (last.done, last.success, last.reward) == (True, False, 0.5)  # half, in the second turn
    assert engine.rewind(1) == now and engine.step("yes") == last


@pytest.mark.parametrize(("replies", "reward"), [(["no"] * 3, -0.25), (["enough"], -0.25), (["yes"], 1.0)])
def test_limits_and_stops_end_an_episode_that_is_scored(write, begin, replies, reward):
    engine, _ = begin(write("echo", "verifiers", taskset={"id": "echo"}, splits=SMALL))
    *earlier, last = [engine.step(reply) for reply in replies]
    assert not any(now.done for now in earlier) and (last.done, last.reward) == (True, reward)


def test_tasks_are_slices_and_their_hash_is_of_content_and_versions(write, tmp_path):
    name = write("chain", "verifiers", taskset={"id": "chain"})
    package = environment_of(name)
    tasks = package.tasks("test")
    assert len(tasks) == 20 and tasks[0].payload["number"] == 40 and tasks[0].id == "chain-000040"
    assert tasks[0].payload["versions"] == {"verifiers": "0.4.0"} and tasks[0].payload["before"] == []
    assert package.task_set_hash("test") == package.task_set_hash("test") != package.task_set_hash("train")
    assert set(user_code(name)["envs"]) == {"chain.yaml", "chain.py"}


def test_an_error_of_a_reward_is_counted(write, begin):
    engine, _ = begin(write("chain", "verifiers", taskset={"id": "chain"}))
    now = engine.step("crash")
    assert (now.done, now.success, now.reward) == (True, False, 0.0) and "out of ink" in now.failed
    engine.rewind(0)
    assert engine.step("\\boxed{4}").success


TASKSET = """
import verifiers.v1 as vf
import random
__all__ = ["Own"]
class Task(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    {task}
class Own(vf.Taskset[Task, vf.TasksetConfig]):
    def load(self):
        for k in range(4):
            yield Task(vf.TaskData(prompt="Hello.", {data}))
"""


@pytest.mark.parametrize(
    ("name", "task", "data", "words"),
    [
        ("box", "NEEDS_CONTAINER = True", "", "its tasks run in a container"),
        ("files", "@vf.reward\n    async def tidy(self, runtime): return 1.0", "", "tidy needs a runtime"),
        (
            "spy",
            "@vf.intercept\n    async def hide(self, request: vf.Request): pass",
            "",
            "it rewrites messages",
        ),
    ],
)
def test_what_cannot_be_played_is_refused(write, tmp_path, monkeypatch, capsys, name, task, data, words):
    (tmp_path / "mine" / f"own_{name}.py").write_text(TASKSET.format(task=task, data=data))
    write(name, "verifiers", taskset={"id": f"own_{name}"}, splits=SMALL)
    code, _, err = program(monkeypatch, capsys, "train", "--env", name, "--method", "grpo")
    assert (
        code == 2
        and err.startswith(f"error: {name}.yaml, key arguments.taskset")
        and words in " ".join(err.split())
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"taskset": {"id": "no-such"}},
            "key arguments.taskset is {'id': 'no-such'}: it cannot be loaded: ModuleNotFound",
        ),
        (
            {"taskset": {"id": "echo", "opened_buy": "user"}},
            "its Env refuses taskset.opened_buy: extra inputs",
        ),
        (
            {"taskset": {"id": "echo"}},
            "key arguments.splits is {'test': [40, 60], 'train': [0, 40]}: the taskset has 4",
        ),
        ({}, "arguments.taskset is"),
    ],
)
def test_wrong_arguments_are_one_paragraph(write, monkeypatch, capsys, arguments, words):
    write("wrong", "verifiers", **arguments)
    code, _, err = program(monkeypatch, capsys, "train", "--env", "wrong", "--method", "grpo")
    assert (
        code == 2 and err.startswith("error: wrong.yaml, key arguments.") and words in " ".join(err.split())
    )


def test_a_taskset_that_draws_anew_is_refused(write, begin, tmp_path):
    text = TASKSET.format(task="pass", data="name=str(random.random())")
    (tmp_path / "mine" / "own_random.py").write_text(text)
    package = environment_of(write("dice", "verifiers", taskset={"id": "own_random"}, splits=SMALL))
    task = package.tasks("train")[0]
    from r3l.envs.adapters import verifiers

    verifiers._load.cache_clear()  # as another process has it
    with pytest.raises(DataError, match="the taskset is not deterministic"):
        package.create({}).reset(task)


@pytest.mark.parametrize(("method", "workers"), [("grpo", 1), ("r3l", 0)])
def test_three_steps_train(write, tmp_path, method, workers):
    """Sums, one line per turn, with a model that was trained on sums; in the main process and in a worker."""
    name = write("chain", "verifiers", taskset={"id": "chain"}, turns="segments", max_turns=6)
    run_dir = r3l.train(name, method, settings=STEPS | {"workers": workers}, run_dir=tmp_path / "run")
    steps = read_jsonl(run_dir / "metrics.jsonl")
    assert len(steps) == 3 and not any("env_failed" in step for step in steps)
    assert any(
        step["train/success"] > 0 and step["rows/trained"] > 0 and step["grad_norm"] > 0 for step in steps
    )
    if method == "r3l":
        assert sum(step.get("retry/count", 0) for step in steps) > 0
