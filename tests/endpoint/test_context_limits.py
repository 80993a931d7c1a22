"""A full context at a server: less is requested; a refusal for another reason is an error, never a wrong
answer."""

import asyncio
import json
from pathlib import Path

import pytest
from chat_server import completion, serving

from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.endpoint.client import Endpoint
from r3l.endpoint.context_limits import ContextRoom, limit_of_model, limit_of_properties, room_of_refusal
from r3l.endpoint.options import DialogTooLongError, EndpointOptions, ServerError
from r3l.files.yaml_files import read_yaml

VLLM = "This model's maximum context length is 4096 tokens. "


def error(message, **fields):
    return json.dumps({"error": {"message": message, **fields}})


REFUSALS = read_yaml(Path(__file__).with_name("refusals.yaml"))


@pytest.mark.parametrize("server", REFUSALS)
def test_a_full_context_in_the_words_of_many_servers(server):
    refusal = REFUSALS[server]
    assert room_of_refusal(refusal["status"], refusal["text"]) == ContextRoom(*refusal["room"])


OTHER = [
    (400, error("chat template error: 'context' is undefined")),
    (400, error("Template error: maximum context length is not defined", type="BadRequestError")),
    (400, error("This model does not support the field context_window")),
    (401, error("context_length_exceeded", code="context_length_exceeded")),
    (429, error("Request too large: limit of 8000 tokens per minute exceeded", code="rate_limit_exceeded")),
    (402, error("Model length limit exceeded for the free plan; add credits")),
    (400, error("Too many tokens used this month; quota exceeded")),
    (503, error("Request limit exceeded: too many tokens per day")),
    (
        400,
        json.dumps(
            {"message": "Too many tokens, please wait before trying again.", "__type": "ThrottlingException"}
        ),
    ),
    (400, error("Your session limit has been exceeded; sign in again")),
    (500, error("CUDA out of memory: model size exceeds what is free")),
    (500, error("input is too large to process. increase the physical batch size")),
    (413, "<html>413 Request Entity Too Large: prompt size exceeds 1 MB</html>"),
    (400, error("Image input size exceeds 20 MB")),
    (400, "[" * 100_000),
]


@pytest.mark.parametrize(("status", "text"), OTHER)
def test_other_refusals_are_no_full_context(status, text):
    assert room_of_refusal(status, text) is None


def ask(answer, tokens=4096, counts=None, **options):
    """(text of the answer, requests)."""

    async def run(url):
        async with Endpoint(EndpointOptions(url, "tiny", **options)) as endpoint:
            try:
                return (await endpoint.chat([Message("user", "2+2?")], Sampling(0.0, tokens), (0,))).text
            finally:
                (counts if counts is not None else {}).update(endpoint.counts)

    with serving(answer) as (url, seen):
        return asyncio.run(run(url)), seen


def with_room(limit, refusal, prompt=90):
    """A server with room for ``limit`` tokens, which refuses with ``refusal(requested)``."""

    def answer(request, before):
        wanted = request.get("max_tokens", request.get("max_completion_tokens"))
        if prompt + wanted > limit:
            return 400, refusal(prompt + wanted)
        status, body = completion("4")
        return status, body | {"usage": {"prompt_tokens": prompt, "completion_tokens": 1}}

    return answer


def test_less_is_asked_for_where_the_server_has_less_room():
    counts = {}
    refusal = lambda requested: error(f"{VLLM}However, you requested {requested} tokens.")  # noqa: E731
    text, seen = ask(with_room(4096, refusal), counts=counts)
    assert text == "4" and [request["max_tokens"] for request in seen] == [4096, 4006]
    assert counts == {"requests": 2, "shortened": 1}


@pytest.mark.parametrize("version", ["vllm 0.15", "vllm 0.16"])
def test_a_limit_of_the_prompt_alone_leaves_room(version):
    """vLLM since 0.15 names the context less max_tokens: 76 of 1100."""
    text = REFUSALS[version]["text"]
    counts = {}
    answer, seen = ask(with_room(1100, lambda requested: text, prompt=300), tokens=1024, counts=counts)
    assert answer == "4" and [request["max_tokens"] for request in seen] == [1024, 800]
    assert counts == {"requests": 2, "shortened": 1}


