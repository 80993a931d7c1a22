"""The client of OpenAI-compatible servers against a real HTTP server: replies, retries, refusals."""

import pytest
from chat_server import completion, serving
from tenacity import wait_none

from r3l.core.benchmark import Reply
from r3l.core.environment import Message
from r3l.core.seeds import seed_of
from r3l.evaluation.servers import ATTEMPTS, Server, ServerError

DIALOG = [Message("system", "Be brief."), Message("user", "2+2?")]
ADDRESS = (0, "benchmark", "q", 0)


def ask(url, model="tiny"):
    with Server(url, model, temperature=0.5, max_tokens=9, concurrency=2, pauses=wait_none()) as server:
        return server.respond([DIALOG], [ADDRESS])[0]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_request_and_its_reply(monkeypatch, suffix):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda request, before: completion("4")) as (url, seen):
        assert ask(url + suffix) == Reply("4", "end", 5)
    assert seen == [
        {
            "path": "/v1/chat/completions",
            "authorization": "Bearer secret",
            "model": "tiny",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
            "temperature": 0.5,
            "max_tokens": 9,
            "seed": seed_of(*ADDRESS) % 2**31,
        }
    ]


def test_what_servers_add_or_leave_out():
    message = {"content": "4", "reasoning_content": "two and two"}
    answers = [
        (200, {"choices": [{"message": message, "finish_reason": "length"}]}),
        (200, {"choices": [{"message": {"content": None}, "finish_reason": "tool_calls"}], "usage": None}),
    ]
    with serving(lambda request, before: answers[before]) as (url, _):
        assert ask(url) == Reply("<think>two and two</think>4", "length", None)
        assert ask(url) == Reply("", "tool_calls", None)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status):
    with serving(lambda request, before: completion("4") if before == 2 else (status, "later")) as (url, seen):
        assert ask(url).text == "4" and len(seen) == 3
        assert seen[0] == seen[2]  # the same request, the same seed


def test_a_server_that_stays_busy_is_given_up():
    with serving(lambda request, before: (503, "loading")) as (url, seen):
        with pytest.raises(ServerError, match="answered 503: loading"):
            ask(url)
        assert len(seen) == ATTEMPTS


def test_a_refusal_is_final():
    with serving(lambda request, before: (404, {"message": "no model 'tiny'"})) as (url, seen):
        with pytest.raises(ServerError, match="answered 404: .*no model 'tiny'"):
            ask(url)
        assert len(seen) == 1


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",  # vLLM
        "the request exceeds the available context size. try increasing the context size",  # llama.cpp
    ],
)
def test_a_dialog_without_room_is_a_reply_of_its_own(words):
    with serving(lambda request, before: (400, {"error": {"message": words}})) as (url, seen):
        assert ask(url) == Reply("", "context", 0) and len(seen) == 1


@pytest.mark.parametrize(("body", "message"), [("<html>", "answered no JSON"), ({"ok": 1}, "no chat completion")])
def test_something_else_than_such_a_server(body, message):
    with serving(lambda request, before: (200, body)) as (url, _), pytest.raises(ServerError, match=message):
        ask(url)


def test_nobody_there():
    with serving(lambda request, before: completion("")) as (url, _):
        pass
    with pytest.raises(ServerError, match=r"cannot be reached \(ConnectError.*start the server, or correct --server"):
        ask(url)
    with pytest.raises(ServerError, match="cannot be reached"):
        ask("localhost:1")


def test_the_only_model_needs_no_name():
    with serving(lambda request, before: completion("4")) as (url, seen):
        ask(url, model=None)
        assert seen[0]["model"] == "tiny"
    wanted = pytest.raises(ServerError, match="serves a, b; choose with --model NAME")
    with serving(lambda request, before: completion("4"), models=("a", "b")) as (url, _), wanted:
        ask(url, model=None)
