"""``r3l evaluate ENV``: the same episodes with a server as with the local policy, stops, and what is
refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from chat_server import completion, serving
from evaluation.served import ONE, sum_by_seed
from nano_server import NanoServer
from program import Program
from start_models import START_FOLDER, START_MODEL

from r3l.evaluation import evaluate
from r3l.files.json_files import read_json, read_jsonl
from r3l.report.reading import read_runs
from r3l.runs.preemption import Preempted

MATH = ["math", "--tier", "nano", "--set", "evaluation.temperature=0"]


def episodes(folder):
    return read_jsonl(Path(folder) / "episodes.jsonl")


def without(key, rows):
    return [{name: value for name, value in row.items() if name != key} for row in rows]


@pytest.fixture(scope="module")
def nano_server():
    return NanoServer()


def test_a_server_plays_what_the_local_policy_plays(program, nano_server):
    """One game of ALFWorld: by tokens every byte, by messages all but the transcript's digest, which is of
    texts."""
    here = program(*ONE, "--model", START_MODEL, "--out", "here")
    with serving(nano_server.answer, models=(START_MODEL,)) as (url, seen):
        by_tokens = program(*ONE, "--server", url, "--dialog", "tokens", "--out", "tokens")
        by_messages = program(*ONE, "--server", url)
    assert "groups" in here, here
    assert episodes("tokens") == episodes("here") and episodes("here")[0]["turns"] > 3
    row = "zero_shot@env_settings.test_task_set=one-train,evaluation.temperature=0,engine=server"
    (folder,) = Path("results/nano/alfworld").glob(f"{START_MODEL}@????????/{row}/seed0")
    there = episodes(folder)
    assert without("transcript_sha256", there) == without("transcript_sha256", episodes("here"))
    label = "Zero-shot (served model) (env_settings.test_task_set=one/train, evaluation.temperature=0)"
    assert by_messages["method_label"] == label
    assert "agent" not in here and here["groups"] == by_tokens["groups"] == by_messages["groups"]
    assert (
        here["tokens"]["generated"] == by_tokens["tokens"]["generated"] == by_messages["tokens"]["generated"]
    )
    turns = episodes("here")[0]["turns"]
    with serving(nano_server.answer, models=("served",)) as (url2, _):
        scored = program(
            "./here", "--server", url2, "--dialog", "tokens"
        )  # a run's own folder gets the result
    assert episodes("here") == episodes("tokens") and scored["agent"]["model"] == "served"
    (method,) = set(read_runs([Path("here/evaluation.json")]).method)
    assert method.startswith("zero_shot")
    assert by_messages["requests"] == {"requests": turns} and len(seen) == 2 * turns
    agent = {"endpoint": url + "/v1", "model": START_MODEL, "dialog": "messages", "same_template": True}
    assert by_messages["agent"].items() >= (agent | {"temperature": 0.0, "max_tokens": 24}).items()


def test_dialogs_sent_as_tokens_of_another_tokenizer_are_another_evaluation(program, nano_server):
    """A moved tokenizer is the same one."""
    shutil.copytree(START_FOLDER, "one")
    shutil.copytree(START_FOLDER, "moved")
    shutil.copytree(START_FOLDER, "other")
    with Path("other/chat_template.jinja").open("a") as file:
        file.write("{# edited #}")
    with serving(nano_server.answer, models=(START_MODEL,)) as (url, seen):
        arguments = [*ONE, "--server", url, "--out", "out"]
        by_tokens = [*arguments, "--dialog", "tokens", "--tokenizer"]
        first = program(*by_tokens, "./one")
        asked = len(seen)
        again = program(*by_tokens, "./moved")
        refused = program(*by_tokens, "./other")
        without = program(*by_tokens[:-1])
        by_messages = program(*ONE, "--server", url, "--tokenizer", "./other", "--out", "messages")
    assert first["agent"]["tokenizer"].keys() == {"sha256"} and again == first
    assert "out holds an evaluation with tokenizer" in refused and asked == first["requests"]["requests"]
    assert "out holds an evaluation with tokenizer" in without
    assert "tokenizer" not in by_messages["agent"]


def test_a_stopped_evaluation_goes_on_with_the_same_episodes(program):
    def gone(request, before):
        return sum_by_seed(request, before) if before < 30 else (404, "gone")

    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 4, "-n", 60]
    with serving(sum_by_seed) as (url, _):
        quiet = program(*arguments, "--server", url, "--out", "quiet")
    with serving(gone) as (url, _):
        assert "answered 404: gone. Finished episodes are kept: re-run to resume" in program(
            *arguments, "--server", url, "--out", "stopped"
        )
    played = read_jsonl(Path("stopped") / "episodes.played.jsonl")
    assert 20 < len(played) <= 30 and not Path("stopped/evaluation.json").exists()
    with serving(sum_by_seed) as (url, seen):  # on another port, as after a restart
        resumed = program(*arguments, "--server", url, "--out", "stopped")
        assert len(seen) == 60 - len(played)
    assert (Path("stopped") / "episodes.jsonl").read_bytes() == (
        Path("quiet") / "episodes.jsonl"
    ).read_bytes()
    assert resumed["groups"] == quiet["groups"] and resumed["tokens"] == quiet["tokens"]


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("where", ["play_all", "verify"])
def test_an_evaluation_that_was_stopped_at_its_ends_is_finished(where, served, program, monkeypatch):
    """Before its first episode, and before it was signed."""

    def stopped(*arguments):
        raise Preempted("SIGTERM")

    arguments = ["math", "--tier", "nano", "-n", 4, "--out", "out", "--model", "math-1.5m"]
    with serving(sum_by_seed) as (url, seen):
        arguments += ["--server", url] if served else []
        with monkeypatch.context() as patch:
            patch.setattr(evaluate, where, stopped)
            assert "stopped by SIGTERM; re-run to resume" in program(*arguments)
        assert Path("out/evaluation.json").exists() == (where == "verify")
        assert not Path("out/SHA256SUMS").exists()
        resumed = program(*arguments)
        assert len(seen) == (4 if served else 0)  # once each
    assert "groups" in resumed, resumed
    assert Path("out/SHA256SUMS").exists() and not Path("out/episodes.played.jsonl").exists()


def test_ctrl_c_keeps_what_was_played_and_says_so(tmp_path):
    def stop(request, before):
        if before == 4:
            os.kill(stopped.process.pid, signal.SIGINT)
        return sum_by_seed(request, before)

    with serving(stop) as (url, _):
        stopped = Program(
            "r3l.cli", "evaluate", *MATH, "--server", url, "--batch", "1", "-n", "6", folder=tmp_path
        )
        code, _, err = stopped.wait()
    assert code == 130 and err.endswith("stopped by Ctrl-C; re-run to resume\n"), err
    assert 1 <= len(read_jsonl(next(tmp_path.rglob("episodes.played.jsonl")))) < 6


def test_ctrl_c_says_nothing_else_while_this_machine_samples(tmp_path):
    """In a process of its own to the end: asyncio complains at the interpreter's exit."""
    words = [
        sys.executable,
        "-m",
        "r3l.cli",
        "evaluate",
        *["math", "--model", "math-1.5m", "-n", "60", "--repeat", "50", "--batch", "8"],
    ]
    # a shell's job in the background, as these tests may be, is born deaf to Ctrl-C
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    stopped = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=hears)
    while not list(tmp_path.rglob("episodes.played.jsonl")) and stopped.poll() is None:
        time.sleep(0.05)
    time.sleep(1)  # to be in the middle of a later batch
    stopped.send_signal(signal.SIGINT)
    err = stopped.communicate()[1]
    assert stopped.returncode == 130 and err.splitlines()[-1] == "stopped by Ctrl-C; re-run to resume", err


