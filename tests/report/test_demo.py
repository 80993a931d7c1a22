"""`r3l demo`: which group it shows, what it says where there is none, three real updates."""

import gzip
import io
import json
import re

import pytest
from program import Program
from rich.console import Console

import r3l
from r3l.core.errors import DataError
from r3l.report.trajectory_view import shortest_example


def trajectory(kind, turns, **more):
    turn = {"prompt": "<|user|>see<|end|>", "prompt_tokens": 3, "finish_reason": "end"}
    turn |= {"response": [["<think>", 2, False], [f"do {kind}<|end|>", 3, True]]}
    given = {"member": 0, "attempt": 0, "reward": 0.0, "success": False, "advantage": None, "restart_turn": 0}
    given |= {"stop_reason": None, "trainable": [0, turns], "feedback": ""}
    return given | {"kind": kind, "turns": [turn] * turns, "parsed": None} | more


def write(folder, step, length, pivot=1, advantage=1.5, solved=True):
    """A group of one member: an attempt of three turns, a retry of ``length``."""
    retry = {"restart_turn": pivot, "success": solved, "reward": float(solved)}
    said = {"root_cause_analysis": "wrong pan", "improvement_suggestion": "hob"}
    reflection = trajectory("reflection", 4, parsed=said)
    learnt = [
        trajectory("base", 3, advantage=-0.5),
        trajectory("distilled", length, advantage=advantage, **retry),
    ]
    groups = [
        {"objective": "policy", "trajectories": learnt},
        {"objective": "sft", "trajectories": [reflection, trajectory("guided_retry", length, **retry)]},
    ]
    folder.mkdir(parents=True, exist_ok=True)
    line = {
        "step": step,
        "method": "r3l",
        "task": f"t{step}",
        "group": "easy",
        "selected_as": "taught",
        "groups": groups,
    }
    with (folder / "trajectories.jsonl.gz").open("ab") as file:
        file.write(gzip.compress(json.dumps(line).encode() + b"\n"))


def test_the_shortest_successful_retry_that_keeps_a_turn_and_is_learnt_from(tmp_path):
    run = tmp_path / "nano" / "webshop" / "m" / "r3l" / "seed0"
    write(run, 1, 9)
    write(run, 2, 4)  # 3 turns of the attempt, 3 of the retry
    write(run, 3, 2, pivot=0)  # from the start: no pivot to see
    write(run, 4, 2, solved=False)
    write(run, 5, 2, advantage=0.0)  # learns nothing
    task, member = shortest_example([run])
    assert task.place == "nano/webshop/m/r3l/seed0, step 2, task t2"
    assert [len(member.first(kind)["turns"]) for kind in ("base", "guided_retry")] == [
        3,
        4,
    ] and member.pivot == 1
    assert shortest_example([tmp_path]) is None


def test_what_trains_stands_beside_the_words(tmp_path):
    write(tmp_path, 1, 3)
    _, member = shortest_example([tmp_path])
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(member)
    text = console.export_text()
    assert "wrong pan" in text and "<|" not in text
    assert re.search(r"the attempt\s+0\.00\s+-0\.50\s+9 of 15", text)
    assert re.search(r"the retry without the hint\s+1\.00\s+\+1\.50\s+9 of 15", text)
    assert re.search(r"the reflection\s+imitated\s+12 of 20", text)


def test_a_notebook_shows_a_member_and_a_group(tmp_path):
    write(tmp_path, 1, 3)
    (task,) = r3l.trajectories(tmp_path)
    (member,) = task.members
    assert (task.step, task.task, member.rescued, member.pivot) == (1, "t1", True, 1)
    page = member._repr_html_()
    learnt = re.findall(
        r"color: (#\w+)[^>]*>do (\w+)<", page
    )  # of the attempt all turns, of the retry those from the pivot
    assert [kind for _, kind in learnt] == ["base"] * 3 + ["guided_retry"] * 2
    assert len({colour for colour, _ in learnt}) == 2  # made less likely, imitated
    assert (
        page.count("the retry without the hint")
        == task._repr_html_().count("the retry without the hint")
        == 1
    )
    with pytest.raises(DataError, match="has no trajectories"):
        r3l.trajectories(tmp_path / "nothing")


@pytest.mark.slow
def test_the_program_plays_it_and_trains(tmp_path):
    write(tmp_path / "nano" / "webshop" / "m" / "r3l" / "seed0", 1, 3)
    code, stdout, stderr = Program("r3l.cli", "demo", "--stored", tmp_path, folder=tmp_path).wait()
    assert (code, stderr) == (0, "") and "\x1b" not in stdout
    assert "The retry from turn 1" in stdout and "update 1/3" in stdout and "update 3/3" in stdout
    assert [path.name for path in tmp_path.iterdir()] == ["nano"]  # nothing is left
