"""One attempt at a request: deadline, checks of the answer, counts of failures, and their errors.

It is the HTTP client that the `openai` package sends through, because only there every attempt is seen:
attempts are counted by how they failed; a deadline covers the complete answer, not the pause between two
packets; and a body is bounded and checked, so that a request that got half a page is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from r3l.endpoint.answer_fields import UnfinishedAnswer
from r3l.endpoint.context_limits import LONGEST, message, room_of_refusal
from r3l.endpoint.options import (
    KEPT,
    DialogTooLongError,
    EndpointOptions,
    RefusedRequestError,
    ServerError,
    UnfinishedError,
)
from r3l.endpoint.responses import (
    Answer,
    ChatAnswer,
    ModelList,
    TokenAnswer,
    UnusableAnswer,
)
from r3l.files.redact import KEY, masked_message

log = logging.getLogger(__name__)
ATTEMPTS = 20  # of one request; pauses of up to 8 s add up to two minutes, in which a server can restart
# Missed deadlines, and filtered or unknown answers, are final the third time: each takes long, or comes
# again.
LATE_ATTEMPTS = 3
LARGEST_BODY = 2**24  # bytes, unpacked; a response of 100,000 tokens takes one MiB
QUIET = 5.0  # seconds between warnings: dialogs that wait for one server all have the same to report
# Seconds without an answer before a warning and a check that the server still listens; our choice.
NOTICE = 60.0
_TERMINAL = re.compile("\x1b\\[[0-9;]*[A-Za-z]")  # colours
_KINDS: dict[str, type[Answer]] = {
    "/chat/completions": ChatAnswer,
    "/completions": TokenAnswer,
    "/models": ModelList,
}
# Failed attempts at the request that this task sends, by reason; None: its answer is optional, and a failure
# is not counted.
FAILURES: ContextVar[Counter[str] | None] = ContextVar("failures", default=None)
# Before a server's first answer these mean, most likely, that there is no such server.
_FINAL_AT_FIRST = (httpx2.ConnectError, httpx2.ConnectTimeout, UnusableAnswer)
ReceivedT = TypeVar("ReceivedT")


class Connection(httpx2.AsyncClient):
    """HTTP client that the openai package sends each attempt at a request through.

    It adds a deadline, checks the answer, and counts attempts in ``counts``, and failed ones of one request
    in FAILURES. openai's client repeats an attempt after one of httpx2's errors, not after a ServerError.
    """

    def __init__(self, options: EndpointOptions, counts: Counter[str]) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=None))
        self._options = options
        self._counts = counts
        self._has_answered = False  # with a completion: it is a server of the protocol
        self._is_there = False  # it has answered anything at all
        self._warned = float("-inf")  # time of the last warning
        self._answered = float("-inf")  # time of the last answer

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one attempt at ``request``, read the response to its end and check it.

        A checked answer is in the response's ``extensions["answer"]`` (None if the server refused). Raises
        httpx2's errors for what may be repeated, ServerError for what is final.
        """
        self._counts["requests"] += 1
        response, content, answer = await self._attempt(request, options)
        self._is_there = True
        self._answered = time.monotonic()

        status = response.status_code
        final = False
        if answer is not None:
            self._has_answered = True
        elif status in (408, 409, 429) or status >= 500:  # repeated by openai's client
            failures = self._count(str(status))
            # A server that fails before it has ever answered fails at every request; a busy one says so
            # (503).
            final = status == 500 and failures >= LATE_ATTEMPTS and not self._has_answered
        if status >= 500:  # a pause would not give it more room
            final = final or room_of_refusal(status, content.decode(errors="replace")) is not None

        # Hand the answer to openai's client. The body is now unpacked UTF-8; its headers may differ: a
        # server may name a character set that does not exist.
        changed = (b"content-encoding", b"content-type")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in changed]
        if final:
            headers.append((b"x-should-retry", b"false"))
        return httpx2.Response(
            status,
            headers=headers,
            content=content,
            request=request,
            extensions={"answer": answer},
        )

    async def _attempt(
        self,
        request: httpx2.Request,
        options: dict[str, Any],
    ) -> tuple[httpx2.Response, bytes, Answer | None]:
        """Receive a response before the deadline: itself, its body, and the checked answer if it is one.

        What may be an accident is raised as it is, to be repeated by openai's client; what would come again
        is a ServerError, which is final, some of it only when it has come LATE_ATTEMPTS times.
        """
        path = request.url.path.removeprefix(urlsplit(self._options.base).path)
        try:
            async with asyncio.timeout(self._options.deadline):
                response, content = await self._watched(self._receive(request, options))
            answer = _KINDS.get(path, Answer).read(content) if response.is_success else None
            if answer is not None:
                answer.check_complete()
        except UnfinishedAnswer as error:
            self._has_answered = True
            if self._count(error.reason) >= LATE_ATTEMPTS and error.lasting:
                raise failure(self._options, path, error) from None
            raise
        except TimeoutError as error:
            if self._count("TimeoutError") >= LATE_ATTEMPTS:
                raise failure(self._options, path, error) from None
            raise httpx2.ReadTimeout("no answer before the deadline", request=request) from error
        except (httpx2.TransportError, UnusableAnswer) as error:
            failures = self._count(type(error).__name__)
            # Before any answer there is most likely no such server. One attempt shows that nothing listens,
            # or that it speaks another protocol; a connection that breaks may be an accident a few times.
            unlikely = isinstance(error, _FINAL_AT_FIRST) or failures >= LATE_ATTEMPTS
            is_there = self._is_there and not isinstance(error, UnusableAnswer)
            if unlikely and not (self._has_answered or is_there):
                raise failure(self._options, path, error) from None
            raise
        return response, content, answer

    async def _receive(
        self,
        request: httpx2.Request,
        options: dict[str, Any],
    ) -> tuple[httpx2.Response, bytes]:
        """An answer and its body. Raises UnusableAnswer if it is too large, or not compressed as it says."""
        response = await super().send(request, **options | {"stream": True})
        # Piece by piece, so that a body without end is refused before it fills the memory.
        content = bytearray()
        try:
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > LARGEST_BODY:
                    reason = f"it is longer than {LARGEST_BODY / 2**20:.0f} MiB"
                    raise UnusableAnswer(reason, bytes(content[:100]))
        except httpx2.DecodingError as error:
            raise UnusableAnswer(f"it is not compressed as it says ({error})") from error
        finally:
            await response.aclose()
        return response, bytes(content)

    async def _watched(self, receiving: Coroutine[Any, Any, ReceivedT]) -> ReceivedT:
        """Wait for ``receiving``, with warnings, and end it if the server is down.

        A server that stops may keep its connections open; the attempt has failed if nothing listens at its
        address.
        """
        task = asyncio.ensure_future(receiving)
        began = time.monotonic()
        try:
            # Each NOTICE seconds without an answer: does the server still listen?
            while not (await asyncio.wait({task}, timeout=NOTICE))[0]:
                try:
                    await asyncio.to_thread(self._options.check_there)
                except ServerError as error:
                    raise httpx2.ReadError("nothing listens there any more") from error
                silent = time.monotonic() - max(began, self._answered)
                if silent >= NOTICE:
                    setting = self._options.settable.deadline
                    longest = f"{self._options.deadline:g} s ({setting})"
                    self._warn(f"no answer for {silent:.0f} s; waiting up to {longest}")
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _count(self, reason: str) -> int:
        """Count a failed attempt, and warn of it, unless the answer is optional (then 0).

        Returns how many attempts at this request failed for ``reason``.
        """
        failures = FAILURES.get()
        if failures is None:
            return 0
        failures[reason] += 1
        self._counts[f"repeated/{reason}"] += 1
        self._warn(f"an attempt failed ({reason})")
        return failures[reason]

    def _warn(self, what: str) -> None:
        """Log a warning, unless there was one a moment ago."""
        now = time.monotonic()
        if now - self._warned >= QUIET:
            self._warned = now
            log.warning("%s: %s", self._options.shown, what)


