"""The commands on the pages that ask a server, answered by a chat model that knows what is right."""

from __future__ import annotations

import json
import re

import pytest
from chat_server import completion, serving
from docs.pages import TODAY
from docs.test_commands import commands, words
from program import run
from r3l.envs.alfworld import ENVIRONMENT
from r3l.envs.base.demonstrations import ErrorRates
from r3l.envs.math.task_sets.datasets import load

from r3l.processes.worker import RecordedEnvironment

ONE = "one/train"  # one house, one game
SERVED = {
    command
    for page in TODAY
    for command in commands(page)
    if command.startswith("evaluate ") and re.search(r"--server (URL|http://localhost:8000)", command)
}


def of(env: str) -> list[str]:
    """The commands for an environment that need no published data and are not for a model that we taught."""
    # --batch 64 is for a stored model on vLLM, protocols are in tests/evaluation/test_protocols.py (docs/endpoints.md)
    ours = re.compile("--tier paper|--batch 64|--protocol")
    return sorted(command for command in SERVED if words(command)[1] == env and not ours.search(command))


def scored(monkeypatch, capsys, command, url, *further):
    arguments = [url if word in ("URL", "http://localhost:8000") else word for word in words(command)]
    code, out, err = run(monkeypatch, capsys, *arguments, *further, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize("command", of("alfworld"))
def test_a_model_that_plays_well_solves_the_game(monkeypatch, capsys, tmp_path, command):
    task = ENVIRONMENT.tasks(ONE)[0]
    engine = RecordedEnvironment(ENVIRONMENT.create({}))
    played = ENVIRONMENT.make_demonstrator(ONE).demonstrate(engine, task, 0, ErrorRates(0, 0, 0, 0), 30)
    actions = [step.action for step in played.steps]

    def play(request, before):
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return completion(f"<think>As planned.</think>\n<action>{actions[turn]}</action>")

    monkeypatch.chdir(tmp_path)
    with serving(play) as (url, seen):
        result = scored(monkeypatch, capsys, command, url, "--task-set", ONE)
    assert len(seen) == len(actions) > 3 and result["groups"]["all"]["success"] == 1.0
    assert result["stops"] == {"success": 1}


@pytest.mark.slow
@pytest.mark.parametrize("command", of("gsm8k"))
def test_right_answers_are_right(monkeypatch, capsys, tmp_path, command):
    answers = {problem.problem: problem.gold for problem in load("gsm8k")}

    def answer(request, before):
        asked = request["messages"][-1]["content"]
        right = next(answer for problem, answer in answers.items() if problem in asked)
        return completion(f"Step by step, it comes to that.\n\\boxed{{{right}}}")

    monkeypatch.chdir(tmp_path)
    with serving(answer) as (url, seen):
        result = scored(monkeypatch, capsys, command, url)
    options = dict(zip(words(command), words(command)[1:], strict=False))
    assert len(seen) == int(options.get("-n", 1319)) * int(options.get("-r", 1))
    assert result["groups"]["all"]["success"] == 1.0
