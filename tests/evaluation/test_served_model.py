"""``r3l evaluate ENV``: the same episodes with a server as with the local policy, stops, and what is
refused."""

from __future__ import annotations

import gzip
import json
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
from nano_server import NanoServer
from program import Program, run
from start_models import START_FOLDER, START_MODEL

from r3l.evaluation import evaluate
from r3l.evaluation.summary import several_models
from r3l.files.json_files import read_json, read_jsonl
from r3l.report.reading import read_runs
from r3l.runs.preemption import Preempted

ONE = ["alfworld", "--tier", "nano", "--task-set", "one/train", "--set", "evaluation.temperature=0"]
MATH = ["math", "--tier", "nano", "--set", "evaluation.temperature=0"]


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    """Run ``r3l evaluate ARGUMENTS`` in an empty folder; its JSON, or where it fails its message."""
    monkeypatch.chdir(tmp_path)

    def evaluate(*arguments):
        code, out, err = run(monkeypatch, capsys, "evaluate", *arguments, "--json")
        return json.loads(out) if code == 0 else err

    return evaluate


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


def scripted(request, before):
    """A right or a wrong sum, by the seed alone."""
    return completion(f"{request['seed'] % 7} + 1 = 2\n\\boxed{{{request['seed'] % 5}}}\n")


def test_a_stopped_evaluation_goes_on_with_the_same_episodes(program):
    def gone(request, before):
        return scripted(request, before) if before < 30 else (404, "gone")

    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 4, "-n", 60]
    with serving(scripted) as (url, _):
        quiet = program(*arguments, "--server", url, "--out", "quiet")
    with serving(gone) as (url, _):
        assert "answered 404: gone. Finished episodes are kept: re-run to resume" in program(
            *arguments, "--server", url, "--out", "stopped"
        )
    played = read_jsonl(Path("stopped") / "episodes.played.jsonl")
    assert 20 < len(played) <= 30 and not Path("stopped/evaluation.json").exists()
    with serving(scripted) as (url, seen):  # on another port, as after a restart
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
    with serving(scripted) as (url, seen):
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
        return scripted(request, before)

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


def test_servers_that_name_their_models_alike_share_no_scores(program):
    """Neither two addresses, nor one that tells of other weights; the latter not even in a folder that is
    named."""
    served = [*ONE, "--model", "org/mine"]
    with (
        serving(scripted, models=("org/mine",)) as (one, _),
        serving(scripted, models=("org/mine",)) as (other, _),
    ):
        for url in (one, other):
            program(*served, "--server", url)
    entry = {"id": "org/mine", "root": "/models/a", "created": 1}
    with serving(scripted, models=(entry,)) as (url, _):
        program(*served, "--server", url, "--out", "out")
        entry |= {"created": 2}
        again = program(*served, "--server", url, "--out", "out")
        entry |= {"root": "/models/b"}
        program(*served, "--server", url)
        refused = program(*served, "--server", url, "--out", "out")
    assert "groups" in again and "out holds an evaluation with about" in refused
    found = [
        path.relative_to("results/nano/alfworld").parts[0]
        for path in Path("results").rglob("evaluation.json")
    ]
    assert len(set(found)) == len(found) == 3 and all(name.startswith("mine@") for name in found)


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


def written_below(folder):
    """Content of all files below a folder, unpacked."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return b"".join((gzip.open if path.suffix == ".gz" else open)(path, "rb").read() for path in files)


def test_conditions_are_those_of_one_folder_and_the_key_is_nowhere(program, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    arguments = [*ONE, "--model", "any", "--out", "folder"]
    with serving(scripted) as (url, seen):
        address = url.replace("//", "//user:word@")
        result = program(*arguments, "--server", address, "--request", "top_p=0.9", "--request", "seed=7")
        assert "agent" in result, result
        assert (
            result["agent"]["request"] == {"top_p": 0.9, "seed": 7}
            and result["agent"]["endpoint"] == url + "/v1"
        )
        assert seen[0]["authorization"].startswith("Basic ") and seen[0]["top_p"] == 0.9
        refused = program(*arguments, "--server", url)
    assert "folder holds an evaluation with request" in refused and "choose another folder (--out)" in refused
    written = written_below("folder")
    assert b"secret" not in written and b"word@" not in written
    agent = {"model": "any", "dialog": "messages", "request": '{"seed": 7, "top_p": 0.9}', "about": "{}"}
    assert read_json(Path("folder/manifest.json"))["agent"] == agent
    assert "folder has no checkpoint: a server played it; give --server" in program("./folder")


def test_what_a_server_repeats_of_its_secrets_is_in_no_file_and_no_message(program, monkeypatch):
    """In /models, answers, names of models and errors; resuming finds the same server."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret/1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    secrets = ["sk-secret/1", "req-secret", "word-secret"]

    def repeats(request, before):
        if before == 3:
            return 404, f"gone {' '.join(secrets)}"
        status, body = completion(f"1 + 1 = 2\n\\boxed{{2}} {' '.join(secrets)}\n")
        return status, body | {"model": f"any {secrets[1]}", "system_fingerprint": secrets[0]}

    entry = {"id": "any", "owned_by": "sk-secret/1", "meta": {"by": "word-secret"}}
    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 1, "-n", 5, "--out", "folder"]
    arguments += ["--request", "api_key=req-secret"]
    with serving(repeats, models=(entry,)) as (url, seen):
        server = ["--server", url.replace("//", "//me:word-secret@")]
        refused = program(*arguments, *server)
        assert "answered 404: gone *** *** ***" in refused, refused
        assert "secret" not in refused and seen[0]["api_key"] == "req-secret"
        result = program(*arguments, *server)
        assert "agent" in result, result
        wrong = program(*arguments, "--server", "me:word-secret@host/v1?key=query-secret")
    assert "'***@host/v1' must be an address" in wrong and "secret" not in wrong
    assert b"secret" not in written_below("folder") and b"*** *** ***" in written_below("folder")
    assert result["agent"]["answered_by"] == {"any ***, ***": 5}