def test_a_negative_limit_of_the_prompt_leaves_room():
    """The requested response alone exceeds the context."""
    text = REFUSALS["vllm 0.15"]["text"].replace("is 76 tokens", "is -900 tokens")
    answer, seen = ask(with_room(1100, lambda requested: text, prompt=300), tokens=2000)
    assert answer == "4" and [request["max_tokens"] for request in seen] == [2000, 800]


def test_a_limit_of_the_prompt_alone_in_unknown_words_leaves_room():
    """It looks like a context that is smaller than the prompt: a single token shows that it is none."""
    words = error(
        "context length exceeded: this model's maximum context length is 76 tokens, the prompt has 300 tokens"
    )
    text, seen = ask(with_room(1100, lambda requested: words, prompt=300), tokens=1024)
    assert text == "4" and [request["max_tokens"] for request in seen] == [1024, 1, 800]


def test_where_the_refusal_names_no_prompt_one_token_is_asked_for():
    """Its answer says how many the prompt has."""
    refusal = lambda requested: error(f"{VLLM}However, you requested {requested - 90} output tokens.")  # noqa: E731
    text, seen = ask(with_room(4096, refusal))
    assert text == "4" and [request["max_tokens"] for request in seen] == [4096, 1, 4006]


def test_a_dialog_that_has_no_room_for_a_token_ends():
    for words in (VLLM + "However, your request has 5000 input tokens.", "context length exceeded"):
        with pytest.raises(DialogTooLongError):
            ask(lambda request, before, words=words: (400, error(words)))


def test_a_server_that_hides_its_limit_is_an_error_that_says_so():
    with pytest.raises(ServerError, match="does not say how long: ask for fewer tokens") as refused:
        ask(with_room(4096, lambda requested: error("context length exceeded")))
    assert not isinstance(refused.value, DialogTooLongError)


def test_a_refusal_for_another_reason_quotes_the_server():
    words = "chat template: \x1b[31m'context'\x1b[0m\nis undefined"
    with pytest.raises(
        ServerError, match="answered 400: chat template: 'context' is undefined. A refused"
    ) as refused:
        ask(lambda request, before: (400, error(words)))
    assert str(refused.value).isprintable() and not isinstance(refused.value, DialogTooLongError)


def test_a_room_of_refusal_with_a_servers_error_is_not_waited_out():
    seen = []
    full = error("no room", type="exceed_context_size_error", n_prompt_tokens=5000, n_ctx=4096)
    with pytest.raises(DialogTooLongError):
        ask(lambda request, before: seen.append(before) or (500, full))
    assert seen == [0, 1]  # a single token is tried


def test_limits_where_servers_state_them():
    assert (
        limit_of_model({"data": [{"id": "a", "max_model_len": 7}, {"id": "b", "max_model_len": 9}]}, "b") == 9
    )
    assert limit_of_model({"data": [{"id": "a", "meta": {"n_ctx": 512, "n_ctx_train": 8192}}]}, "b") == 512
    assert limit_of_model({"data": [{"id": "a", "context_length": 7}]}, "a") == 7
    assert limit_of_model({"data": [{"id": "a"}, {"id": "c", "max_context_length": 7}]}, "b") is None
    for lie in (
        None,
        [],
        {"data": 4},
        {"data": [4]},
        {"data": [{"id": "a", "max_model_len": -1}]},
        {"data": [{}]},
    ):
        assert limit_of_model(lie, "a") is None
    assert limit_of_properties({"default_generation_settings": {"n_ctx": 256}, "n_ctx": True}) == 256
    assert limit_of_properties({"n_ctx": 10**400}) is None and limit_of_properties("no") is None


@pytest.mark.parametrize("word", ["too long ", "exceed", "input ", "maximum context length is 5 "])
def test_the_reason_is_found_in_an_error_of_16_mib(word):
    """It may stand before or after a repeated prompt; searching all of it would take a minute."""
    room_of_refusal(400, word * (2**24 // len(word)))
    reason = "This model's maximum context length is 100 tokens"
    for text in (reason + word * 10**6, "x" * 10**6 + reason):
        room = room_of_refusal(400, json.dumps({"error": {"message": text}}))
        assert room is not None and room.limit == 100
