"""The client against a real HTTP server: requests, retries, refusals, and answers that are no completion."""

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from email.utils import formatdate
from http.server import SimpleHTTPRequestHandler

import pytest
from chat_server import Server, completion, serving
from openai._models import FinalRequestOptions

from r3l.core.errors import ConfigError
from r3l.core.policy import FinishReason, Sampling, Usage
from r3l.core.seeds import seed_of
from r3l.core.text import Message
from r3l.endpoint import connection
from r3l.endpoint.client import Endpoint, about_model, only_model
from r3l.endpoint.connection import ATTEMPTS, LATE_ATTEMPTS
from r3l.endpoint.options import EndpointOptions, ServerError
from r3l.endpoint.responses import ChatAnswer, TokenAnswer, UnusableAnswer

DIALOG = [Message("system", "Be brief."), Message("user", "2+2?")]
ADDRESS = (0, "benchmark", "q", 0)
SAMPLING = Sampling(0.5, 9)


def ask(url, counts=None, times=1, **options):
    """The last of ``times`` answers; what was counted goes into ``counts``."""

    async def run():
        async with Endpoint(EndpointOptions(url, "tiny", **options)) as endpoint:
            try:
                return [await endpoint.chat(DIALOG, SAMPLING, ADDRESS) for _ in range(times)][-1]
            finally:
                (counts if counts is not None else {}).update(endpoint.counts)

    return asyncio.run(run())


def said(answer):
    return answer.text, answer.finish_reason, answer.counted


@pytest.mark.parametrize(
    "suffix", ["/v1?api-version=1&x=", "?api-version=1&x=", "/v1/?api-version=1&x=#part"]
)
def test_the_query_of_an_address_goes_with_every_request(suffix):
    """As Azure needs it; messages and files do not show it, since it may hold a key."""
    with serving(lambda request, before: completion("4")) as (url, seen):
        assert ask(url + suffix).text == "4"
        assert EndpointOptions(url + suffix, "tiny").shown == f"{url}/v1"
    assert seen[0]["path"] == "/v1/chat/completions?api-version=1&x="


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_request_and_its_answer(monkeypatch, suffix):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda request, before: completion("4")) as (url, seen):
        assert said(ask(url + suffix)) == ("4", FinishReason.END, Usage(0, 5))
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


def test_further_fields_and_those_left_out():
    with serving(lambda request, before: completion("4")) as (url, seen):
        ask(url, fields={"top_p": 0.9, "seed": None, "max_tokens": None, "max_completion_tokens": 9})
    assert {"top_p": 0.9, "max_completion_tokens": 9}.items() <= seen[0].items()
    assert not {"seed", "max_tokens"} & set(seen[0])


def choice(content, reason="stop", **more):
    return {"message": {"content": content}, "finish_reason": reason} | more


def test_what_servers_add_or_leave_out():
    message = {"content": "4", "reasoning_content": "two and two"}
    answers = [
        (200, {"choices": [{"message": message, "finish_reason": "length"}]}),
        (200, {"choices": [{"message": {"content": "4", "reasoning": "2, 2"}, "finish_reason": "stop"}]}),
        (200, {"choices": [choice("4")], "usage": None}),
        (200, {"choices": [choice("4")], "usage": {"prompt_tokens": None, "completion_tokens": None}}),
        (200, {"choices": [choice("4")], "usage": {"prompt_tokens": 7, "completion_tokens": None}}),
        (200, {"choices": [choice("5", index=1), choice("4", index=0), choice("6", index=2)]}),
        (200, {"choices": [choice("4", index=3)]}),
    ]
    counts = {}
    with serving(lambda request, before: answers[before]) as (url, _):
        assert said(ask(url)) == ("<think>two and two</think>4", FinishReason.LENGTH, None)
        assert said(ask(url)) == ("<think>2, 2</think>4", FinishReason.END, None)
        assert said(ask(url, counts)) == ("4", FinishReason.END, None) and counts == {
            "requests": 1,
            "uncounted": 1,
        }
        assert said(ask(url)) == ("4", FinishReason.END, None)
        assert said(ask(url)) == ("4", FinishReason.END, Usage(7, 0))
        assert said(ask(url)) == ("4", FinishReason.END, None)
        assert said(ask(url)) == ("4", FinishReason.END, None)


