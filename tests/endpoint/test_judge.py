"""A judge in training: a real model behind a real HTTP server, its counts, and the error without one."""

import asyncio
import gzip

import pytest
from chat_server import completion, serving
from nano_server import NanoServer

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.core.policy import FinishReason, JudgePrompts, Sampling
from r3l.core.text import Message
from r3l.endpoint.client import Endpoint
from r3l.endpoint.judge import EndpointJudge, judge_options
from r3l.endpoint.options import EndpointOptions, ServerError, Settable
from r3l.files.json_files import read_json, read_jsonl
from r3l.local.engine import train
from r3l.runs.metrics import declared
from r3l.runs.preemption import Preempted

SMALL = ["train.steps=1", "train.tasks_per_step=2", "train.kl_metric_every=0", "workers=0"]
AS_POLICY = ["judge.model=nano", "judge.prompts=as_policy", "judge.temperature=0"]
DIALOG = [
    Message("user", "7 - 2?"),
    Message("assistant", "7 - 2"),
    Message("assistant", " = 4\n"),
    Message("user", "?"),
]


def read_bytes(path):
    """Content of a file, unpacked."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def judged(url, deadline=600.0):
    """(feedback on DIALOG of the judge at ``url``, counts)."""

    async def run():
        settable = Settable("R3L_JUDGE", "judge.model", "judge.deadline", "judge.concurrency")
        options = EndpointOptions(url, "big", deadline=deadline, settable=settable)
        async with Endpoint(options) as endpoint:
            judge = EndpointJudge(endpoint, Sampling(0.5, 9), JudgePrompts.INSTRUCTIONS)
            return await judge.write(DIALOG, ("t", "critique", 0)), judge.counts()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "env", "kind"),
    [
        ("rltf_grpo", "math", "critique"),
        pytest.param("r3l", "knights_knaves", "reflection", marks=pytest.mark.slow),
    ],
)
def test_a_step_under_a_judge(tmp_path, monkeypatch, method, env, kind):
    """The judge is the base checkpoint, sampled greedily: every text comes from it, and most can be used."""
    run = resolve("nano", env, f"{method}@feedback=judge,group_size=2", 0, overrides=[*SMALL, *AS_POLICY])
    with serving(NanoServer(run.model).answer) as (url, seen):
        monkeypatch.setenv("R3L_JUDGE", url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
        budget = train(run, tmp_path)["budget"]
    written = budget[f"{kind}/by_judge"]
    assert written == budget["judge/requests"] == len(seen) > 0 and f"{kind}/by_model" not in budget
    assert {request["authorization"] for request in seen} == {"Bearer secret-key"}
    assert budget["retry/count"] > 0 and budget["tokens/judge"] > written and budget["prompt/judge"] > 0
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == 1
    left = [read_bytes(path) for path in tmp_path.rglob("*.json*")]
    assert len(left) > 3 and not any(
        secret in text for secret in (b"secret-key", url.encode()) for text in left
    )
    assert read_json(tmp_path / "manifest.json")["run"]["judge"]["model"] == "nano"


def test_a_judge_that_is_another_model_from_the_second_step_on_is_noticed(tmp_path, monkeypatch, caplog):
    """Also by a process that resumes the run: the names are in metrics.jsonl."""
    two_steps = [*SMALL, *AS_POLICY, "train.steps=2"]
    run = resolve("nano", "math", "rltf_grpo@feedback=judge,group_size=2", 0, overrides=two_steps)
    server, name = NanoServer(run.model), "big"

    def answer(request, before):
        status, body = server.answer(request, before)
        return status, body | {"model": name}

    def stop(*_):
        raise Preempted("SIGTERM")

    with serving(answer) as (url, seen):
        monkeypatch.setenv("R3L_JUDGE", url)
        with pytest.raises(Preempted):
            train(run, tmp_path, after_update=stop)
        first, name = len(seen), "another"
        caplog.clear()
        budget = train(run, tmp_path)["budget"]
    assert caplog.text.count("answers as another, and as big before: the feedback will be of several") == 1
    assert budget["judge/answered_by/big"] == first > 0
    assert budget["judge/answered_by/another"] == budget["judge/other_models"] == len(seen) - first > 0


def test_all_of_a_dialog_is_sent_and_thoughts_are_left_out():
    def answer(request, before):
        return (503, "busy") if before == 0 else completion("<think>hm</think>\nthat is 5\n", tokens=7)

    with serving(answer) as (url, seen):
        written, counts = judged(url)
    assert (written.text, written.finish_reason, written.tokens.response) == (
        "that is 5",
        FinishReason.END,
        7,
    )
    assert [m["content"] for m in seen[-1]["messages"]] == ["7 - 2?", "7 - 2 = 4\n", "?"]
    assert (seen[-1]["temperature"], seen[-1]["max_tokens"], seen[-1]["model"]) == (0.5, 9, "big")
    assert counts == {"judge/requests": 2, "judge/repeated/503": 1}


@pytest.mark.parametrize("content", [None, "a\udfffb"])
def test_what_is_wrong_with_an_answer_is_counted_under_a_declared_name(content):
    """Feedback that is never complete is empty, so invalid: unlike a score it may be missing."""
    answer = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    with serving(lambda request, before: (200, answer)) as (url, _):
        written, counts = judged(url)
    if content is None:
        assert written.text == ""
        assert counts == {"judge/requests": 3, "judge/repeated/stop": 3, "judge/missing/stop": 1}
    else:
        assert counts == {"judge/requests": 1, "judge/replaced": 1, "judge/uncounted": 1}
    assert all(declared(name) for name in counts)


def test_a_judge_that_is_away_is_named_by_its_setting():
    with pytest.raises(ServerError, match="cannot be reached .* Start the server, or correct R3L_JUDGE"):
        judged("http://127.0.0.1:9")


def test_a_judge_without_a_name_is_an_error_before_any_work(tmp_path, monkeypatch):
    monkeypatch.delenv("R3L_JUDGE", raising=False)
    run = resolve("nano", "math", "rltf_sd@feedback=judge", 0)
    with pytest.raises(
        ConfigError, match=r"is not in R3L_JUDGE .* and its model is not named \(--set judge.model="
    ):
        train(run, tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    assert judge_options(resolve("nano", "math", "rltf_sd", 0)) is None


def test_a_judge_is_part_of_the_run_that_it_teaches_and_of_no_other():
    def fingerprint(method, *changes):
        return resolve("nano", "math", method, 0, overrides=changes).fingerprint()

    judged, other = ("r3l@feedback=judge", "judge.model=a"), ("r3l@feedback=judge", "judge.model=b")
    assert fingerprint(*judged) != fingerprint(*other)
    assert fingerprint(*judged, "judge.deadline=5", "judge.concurrency=2") == fingerprint(*judged)
    assert fingerprint("r3l", "judge.model=a") == fingerprint("r3l")
