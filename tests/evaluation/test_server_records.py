"""What an evaluation by a server records: its conditions without secrets, who answered, and warnings."""

from __future__ import annotations

import gzip
from pathlib import Path

from chat_server import completion, serving
from evaluation.served import ONE, sum_by_seed

from r3l.evaluation.summary import several_models
from r3l.files.json_files import read_json
from r3l.report.reading import read_runs


def test_servers_that_name_their_models_alike_share_no_scores(program):
    """Neither two addresses, nor one that tells of other weights; the latter not even in a folder that is
    named."""
    served = [*ONE, "--model", "org/mine"]
    with (
        serving(sum_by_seed, models=("org/mine",)) as (one, _),
        serving(sum_by_seed, models=("org/mine",)) as (other, _),
    ):
        for url in (one, other):
            program(*served, "--server", url)
    entry = {"id": "org/mine", "root": "/models/a", "created": 1}
    with serving(sum_by_seed, models=(entry,)) as (url, _):
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


def written_below(folder):
    """Content of all files below a folder, unpacked."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return b"".join((gzip.open if path.suffix == ".gz" else open)(path, "rb").read() for path in files)


def test_conditions_are_those_of_one_folder_and_the_key_is_nowhere(program, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    arguments = [*ONE, "--model", "any", "--out", "folder"]
    with serving(sum_by_seed) as (url, seen):
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
        status, body = sum_by_seed(request, before)
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
        status, body = sum_by_seed(request, before)
        return status, body | {"usage": {"prompt_tokens": 3 if before else 99, "completion_tokens": 5}}

    with serving(cuts) as (url, _):
        arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 1, "-n", 3, "--out", "folder"]
        result = program(*arguments, "--server", url)
    assert result["requests"]["cut_prompts"] == 2
    (warning,) = set(read_runs([Path("folder/evaluation.json")]).warning)
    assert warning.endswith("the server cut the prompts of 2 of 3 responses")


def test_one_model_is_recorded_without_a_warning(program):
    def named(request, before):
        status, body = sum_by_seed(request, before)
        return status, body | {"model": "any-2026-11", "system_fingerprint": "fp_1"}

    arguments = ["math", "--tier", "nano", "--model", "any", "-n", 3, "--out", "folder"]
    with serving(named) as (url, _):
        result = program(*arguments, "--server", url)
    assert result["agent"]["answered_by"] == {"any-2026-11, fp_1": 3}
    assert set(read_runs([Path("folder/evaluation.json")]).warning) == {""}


def test_prompt_tokens_of_concurrent_episodes_are_all_counted(program):
    def counted(request, before):
        status, body = sum_by_seed(request, before)
        return status, body | {"usage": {"prompt_tokens": 100, "completion_tokens": 5}}

    arguments = ["math", "--tier", "nano", "--model", "any", "--batch", 8, "-n", 40, "--out", "folder"]
    with serving(counted) as (url, seen):
        result = program(*arguments, "--server", url)
    assert result["tokens"]["prompt"] == 100 * len(seen) == 4000
    assert result["requests"]["requests"] == 40
