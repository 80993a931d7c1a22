"""``r3l evaluate ENV --protocol``: what is played, what the result says of it, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from chat_server import completion, serving
from program import run
from r3l.envs.math.text.dialogue import BOXED
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.registry import find_environment
from scripted import play_by

from r3l.config import environment_of, resolve
from r3l.config.protocol import load_protocol, protocols
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.evaluation.protocols import select_tasks
from r3l.files import paths
from r3l.files.json_files import read_json, read_jsonl
from r3l.report.protocol_scores import interval_over_tasks, lines, passes

(TASK,) = find_environment("alfworld").tasks("one/train")
LINES = ["think: look around", "fly", *TASK.payload["walkthrough"]]
THOUGHT = "<think>x</think><answer>{}</answer>"
REACT = ["evaluate", "alfworld", "--protocol", "react"]


pytestmark = pytest.mark.usefixtures("no_workers")


def answer(request, before):
    """The next of LINES, and a second line that is not read."""
    return completion(LINES[len(request["messages"]) // 2] + "\nand more")


def test_words_do_not_decide_the_digest_and_rules_and_examples_do(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "CONFIGS", shutil.copytree(paths.CONFIGS, tmp_path / "configs"))
    react = tmp_path / "configs/protocols/alfworld/react.yaml"
    rules, examples = react.read_text(), react.with_suffix(".txt").read_text()

    def digest(text=rules, shown=examples):
        react.write_text(text)
        react.with_suffix(".txt").write_text(shown)
        load_protocol.cache_clear()
        return load_protocol("alfworld", "react").sha256

    assert (
        digest(rules.replace('label: "ReAct"', "label: Words # more").replace("sent as", "given as"))
        == digest()
    )
    changed = [digest(rules.replace("max_turns: 49", "max_turns: 50")), digest(shown=examples + "> look\n")]
    assert len({digest(), *changed}) == 3
    load_protocol.cache_clear()


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (None, "react.txt, which is missing"),
        (lambda path: os.mkfifo(path), "react.txt, which is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "react.txt, which is no regular file"),
        (lambda path: path.write_bytes(b"=== a\ncaf\xe9"), r"react.txt, which is not UTF-8 \(.*, byte 9\)"),
    ],
)
def test_examples_are_read_from_a_text_file_alone(monkeypatch, tmp_path, examples, message):
    monkeypatch.setattr(paths, "CONFIGS", shutil.copytree(paths.CONFIGS, tmp_path / "configs"))
    path = tmp_path / "configs/protocols/alfworld/react.txt"
    path.unlink()
    if examples:
        examples(path)
    load_protocol.cache_clear()
    with pytest.raises(ConfigError, match=f"react.yaml: key 'examples' names .*{message}"):
        load_protocol("alfworld", "react")


def test_the_protocol_and_every_deviation_stand_in_the_result(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    with serving(answer) as (url, seen):
        code, out, err = run(
            monkeypatch, capsys, *REACT, "--server", url, "--split", "one/train", "-n", 1, "--repeat", 2
        )
    assert code == 0, err
    (path,) = Path("results/smol/alfworld").glob("tiny@*/*/seed0/evaluation.json")
    row = "zero_shot@protocol=react,env_settings.test_task_set=one-train,evaluation.tasks=1,"
    assert path.parts[4] == row + "evaluation.episodes_per_task=2,engine=server"
    found, sha256 = read_json(path)["protocol"], load_protocol("alfworld", "react").sha256
    assert (found["name"], found["label"], found["sha256"]) == ("react", "ReAct", sha256)
    assert found["deviations"] == [
        "env_settings.test_task_set: one/train (protocol: valid_unseen)",
        "evaluation.episodes_per_task: 2 (protocol: 1)",
        "evaluation.tasks: 1 (protocol: all)",
    ]
    assert len(found["differs"]) == 4
    assert f"protocol react (ReAct; sha256 {sha256[:12]}), success: the engine's own goal test" in out
    assert (
        "deviations from it: env_settings.test_task_set: one/train (protocol: valid_unseen); evaluation"
        in out
    )
    assert "success 1.000" in out and "at most 49 turns, temperature 0" in out
    assert (
        "each 2 times; by attempt: 1.000, 1.000" in out
        and "at temperature 0 all attempts at a task are alike" in out
    )
    # to fly; a thought is none
    assert f"2 of {2 * len(LINES)} turns had an impossible action, after which the episode went on" in out
    assert (
        "published by this protocol, from which this run deviates: GPT-3 (davinci-002) success 0.784 (n 134; "
        in out
    )
    assert (
        "not comparable: Qwen2.5-1.5B-Instruct success 0.72 (n 140; the paper's Table 1): trained by GRPO"
        in out
    )
    for row in read_jsonl(path.parent / "episodes.jsonl"):
        assert (row["task"], row["success"], row["turns"]) == (TASK.id, True, len(LINES))
    last = max((request["messages"] for request in seen), key=len)
    assert [m["content"] for m in last[1::2]] == [f"{line}\n" for line in LINES[:-1]]
    assert [m["content"] for m in last[2:5:2]] == ["OK.\n>", "Nothing happens.\n>"]
    assert {request["temperature"] for request in seen} == {0} and {r["max_tokens"] for r in seen} == {100}


def test_without_options_a_model_plays_the_papers_protocol(monkeypatch, capsys, tmp_path):
    """Of the environments whose data lie here; one that this project taught plays tier nano, as it was made
    to."""
    monkeypatch.chdir(tmp_path)
    with serving(lambda request, before: completion("<answer>1</answer>"), models=("any/model",)) as (
        url,
        seen,
    ):
        code, out, err = run(monkeypatch, capsys, "evaluate", "gsm8k", "--server", url, "-n", 2)
        assert (
            code == 0
            and "protocol r3l (R3L's release; sha256" in out
            and "evaluation.tasks: 2 (protocol: all)" in out
        )
        assert {request["temperature"] for request in seen} == {0} and {r["max_tokens"] for r in seen} == {
            4096
        }
        code, _, err = run(monkeypatch, capsys, "evaluate", "webshop", "--server", url, "-n", 2)
        assert (
            code == 2 and "R3L_WEBSHOP is not set" in err and len(seen) == 2
        )  # not the houses and shops of tier nano
    with serving(answer, models=("alfworld-1.5m-hints",)) as (url, seen):
        code, out, err = run(
            monkeypatch, capsys, *REACT[:2], "--server", url, "--split", "one/train", "--json"
        )
        assert code == 0 and json.loads(out)["tier"] == "nano" and "protocol" not in json.loads(out)


@pytest.mark.parametrize(
    ("asked", "names"),
    [("all", ["qwen", "r3l", "r3l_attempts", "r3l_boxed"]), ("r3l_boxed,qwen", ["r3l_boxed", "qwen"])],
)
def test_one_model_by_several_protocols(monkeypatch, capsys, tmp_path, asked, names):
    """A table and a picture; the same answer is right by every rule but that which wants a thought."""
    monkeypatch.chdir(tmp_path)
    with serving(lambda request, before: completion("<answer>18</answer>")) as (url, seen):
        arguments = ["evaluate", "gsm8k", "--server", url, "-n", 1, "--set", "evaluation.draw=first"]
        code, _, err = run(monkeypatch, capsys, *arguments, "--protocol", "qwen,nobody")
        assert code == 2 and "nobody" in err and not seen
        code, out, err = run(monkeypatch, capsys, *arguments, "--protocol", asked)
    assert code == 0, err
    rows = [
        [cell.strip() for cell in line.split("|")[1:3]] for line in out.splitlines() if line.startswith("| ")
    ][1:]
    assert rows == [[name, "gsm8k/test"] for name in names]
    (picture,) = Path("results/smol/gsm8k").glob("tiny@*/protocols.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in out


def test_an_interval_is_over_tasks_however_often_each_was_tried():
    rows = [{"task": t, "member": m, "success": t == "a" and m == 0} for t in "abc" for m in range(2)]
    found = interval_over_tasks(
        rows
    )  # means 0.5, 0 and 0: standard error 1/6, t of two degrees of freedom 4.30265
    assert (found.mean, passes(rows)) == (pytest.approx(1 / 6), [pytest.approx(1 / 3), 0.0])
    assert (found.low, found.high) == pytest.approx((1 / 6 - 4.30265 / 6, 1 / 6 + 4.30265 / 6), abs=1e-4)
    assert lines({}, rows) == ["standard error 0.167 over 3 tasks, each 2 times; by attempt: 0.333, 0.000"]
    nothing = [{**row, "success": False} for row in rows]  # Wilson's of 0 in 3: nothing seen is no certainty
    none = interval_over_tasks(nothing)
    assert (none.mean, none.low, none.high) == pytest.approx((0, 0, 0.5615), abs=1e-4)
    once = interval_over_tasks(rows[::2])  # Wilson's of 1 in 3
    assert (once.mean, once.low, once.high) == pytest.approx((1 / 3, 0.0615, 0.7923), abs=1e-4)


def test_a_fresh_prompt_is_all_that_the_server_is_sent(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    actions = ["fly", *TASK.payload["walkthrough"]]
    with serving(lambda request, before: completion(f"<action>{actions[before]}</action>")) as (url, seen):
        protocol = ["--protocol", "verl_agent", "--split", "one/train", "-n", 1]
        code, out, err = run(monkeypatch, capsys, *REACT[:2], *protocol, "--server", url)
    assert code == 0 and "success 1.000" in out, err
    assert [len(request["messages"]) for request in seen] == [1] * len(actions)
    last = seen[-1]["messages"][0]["content"]
    assert "Action 1: 'fly'" not in last and f"Action {len(actions) - 1}: '{actions[-2]}'" in last


def test_a_run_of_another_version_of_the_protocol_is_not_mixed_with_this_one(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    with serving(answer) as (url, _):
        arguments = [*REACT, "--server", url, "--split", "one/train", "--out", "here"]
        assert run(monkeypatch, capsys, *arguments)[0] == 0
        manifest = read_json(Path("here/manifest.json"))
        assert manifest["run"]["protocol"] == load_protocol("alfworld", "react").identity
        manifest["run"]["protocol"] = "react-000000000000"
        Path("here/manifest.json").write_text(json.dumps(manifest))
        code, _, err = run(monkeypatch, capsys, "evaluate", "./here", "--server", url)
    assert code == 2 and "changed after the run with react-000000000000 started" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*REACT[:3], "reakt"], "environment 'alfworld' has no protocol 'reakt'"),
        (["evaluate", "countdown", "--protocol", "react"], "environment 'countdown' has no protocols"),
        ([*REACT, "-n", 2, "--set", "evaluation.tasks=3"], "evaluation.tasks is set more than once"),
        (["evaluate", "./run", "--protocol", "react"], "--protocol cannot be combined with a run"),
    ],
)
def test_what_is_refused(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    with serving(answer) as (url, seen):
        code, out, err = run(monkeypatch, capsys, *arguments, "--server", url)
    assert code == 2 and message in err and out == "" and not list(tmp_path.iterdir()) and not seen


ENVS = (
    "alfworld",
    "webshop",
    "scienceworld",
    "gsm8k",
    "aime24",
    "knights_knaves",
    "binary_matrix",
    "shortest_path",
)
EVERY = [(env, name) for env in ENVS for name in protocols(env)]


@pytest.mark.parametrize(("env", "name"), EVERY)
def test_a_protocol_leaves_no_rule_to_a_default(env, name):
    values = load_protocol(env, name).values
    unused = {"list_places"} | (
        {"response_format"} if values.get("env_settings.options.turn") == "line" else set()
    )
    options = {*environment_of(env).options.model_fields} - unused
    assert {f"env_settings.options.{key}" for key in options} <= set(values)
    assert resolve("smol", env, f"zero_shot@protocol={name}", 0).protocol.startswith(f"{name}-")


def test_what_a_question_set_is_asked_and_given_a_point_for():
    """By Qwen2.5-Math's evaluation: the request as the system message; the last number, where there is no
    box."""
    task = Task("1", "math", "test", "", {"problem": "What is 3 + 4?", "answer": "7"})
    for said, right in (("So it is 7.", True), ("\\boxed{7} or 8", True), ("I pass.", False)):
        trajectory, ((asked),) = play_by("math500", "qwen", task, [said])
        assert asked == [("system", BOXED), ("user", "What is 3 + 4?")]
        assert (trajectory.success, len(trajectory.turns)) == (right, 1)


def test_the_release_says_what_was_wrong_and_the_form_wanted_between_its_attempts():
    task = Task("1", "math", "test", "", {"problem": "What is 3 + 4?", "answer": "7"})
    trajectory, asked = play_by(
        "gsm8k", "r3l_attempts", task, [THOUGHT.format(8), "It is 7.", THOUGHT.format(7)]
    )
    assert trajectory.success and len(asked) == 3
    form = "First reason step by step about where things stand, inside <think> </think>.\n"
    form += "Then give your final answer inside <answer> </answer>."
    (system, example), first = asked[0]
    assert system == "system" and "<answer>\\boxed{312}</answer>" in example
    assert first == ("user", f"What is 3 + 4?\n\nNow solve this problem.\n{form}")
    wrong = f"Feedback: That is wrong: 8 is not the answer. Try again.\n\nNow try again.\n{form}"
    unread = (
        "The form of that response is wrong: <think>...</think> and <answer>...</answer> are both needed."
    )
    assert asked[1:] == [[("user", wrong)], [("user", f"Feedback: {unread}\n\nNow try again.\n{form}")]]
    boxed, _ = play_by("gsm8k", "r3l_attempts", task, [THOUGHT.format("\\boxed{7}")] * 3)
    assert not boxed.success and len(boxed.turns) == 3  # compared as text
    _, ((once),) = play_by("gsm8k", "r3l", task, [THOUGHT.format(7)])
    assert once == [("system", example), ("user", "What is 3 + 4?")]


def test_puzzles_are_played_as_rltfs_release_plays_them(monkeypatch, capsys, tmp_path):
    """One response at temperature 1, eight of each problem; right: 1, wrong: 0, without a box: -0.1."""
    assert [protocols(env) for env in ("knights_knaves", "shortest_path", "countdown")] == [
        ["rltf"],
        ["rltf"],
        [],
    ]
    task = find_environment("puzzles").tasks("shortest_path_rltf/test")[0]
    right = PUZZLES["shortest_path"].work(task.payload["data"]).answer
    for said, reward in ((f"\\boxed{{{right}}}", 1.0), ("\\boxed{jump}", 0.0), (right, -0.1)):
        trajectory, asked = play_by("shortest_path", "rltf", task, [said])
        assert (trajectory.reward, trajectory.success, len(asked)) == (reward, reward == 1.0, 1)
    monkeypatch.chdir(tmp_path)
    with serving(lambda request, before: completion("\\boxed{jump}")) as (url, seen):
        code, out, err = run(monkeypatch, capsys, "evaluate", "shortest_path", "--server", url, "-n", 2)
    assert code == 0, err
    assert len(seen) == 16 and {(r["temperature"], r["max_tokens"]) for r in seen} == {(1, 8096)}
    assert "protocol rltf (RLTF's release; sha256" in out
    assert (
        "not comparable: Llama-3.1-8B-Instruct success 0.034 (n 200; RLTF, arXiv 2602.02482, Table 1" in out
    )


def test_a_server_that_does_not_stop_at_the_limit_is_warned_of(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    with serving(lambda request, before: completion("<answer>1</answer>", tokens=4097)) as (url, _):
        code, out, err = run(monkeypatch, capsys, "evaluate", "gsm8k", "--server", url, "-n", 2)
    assert code == 0, err
    assert "warning: 2 of 2 responses have more tokens than requested" in out


def drawn(n, tasks, seed=0, draw="drawn"):
    row = f"zero_shot@protocol=react,evaluation.tasks={n},evaluation.draw={draw}"
    return [task.id for task in select_tasks(resolve("smol", "alfworld", row, seed), tasks)]


def test_more_tasks_hold_the_fewer_and_seeds_draw_others():
    ids = [f"t{k:03}" for k in range(134)]
    tasks = [Task(id_, "alfworld", "test") for id_ in ids]
    assert drawn(3, tasks, draw="first") == ["t000", "t001", "t002"] and drawn(134, tasks) == ids
    few = drawn(20, tasks)
    assert set(few) < set(drawn(40, tasks)) and few == sorted(few) and len(few) == 20
    assert few != drawn(20, tasks, seed=1)
    assert drawn(20, tasks, draw="by_group") == few  # of one group
    with pytest.raises(ConfigError, match="is 135, but the task set has 134 tasks"):
        drawn(135, tasks)


def test_a_draw_by_group_takes_each_groups_share_at_every_seed():
    """Of 60, 30 and 10 tasks: six, three and one of ten; two of the large group among the first three."""
    sizes = {"look": 60, "heat": 30, "cool": 10}
    tasks = [Task(f"{g}{k:02}", "alfworld", "test", g) for g, size in sizes.items() for k in range(size)]

    def shares(n, seed=0):
        return Counter(id_.rstrip("0123456789") for id_ in drawn(n, tasks, seed, "by_group"))

    assert shares(10) == {"look": 6, "heat": 3, "cool": 1} and shares(100) == sizes
    assert shares(3) == {"look": 2, "heat": 1} and shares(20) == {"look": 12, "heat": 6, "cool": 2}
    for n in range(1, 100):
        assert shares(n) == shares(n, seed=7)
        assert set(drawn(n, tasks, 7, "by_group")) < set(drawn(n + 1, tasks, 7, "by_group"))
    assert drawn(10, tasks, 0, "by_group") != drawn(10, tasks, 7, "by_group")


def test_a_tier_draws_tasks_and_a_run_that_plays_all_is_what_it_was():
    part = resolve("nano", "alfworld", "zero_shot", 0, overrides=["evaluation.tasks=5"])
    first = resolve(
        "nano", "alfworld", "zero_shot", 0, overrides=["evaluation.tasks=5", "evaluation.draw=first"]
    )
    assert part.evaluation.draw == "by_group" and part.fingerprint() != first.fingerprint()
    every = [
        resolve("nano", "alfworld", "zero_shot", 0, overrides=[f"evaluation.draw={draw}"])
        for draw in ("first", "drawn", "by_group")
    ]
    assert len({run.fingerprint() for run in every}) == 1


def test_seeds_that_draw_tasks_of_their_own_are_averaged(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    played = []
    for seed in (0, 1):
        options = ("--tier", "nano", "--model", "math-1.5m", "-n", 6, "--seed", seed)
        code, _, err = run(monkeypatch, capsys, "evaluate", "math", *options)
        assert code == 0, err
        where = tmp_path / f"results/nano/math/math-1.5m/zero_shot@evaluation.tasks=6/seed{seed}"
        played.append(read_jsonl(where / "episodes.jsonl"))
    tasks = [{row["task"] for row in rows} for rows in played]
    assert len(tasks[0]) == len(tasks[1]) == 6 and tasks[0] != tasks[1]
    method = "zero_shot@evaluation.tasks=6"
    code, out, err = run(monkeypatch, capsys, "table", "mathematics", "--method", method, "--json")
    assert code == 0, err
    (row,) = [row for row in json.loads(out)["rows"] if (row["group"], row["method"]) == ("all", method)]
    mean = sum(episode["success"] for rows in played for episode in rows) / 12
    assert (row["seeds_done"], row["mean"]) == (2, round(mean, 4))