def test_a_warning_names_few_of_many_models():
    """A proxy may give each response a fingerprint of its own."""
    warning = several_models({"answered_by": {f"m, fp_{k}": 1 + (k == 7) for k in range(1_000)}})
    assert warning.endswith("m, fp_7 (2); m, fp_0 (1); m, fp_1 (1); m, fp_2 (1); m, fp_3 (1); and 995 others")


def test_scores_of_several_models_say_so(program, caplog):
    """A server that loads another model in between, and one whose version changes, before a stop or after it."""

    def switches(request, before):
        if stopping and before == 4:
            return 404, "gone"
        status, body = scripted(request, before)
        return status, body | {"model": "a" if before < 3 else "b", "system_fingerprint": None}

    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 1, "-n", 6, "--out", "folder"]
    stopping = True
    with serving(switches) as (url, _):
        assert "answered 404: gone" in program(*arguments, "--server", url)
    assert caplog.text.count("answers as b, and as a before: the score will be of several models") == 1
    stopping = False
    with serving(lambda request, before: switches(request, 9)) as (url, _):
        result = program(*arguments, "--server", url)
    assert result["agent"]["answered_by"] == {"a": 3, "b": 3} and "answered_by/a" not in result["requests"]
    (warning,) = set(read_runs([Path("folder/evaluation.json")]).warning)
    assert "of several models or versions, so the score is of no single one: a (3); b (3)" in warning


def test_a_score_of_prompts_that_the_server_cut_says_so_in_reports_too(program):
    def cuts(request, before):
        status, body = scripted(request, before)
        return status, body | {"usage": {"prompt_tokens": 3 if before else 99, "completion_tokens": 5}}

    with serving(cuts) as (url, _):
        arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 1, "-n", 3, "--out", "folder"]
        result = program(*arguments, "--server", url)
    assert result["requests"]["cut_prompts"] == 2
    (warning,) = set(read_runs([Path("folder/evaluation.json")]).warning)
    assert warning.endswith("the server cut the prompts of 2 of 3 responses")


def test_one_model_is_recorded_without_a_warning(program):
    def named(request, before):
        status, body = scripted(request, before)
        return status, body | {"model": "any-2026-11", "system_fingerprint": "fp_1"}

    arguments = ["math", "--tier", "nano", "--model", "any", "-n", 3, "--out", "folder"]
    with serving(named) as (url, _):
        result = program(*arguments, "--server", url)
    assert result["agent"]["answered_by"] == {"any-2026-11, fp_1": 3}
    assert set(read_runs([Path("folder/evaluation.json")]).warning) == {""}


def test_prompt_tokens_of_concurrent_episodes_are_all_counted(program):
    def counted(request, before):
        status, body = scripted(request, before)
        return status, body | {"usage": {"prompt_tokens": 100, "completion_tokens": 5}}

    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 8, "-n", 40, "--out", "folder"]
    with serving(counted) as (url, seen):
        result = program(*arguments, "--server", url)
    assert result["tokens"]["prompt"] == 100 * len(seen) == 4000
    assert result["requests"]["requests"] == 40


@pytest.mark.parametrize("name", ["", " ", "/"])
def test_a_model_without_a_name_is_not_filed_under_another_ones(program, name):
    with serving(scripted, models=(name,)) as (url, _):
        unnamed = program("math", "--tier", "nano", "--server", url, "-n", 2)
        assert "serves no model that it names; choose with --model NAME" in unnamed
        Path("several.yaml").write_text(f"evaluations: [{{env: math, server: '{url}', model: '{name}'}}]")
        assert f"--model is {name!r}: give the model's name as the server has it" in program("several.yaml")
        assert "agent" in program("math", "--tier", "nano", "--server", url, "--model", "m", "-n", 2)


@pytest.mark.parametrize("name", [".", "..", "./", "models/.."])
def test_a_model_named_as_a_folder_of_this_machine_is_refused(program, name):
    """`vllm serve .` names it so; its scores would be filed under the working directory's name."""
    with serving(scripted, models=(name,)) as (url, _):
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
    with serving(scripted) as (url, _):
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
    with serving(lambda request, before: scripted(request, before) if before < 6 else answer) as (url, _):
        error = program(
            "math", "--tier", "nano", "--model", "any", "--batch", 2, "--server", url, "--out", "out"
        )
    assert error.startswith("error: ") and message in error and "Finished episodes are kept" in error
    assert (
        len(read_jsonl(Path("out") / "episodes.played.jsonl")) > 3
        and not Path("out/evaluation.json").exists()
    )
