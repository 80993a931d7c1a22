"""Attempts that fail, at a real HTTP server: which are repeated, how often, and after which pause."""

import asyncio
import re
import socket
import threading
import time
from email.utils import formatdate

import pytest
from chat_requests import ADDRESS, DIALOG, SAMPLING, ask, choice
from chat_server import completion, serving

from r3l.endpoint import connection
from r3l.endpoint.client import Endpoint
from r3l.endpoint.connection import ATTEMPTS, LATE_ATTEMPTS
from r3l.endpoint.options import EndpointOptions, ServerError

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


def late(request, before):
    time.sleep(3)
    return completion("4")


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        (late, "TimeoutError"),
        (lambda request, before: completion("Let", "content_filter"), "content_filter"),
        (lambda request, before: (500, "out of memory"), "500"),
    ],
)
def test_failures_of_another_kind_make_none_final(third, reason):
    """Two refusals of a busy server, and one failure of a kind that is final at the third."""

    def answer(request, before):
        return (503, "busy") if before < 2 else third(request, before) if before == 2 else completion("4")

    counts = {}
    with serving(answer) as (url, seen):
        assert ask(url, counts, deadline=2.0).text == "4" and len(seen) == 4
    assert counts == {"requests": 4, "repeated/503": 2, f"repeated/{reason}": 1}


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


def answered(**changes):
    status, body = completion("4")
    return status, body | changes


STRANGE = {
    "no JSON": (200, "<html>"),
    "half of it": (200, '{"choices": [{"mess'),
    "no text at all": (200, "\udcff\udcfe".encode("utf-8", "surrogateescape").decode("latin-1")),
    "an error": (200, {"error": {"message": "overloaded"}, "choices": None}),
    "a number for text": answered(choices=[{"message": {"content": 4}, "finish_reason": "stop"}]),
    "a block of another kind": answered(
        choices=[{"message": {"content": [{"type": "image_url"}]}, "finish_reason": "stop"}]
    ),
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


def test_a_server_that_fails_from_the_first_is_asked_a_few_times():
    with serving(lambda request, before: (500, "Internal Server Error")) as (url, seen):
        with pytest.raises(ServerError, match="answered 500: Internal Server Error"):
            ask(url)
        assert len(seen) == LATE_ATTEMPTS