def refusal(options: EndpointOptions, path: str, response: httpx2.Response) -> ServerError:
    """The error to raise for a request that the server has refused with ``response``; raises nothing.

    A DialogTooLongError if its reason is a full context, a RefusedRequestError for another status 400 or 422.
    ``path``: the request's, for the message.
    """
    where = options.shown + path
    status = response.status_code
    text = response.content.decode(errors="replace")
    reason = one_line(message(text))[:300]
    room = room_of_refusal(status, text)
    if room is not None:
        return DialogTooLongError(f"{where} answered {status}: {reason}", room)
    advice = {
        400: f"A refused request is not scored. {KEPT}",
        401: f"Put the server's key into {KEY}",
        403: f"Is the key in {KEY} the right one?",
    }
    wait = response.headers.get("retry-after")
    further = f" (it asks to wait {one_line(wait)[:40]})" if wait else ""
    kind = RefusedRequestError if status in (400, 422) else ServerError
    return kind(f"{where} answered {status}: {reason}{further}. {advice.get(status, KEPT)}")


def failure(options: EndpointOptions, path: str, error: BaseException) -> ServerError:
    """The error to raise for a request that got no usable answer because of ``error``; raises nothing.

    An UnfinishedError if the answers stay incomplete. ``path``: the request's, for the message.
    """
    where = options.shown + path
    settable = options.settable
    # Each kind of failure has its own advice; the last one is a connection that failed.
    if isinstance(error, TimeoutError):
        return ServerError(
            f"{where} gave no answer within {options.deadline:g} s, {LATE_ATTEMPTS} times. Raise "
            f"{settable.deadline}, lower {settable.concurrency}, or check the server. {KEPT}"
        )
    if isinstance(error, UnusableAnswer):
        return ServerError(
            f"{where} did not answer with a completion ({error}; it begins "
            f"{one_line(error.text)[:80]!r}). Is {settable.url} the address of an OpenAI-compatible "
            f"server? {KEPT}"
        )
    if isinstance(error, UnfinishedAnswer):
        return UnfinishedError(
            f"{where} gave no complete answer, also when asked again "
            f"({one_line(str(error))[:300]}). A response that may be incomplete is not scored: check the "
            f"server. {KEPT}",
            error.reason if error.lasting else None,
        )
    reason = f"{type(error).__name__}: {one_line(str(error))}"
    advice = f"Start the server, or correct {settable.url}. {KEPT}"
    return ServerError(f"{where} cannot be reached ({reason}). {advice}")


def one_line(text: str) -> str:
    """A server's message on one line: at most 4,000 characters, no control codes, secrets masked."""
    shown = _TERMINAL.sub(" ", masked_message(text)[:LONGEST])
    plain = "".join(sign if sign.isprintable() else " " for sign in shown)
    return " ".join(plain.split())