END_MARKS = ["<|im_end|>", "<|end|>\n", "</s>", "<end_of_turn>", "<|eot_id|><|end_of_text|>"]
# DeepSeek's, Gemma 4's, Seed-OSS's, EXAONE's, Hunyuan's
END_MARKS += [
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<turn|>",
    "<seed:eos>",
    "[|endofturn|]",
    "<\uff5chy_eos\uff5c>",
]


@pytest.mark.parametrize("mark", END_MARKS)
def test_an_end_of_turn_that_the_server_leaves_in_the_text_is_taken_off(mark):
    """Otherwise the next prompt would have it twice."""
    counts, text = {}, "<action>look</action>"
    with serving(lambda request, before: completion(text + mark)) as (url, _):
        assert said(ask(url, counts))[0] == text and counts["end_marks"] == 1
    for kept in (
        text,
        "a <|b|> c",
        "x<y>",
        "<s>",
        "<answer>4</answer>",
        "|x|>",
        "[4]",
        "a <eos> b",
        "[[x|y]]",
    ):
        with serving(lambda request, before, kept=kept: completion(kept)) as (url, _):
            assert said(ask(url))[0] == kept


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "length"), ("", "length"), ("", "stop"), (None, "stop")]
)
def test_a_thought_that_was_cut_off_is_not_closed(content, reason):
    message = {"content": content, "reasoning_content": "two and"}
    ended = FinishReason.LENGTH if reason == "length" else FinishReason.END
    with serving(
        lambda request, before: (
            200,
            {"choices": [choice("") | {"message": message, "finish_reason": reason}]},
        )
    ) as (url, _):
        assert said(ask(url)) == ("<think>two and", ended, None)


ENDS = ["stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE"]
LENGTHS = ["length", "max_tokens", "MAX_TOKENS", "model_length", "LENGTH", "max_output_tokens"]


@pytest.mark.parametrize("reason", [*ENDS, *LENGTHS])
def test_known_ends_in_the_words_of_many_servers(reason):
    with serving(lambda request, before: completion("4", reason)) as (url, _):
        assert ask(url).finish_reason is (FinishReason.END if reason in ENDS else FinishReason.LENGTH)


UNFINISHED = {  # choice, name in the counts, whether it may be an accident
    "abort": (choice("Let me see, 2", "abort"), "abort", True),
    "an error in the choice": (
        choice("", "error", error={"code": 502, "message": "upstream gone"}),
        "error",
        True,
    ),
    "null": (choice("Let me", None), "null", False),
    "a filter": (choice("Let", "content_filter"), "content_filter", False),
    "no text": (choice(None), "stop", False),
    "words of its own": (choice("Let", "my \x1b[31mown\nwords"), "other", False),
    "a tool": (choice(None, "tool_calls"), "tool_calls", False),
}


@pytest.mark.parametrize("unfinished", UNFINISHED)
def test_a_broken_off_answer_is_asked_for_again_then_an_error(unfinished):
    broken, reason, accident = UNFINISHED[unfinished]
    counts = {}
    with serving(lambda request, before: completion("4") if before else (200, {"choices": [broken]})) as (
        url,
        _,
    ):
        assert ask(url, counts).text == "4" and counts == {"requests": 2, f"repeated/{reason}": 1}
    with serving(lambda request, before: (200, {"choices": [broken]})) as (url, seen):
        with pytest.raises(
            ServerError, match=r"gave no complete answer.*\(finish_reason .* is not scored"
        ) as refused:
            ask(url)
        assert len(seen) == (ATTEMPTS if accident else LATE_ATTEMPTS) and str(refused.value).isprintable()


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_busy_server_is_asked_again_and_that_is_counted(status):
    counts = {}
    with serving(lambda request, before: completion("4") if before == 2 else (status, "later")) as (
        url,
        seen,
    ):
        assert ask(url, counts).text == "4" and len(seen) == 3
        assert seen[0] == seen[2]  # the same request, the same seed
    assert counts == {"requests": 3, f"repeated/{status}": 2}