def test_a_response_that_could_not_be_used_is_shown(program):
    """Also when the same evaluation is asked for again."""
    with serving(lambda request, before: completion("<action>look</action>")) as (url, _):
        asked = (*ONE, "--set", "prompts=full", "--model", "any", "--server", url, "--out", "out")
        shown, again = program(*asked), program(*asked)
    (row,) = episodes("out")
    assert shown["stops"] == {"format": 1} and shown["examples"] == {
        "format": [row["task"], "<action>look</action>"]
    }
    assert again == shown
    assert "examples" not in read_json(Path("out/evaluation.json"))


@pytest.mark.parametrize("name", ["", " ", "/"])
def test_a_model_without_a_name_is_not_filed_under_another_ones(program, name):
    with serving(sum_by_seed, models=(name,)) as (url, _):
        unnamed = program("math", "--tier", "nano", "--server", url, "-n", 2)
        assert "serves no model that it names; choose with --model NAME" in unnamed
        Path("several.yaml").write_text(f"evaluations: [{{env: math, server: '{url}', model: '{name}'}}]")
        assert f"--model is {name!r}: give the model's name as the server has it" in program("several.yaml")
        assert "agent" in program("math", "--tier", "nano", "--server", url, "--model", "m", "-n", 2)


@pytest.mark.parametrize("name", [".", "..", "./", "models/.."])
def test_a_model_named_as_a_folder_of_this_machine_is_refused(program, name):
    """`vllm serve .` names it so; its scores would be filed under the working directory's name."""
    with serving(sum_by_seed, models=(name,)) as (url, _):
        for model in ([], ["--model", name]):
            refused = program("math", "--tier", "nano", "--server", url, "-n", 2, *model)
            assert f"the server calls its model {name!r}" in refused
            assert "--served-model-name NAME" in refused
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alfworld"], "name the model that plays alfworld"),
        (["./folder", "--model", START_MODEL], "--model cannot be combined with a run, which is played"),
        (["nowhere", "--model", START_MODEL], "nowhere"),
        (["math", "--server", "nonsense", "--model", "m"], "must be an address"),
        (
            ["math", "--server", "http://x", "--model", "m", "--dialog", "tokens"],
            "needs the tokenizer of 'm'",
        ),
        (["math", "--server", "http://x", "--model", "m", "--request", "top_p"], "must look like key=value"),
    ],
)
def test_bad_input_is_one_paragraph(program, arguments, message):
    with serving(sum_by_seed) as (url, _):
        error = program(*(url if argument == "http://x" else argument for argument in arguments))
    assert error.startswith("error: ") and message in error and len(error.strip().splitlines()) == 1


TEMPLATE = {"error": {"message": "template error: 'context' has no maximum context length"}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((400, TEMPLATE), "answered 400: template error"),
        (completion("Let me", "content_filter"), "no complete answer"),
    ],
)
def test_what_the_server_refuses_or_breaks_off_is_no_score(program, answer, message):
    with serving(lambda request, before: sum_by_seed(request, before) if before < 6 else answer) as (url, _):
        error = program(
            "math", "--tier", "nano", "--model", "any", "--batch", 2, "--server", url, "--out", "out"
        )
    assert error.startswith("error: ") and message in error and "Finished episodes are kept" in error
    assert (
        len(read_jsonl(Path("out") / "episodes.played.jsonl")) > 3
        and not Path("out/evaluation.json").exists()
    )