def test_a_server_that_stays_busy_is_given_up():
    with serving(lambda request, before: (503, "loading")) as (url, seen):
        with pytest.raises(
            ServerError, match="answered 503: loading. Finished episodes are kept: re-run to resume"
        ):
            ask(url)
        assert len(seen) == ATTEMPTS


def test_a_server_that_hangs_is_asked_again_a_few_times():
    def hangs(request, before):
        time.sleep(0.8)
        return completion("4")

    counts = {}
    with serving(hangs) as (url, seen):
        with pytest.raises(ServerError, match=r"no answer within 0.4 s, 3 times. Raise --deadline"):
            ask(url, counts, deadline=0.4)
        assert counts["repeated/TimeoutError"] == LATE_ATTEMPTS
        assert (
            1 <= len(seen) <= LATE_ATTEMPTS
        )  # on a busy machine the time may be over before a request is sent


def test_a_long_wait_says_so_and_ends_where_the_server_has_gone(monkeypatch, caplog):
    """It took the request and stopped, with the connection still open: no answer will come."""
    monkeypatch.setattr(connection, "NOTICE", 0.2)
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"

    def stop():
        connections.append(server.accept()[0])
        time.sleep(0.5)
        server.close()

    connections = []
    thread = threading.Thread(target=stop)
    thread.start()
    began = time.monotonic()
    with pytest.raises(ServerError, match="cannot be reached"):
        ask(url, deadline=60)
    assert time.monotonic() - began < 30
    assert re.search(r"no answer for \d s; waiting up to 60 s \(--deadline\)", caplog.text)
    thread.join()
    connections[0].close()


ECHOES = {
    "an error page": (401, "bad key: sk-secret/1"),
    "the header": (
        403,
        {"headers": {"Authorization": "Bearer sk-other", "authorization": "Basic dXNlcjp3b3JkNw=="}},
    ),
    "as JSON spells it": (400, '{"key": "sk-secret/1", "user": "user:word7"}'),
    "cut in two by the end of the message": (418, "." * 295 + "sk-secret/1"),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_what_a_server_echoes_of_its_secrets_is_masked(monkeypatch, echo):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret/1")
    with serving(lambda request, before: ECHOES[echo]) as (url, _), pytest.raises(ServerError) as refused:
        ask(url.replace("//", "//user:word7@"))
    assert not [part for part in ("sk-", "word7", "dXNl", "c2st") if part in str(refused.value)], (
        refused.value
    )


@pytest.mark.parametrize("key", ["sk-secret\n", "sk secret", "sk-sécret"])
def test_a_key_that_no_header_can_carry_is_refused_unread(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="the key in OPENAI_API_KEY has spaces, line breaks") as refused:
        ask("http://localhost:1")
    assert "cret" not in str(refused.value)


def answered(**changes):
    status, body = completion("4")
    return status, body | changes


STRANGE = {
    "no JSON": (200, "<html>"),
    "half of it": (200, '{"choices": [{"mess'),
    "no text at all": (200, "\udcff\udcfe".encode("utf-8", "surrogateescape").decode("latin-1")),
    "an error": (200, {"error": {"message": "overloaded"}, "choices": None}),
    "a number for text": answered(choices=[{"message": {"content": 4}, "finish_reason": "stop"}]),
    "a negative count": answered(usage={"completion_tokens": -1}),
    "a count of 400 digits": (200, '{"choices": [], "usage": {"completion_tokens": ' + "4" * 400 + "}}"),
    "not compressed as it says": (200, "{}", {"Content-Encoding": "gzip"}),
    "an unknown character set": (200, "not JSON", {"Content-Type": "text/plain; charset=x-\xe9"}),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_answer_is_final_at_first_and_repeated_later(strange):
    with serving(lambda request, before: STRANGE[strange]) as (url, seen):
        with pytest.raises(
            ServerError, match="did not answer with a completion .*Is --server the"
        ) as refused:
            ask(url)
        assert len(seen) == 1 and "\n" not in str(refused.value)
    counts = {}
    with serving(lambda request, before: STRANGE[strange] if before == 1 else completion("4")) as (url, _):
        assert ask(url, counts, times=2).text == "4"
    assert counts == {"requests": 3, "repeated/UnusableAnswer": 1}


def test_a_body_is_bounded_packed_or_not(monkeypatch):
    monkeypatch.setattr(connection, "LARGEST_BODY", 10_000)
    packed = gzip.compress(b" " * 20_000).decode("latin-1")
    for large in ((200, " " * 20_000), (200, packed.encode("latin-1"), {"Content-Encoding": "gzip"})):
        refused = pytest.raises(ServerError, match=r"it is longer than 0 MiB; it begins")
        with serving(lambda request, before, large=large: large) as (url, _), refused:
            ask(url)


@pytest.mark.parametrize(
    "content",
    [
        '{"choices": [' + "{}," * 300_000 + "{}]}",
        '{"choices": [' + "0," * 1_000_000 + "0]}",
        '{"choices": [], "logprobs": [' + "0," * 2_000_000 + "0]}",
    ],
)
def test_a_million_choices_are_refused_unread(content):
    """Reading them took 26 s, in which no other dialog went on."""
    with pytest.raises(
        UnusableAnswer, match="more than 500,000 values|choices: List should have at most 128"
    ):
        ChatAnswer.read(content.encode())


@pytest.mark.parametrize(
    ("url", "is_openai"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com", True),
        ("https://api.openai.com.evil.org", False),
        ("http://notopenai.com", False),
        ("http://localhost:8000", False),
    ],
)
def test_the_organisation_is_named_to_openai_alone(monkeypatch, url, is_openai):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")

    async def headers():
        async with Endpoint(EndpointOptions(url, "tiny")) as endpoint:
            request = FinalRequestOptions.construct(method="post", url="/chat/completions")
            return endpoint._client._build_request(request).headers

    sent = asyncio.run(headers())
    assert ("OpenAI-Organization" in sent) == ("OpenAI-Project" in sent) == is_openai


@pytest.mark.parametrize("pause", ["\xb2", "-1", "Wed, 21 Oct 2015 07:28:00 GMT", "nan"])
def test_a_pause_that_cannot_be_waited_for_is_not(pause):
    busy = (503, "later", {"Retry-After": pause})
    with serving(lambda request, before: completion("4") if before else busy) as (url, _):
        assert ask(url).text == "4"


@pytest.mark.parametrize("date", [False, True])
def test_a_pause_that_the_server_asks_for_is_obeyed_in_both_forms(date):
    until = formatdate(time.time() + 2, usegmt=True) if date else "1"
    busy, began = (429, "later", {"Retry-After": until}), time.monotonic()
    with serving(lambda request, before: completion("4") if before else busy) as (url, _):
        assert ask(url).text == "4"
    assert 0.5 < time.monotonic() - began < 10


def test_a_pause_of_an_hour_is_an_error_that_says_so():
    busy = (429, "quota", {"Retry-After": "3600"})
    with serving(lambda request, before: busy) as (url, seen):
        with pytest.raises(ServerError, match=r"answered 429: quota \(it asks to wait 3600\)"):
            ask(url)
        assert len(seen) == 1


@pytest.mark.parametrize("token", [-1, 2**31, 1.0, "1", True, None])
def test_a_token_that_is_no_token_number_is_refused(token):
    with pytest.raises(UnusableAnswer, match=r"choices.0.token_ids.0: Input should be"):
        TokenAnswer.read(json.dumps({"choices": [{"token_ids": [token]}]}).encode())


def test_a_server_that_restarts_is_waited_for(caplog):
    async def run():
        with serving(lambda request, before: completion("4")) as (url, _):
            endpoint = Endpoint(EndpointOptions(url, "tiny"))
            await endpoint.chat(DIALOG, SAMPLING, ADDRESS)
        with pytest.raises(ServerError, match="cannot be reached"):
            await endpoint.chat(DIALOG, SAMPLING, ADDRESS)
        await endpoint.close()
        return endpoint.counts

    counts = asyncio.run(run())
    assert counts["requests"] == 1 + ATTEMPTS and sum(counts.values()) == 1 + 2 * ATTEMPTS
    assert "an attempt failed" in caplog.text


def test_the_only_model_needs_no_name():
    def name(url):
        return asyncio.run(only_model(EndpointOptions(url, "")))

    with serving(lambda request, before: completion("4")) as (url, _):
        assert name(url) == "tiny"
    wanted = pytest.raises(ServerError, match="serves a, b; choose with --model NAME")
    with serving(lambda request, before: completion("4"), models=("a", "b")) as (url, _), wanted:
        name(url)


def test_a_server_that_fails_from_the_first_is_asked_a_few_times():
    with serving(lambda request, before: (500, "Internal Server Error")) as (url, seen):
        with pytest.raises(ServerError, match="answered 500: Internal Server Error"):
            ask(url)
        assert len(seen) == LATE_ATTEMPTS


def test_a_server_that_cannot_list_its_models_is_told_which_one(caplog):
    class Unlisted(SimpleHTTPRequestHandler):
        def do_GET(self):
            count.append(1)
            self.send_error(500)

        def log_message(self, *arguments):
            pass

    count = []
    with Server(("127.0.0.1", 0), Unlisted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(ServerError, match="answered 500.*or name the model: --model NAME"):
            asyncio.run(only_model(EndpointOptions(url, "")))
        assert len(count) == LATE_ATTEMPTS
        caplog.clear()
        assert asyncio.run(about_model(EndpointOptions(url, "tiny"))) == {} and not caplog.text
        server.shutdown()


def test_what_is_no_unicode_is_replaced_and_counted():
    counts = {}
    with serving(lambda request, before: completion("4\udfff\ud800!")) as (url, _):
        assert ask(url, counts, times=2).text == "4\ufffd\ufffd!"
    assert counts == {"requests": 2, "replaced": 4}
    latin_1 = b'{"choices": [{"message": {"content": "caf\xe9"}}]}'
    assert ChatAnswer.read(latin_1).text == "caf\ufffd"


def test_a_response_longer_than_asked_for_is_counted():
    counts = {}
    with serving(lambda request, before: completion("4", tokens=9 + before)) as (url, _):
        ask(url, counts, times=3)
    assert counts == {"requests": 3, "overlong": 2}


def test_a_response_that_the_server_cuts_before_the_limit_is_counted():
    counts = {}
    with serving(lambda request, before: completion("4", "length", tokens=8 + before)) as (url, _):
        ask(url, counts, times=2)
    assert counts == {"requests": 2, "cut_short": 1}


@pytest.mark.parametrize(
    "place", ["", "@", "me:secret@", "secret@/v1", ":8000", "me:secret@:8000", "?secret"]
)
def test_an_address_without_a_host_is_refused_without_its_secrets(place):
    with pytest.raises(ConfigError, match="must be an address such as") as refusal:
        EndpointOptions(f"http://{place}", "tiny")
    assert "secret" not in str(refusal.value)
