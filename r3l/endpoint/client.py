"""Client for servers that speak OpenAI's protocol: vLLM, SGLang, llama.cpp, `transformers serve`, hosted
ones.

The `openai` package does most of the work: connections, pauses between attempts, Retry-After in both forms.
Three things are ours, all in the HTTP client that it sends through (``_Connection``), because only there is
every attempt seen: attempts are counted by how they failed; a deadline covers the whole answer, not the
pause between two packets; and a body is bounded and checked, so that a request that got half a page is
repeated. The key is read from the environment and appears in no message, file or log (r3l.files.redact).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

import httpx2
import openai

from r3l.core.errors import ConfigError
from r3l.core.policy import Sampling
from r3l.core.seeds import Address, seed_of
from r3l.core.text import Message
from r3l.endpoint.context_limits import (
    entry_of_model,
    limit_of_model,
    limit_of_properties,
    message,
    room_of_refusal,
)
from r3l.endpoint.options import (
    CONNECT,
    KEPT,
    DialogTooLongError,
    EndpointOptions,
    ServerError,
    UnfinishedError,
)
from r3l.endpoint.responses import (
    Answer,
    ChatAnswer,
    ModelList,
    TokenAnswer,
    UnfinishedAnswer,
    UnusableAnswer,
)
from r3l.files.redact import KEY, masked

log = logging.getLogger(__name__)
ATTEMPTS = 20  # of one request; pauses of up to 8 s add up to two minutes, in which a server can restart
# Missed deadlines, and filtered or unknown answers, are final at the third attempt: each takes long, or
# comes again.
LATE_ATTEMPTS = 3
LARGEST_BODY = 2**24  # bytes, unpacked; a response of 100,000 tokens takes one MiB
QUIET = 5.0  # seconds between warnings: dialogs that wait for one server all have the same to report
# Seconds without an answer before a warning and a check that the server still listens; our choice.
NOTICE = 60.0
_IN_HEADER = re.compile(r"[!-~]*")  # characters of a key that a header can carry
_TERMINAL = re.compile("\x1b\\[[0-9;]*[A-Za-z]")  # colours
_RESPONSE_TOKENS = ("max_tokens", "max_completion_tokens")  # fields of a request
_OF_WEIGHTS = ("root", "parent", "owned_by", "meta")  # fields of an entry of /models
_KINDS: dict[str, type[Answer]] = {
    "/chat/completions": ChatAnswer,
    "/completions": TokenAnswer,
    "/models": ModelList,
}
_ASIDE = "x-r3l-aside"  # marks, inside the client alone, a question whose answer is optional
_OPTIONAL: Any = {"max_retries": 0, "headers": {_ASIDE: "1"}}
# Before a server's first answer these mean, most likely, that there is no such server.
_FINAL_AT_FIRST = (httpx2.ConnectError, httpx2.ConnectTimeout, UnusableAnswer)
AnswerT = TypeVar("AnswerT", bound=Answer)
ReceivedT = TypeVar("ReceivedT")


class Endpoint:
    """Connection to a server; an asynchronous context.

    ``counts``: ``requests``; ``repeated/REASON``, attempts that failed and were repeated or given up;
    ``shortened``, responses for which the server had less room than requested; ``overlong``, responses of
    more tokens than requested; ``cut_short``, responses that the server cut off before that;
    ``cut_prompts``, prompts that it cut; ``uncounted``, answers without token counts; ``replaced``,
    characters that were not Unicode; ``end_marks``, texts that ended with a control token. ``wait``: seconds
    between two attempts if the server asks for no pause (a wait of tenacity); None: up to 8.
    """

    def __init__(self, options: EndpointOptions, wait: Callable[[Any], float] | None = None) -> None:
        self.options = options
        self.counts = Counter[str]()
        self._limit_lock = asyncio.Lock()
        self._limit_is_known = False
        self._limit: int | None = None
        key = os.environ.get(KEY, "")
        if not _IN_HEADER.fullmatch(key):
            raise ConfigError(
                f"the key in {KEY} has spaces, line breaks or characters that no header can carry",
            )
        try:
            self._client = _Client(
                base_url=options.base,
                api_key=key or "none",  # the client requires one; servers without keys ignore it
                max_retries=ATTEMPTS - 1,
                http_client=_Connection(options, self.counts),
                timeout=httpx2.Timeout(None, connect=CONNECT),  # the deadline covers the whole request
            )
            self._client.wait = wait
        except httpx2.InvalidURL as error:
            raise ConfigError(f"the server {options.shown!r} is not a valid address: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def chat(self, messages: Sequence[Message], sampling: Sampling, address: Address) -> ChatAnswer:
        """Sample the next message of a dialog; ``address`` gives the request's seed (r3l.core.seeds).

        Raises ServerError, or DialogTooLongError if the prompt leaves no room for a token.
        """
        content = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        body = content | _request(sampling, address)
        return await self._sample(ChatAnswer, "/chat/completions", body, None)

    async def complete(
        self, ids: Sequence[int], stops: Sequence[int], sampling: Sampling, address: Address
    ) -> TokenAnswer:
        """Sample tokens after the prompt ``ids``, up to and including one of ``stops`` (token ids).

        ``address``: seed address (r3l.core.seeds), which gives the request's seed; not a network address.
        Raises ServerError, or DialogTooLongError if the prompt leaves no room for a token.
        """
        content = {"prompt": list(ids), "stop_token_ids": sorted(stops), "return_token_ids": True}
        body = content | _request(sampling, address)
        return await self._sample(TokenAnswer, "/completions", body, len(ids))

    async def models(self) -> list[str]:
        """Names of the served models. Raises ServerError."""
        return [model.id for model in (await self._ask(ModelList, "/models", None)).data]

    async def about(self) -> dict[str, Any]:
        """Fields of /models that tell weights apart: vLLM's folder, llama.cpp's sizes, of others nothing."""
        entry = entry_of_model(await self._get("/models"), self.options.model)
        return {key: entry[key] for key in _OF_WEIGHTS if entry.get(key) is not None}

    async def _sample(
        self,
        kind: type[AnswerT],
        path: str,
        content: Mapping[str, Any],
        prompt: int | None,
    ) -> AnswerT:
        """Sample a response, a shorter one if the server has less room.

        ``prompt``: number of prompt tokens, if known.

        Raises DialogTooLongError if there is no room for one token, ServerError for all other refusals: a
        refused request is never scored as a wrong answer.
        """
        request = {"model": self.options.model, **content, **self.options.fields}
        body = {key: value for key, value in request.items() if value is not None}
        limits = _response_limits(body)
        requested = _requested_tokens(body)
        try:
            return await self._ask(kind, path, body)
        except DialogTooLongError as error:
            refused = error
        if not requested:
            raise refused

        # Prompt and response do not fit together. Find out how many tokens are left: from the refusal, or
        # from the limit that /models or /props names.
        room = refused.room
        limit = room.limit
        if limit is None and room.input_limit is None:
            limit = await self._context_limit()
        left = room.left(requested, limit, prompt)

        # Request as many as are left. Then, if that is unknown or refused too, a single token: a server may
        # name another limit than we understand, so only a refused token shows that there is no room.
        if left is not None and 0 < left < requested:
            with suppress(DialogTooLongError):
                return await self._shortened(kind, path, body, left)
        if requested == 1:
            raise refused
        answer = await self._ask(kind, path, body | dict.fromkeys(limits, 1))

        # With the single token the server has counted the prompt, so for each limit that it may mean it is
        # known what is left. A limit that is smaller than the prompt was one of the prompt beside the
        # requested response.
        read = answer.read_tokens
        named = room.limit or room.input_limit
        for limit in (room.limit, await self._context_limit(), named and named + requested):
            if limit and read is not None and 0 < limit - read < requested:
                with suppress(DialogTooLongError):
                    return await self._shortened(kind, path, body, limit - read)
        raise ServerError(
            f"{refused}. It has room for a shorter response, but does not say how long: ask for fewer tokens"
        )

    async def _shortened(
        self,
        kind: type[AnswerT],
        path: str,
        body: dict[str, Any],
        tokens: int,
    ) -> AnswerT:
        """Sample a response of at most ``tokens`` and count it as shortened. Raises DialogTooLongError."""
        answer = await self._ask(kind, path, body | dict.fromkeys(_response_limits(body), tokens))
        self.counts["shortened"] += 1
        return answer

    async def _context_limit(self) -> int | None:
        """Most tokens of prompt and response that /models or /props names; both are read once."""
        async with self._limit_lock:
            if not self._limit_is_known:
                self._limit_is_known = True
                self._limit = limit_of_model(await self._get("/models"), self.options.model)
                if self._limit is None:
                    root = self.options.base.removesuffix("/v1")
                    self._limit = limit_of_properties(await self._get(root + "/props"))
        return self._limit

    async def _get(self, path: str) -> Any:
        """JSON that the server answers at the first attempt; None if there is none."""
        try:
            async with asyncio.timeout(CONNECT):
                response = await self._client.get(path, cast_to=httpx2.Response, options=_OPTIONAL)
        except (openai.APIError, ServerError, TimeoutError):
            return None
        return json.loads(response.content)

    async def _ask(self, kind: type[AnswerT], path: str, body: Mapping[str, Any] | None) -> AnswerT:
        """Send a request (GET if ``body`` is None), repeated as needed, and count what the answer lacks."""
        try:
            if body is None:
                response = await self._client.get(path, cast_to=httpx2.Response)
            else:
                response = await self._client.post(path, cast_to=httpx2.Response, body=body)
        except openai.APIStatusError as error:
            raise _refusal(self.options, path, error.response) from None
        except openai.APIConnectionError as error:
            raise _failure(self.options, path, error.__cause__ or error) from None
        answer = response.extensions["answer"]
        assert isinstance(answer, kind)
        if answer.replaced:
            self.counts["replaced"] += answer.replaced
        if answer.has_end_marks:
            self.counts["end_marks"] += 1
        if body is not None and answer.counted is None:
            self.counts["uncounted"] += 1
        limit = _requested_tokens(body) if body is not None else 0
        if limit and answer.counted and answer.counted.response > limit:
            self.counts["overlong"] += 1
        if limit and answer.counted and answer.was_cut and answer.counted.response < limit:
            self.counts["cut_short"] += 1
        return answer


def _response_limits(body: Mapping[str, Any]) -> list[str]:
    """Fields of a request that limit the tokens of its response."""
    return [key for key in _RESPONSE_TOKENS if type(body.get(key)) is int]


def _requested_tokens(body: Mapping[str, Any]) -> int:
    """Most tokens that a response may have; 0 if the request has no limit."""
    return max((body[key] for key in _response_limits(body)), default=0)


class _Client(openai.AsyncOpenAI):
    """The openai package's client with another pause between attempts, for tests and benches."""

    wait: Callable[[Any], float] | None = None

    def _calculate_retry_timeout(
        self,
        remaining_retries: int,
        options: Any,
        response_headers: Any = None,
    ) -> float:
        pause = self._parse_retry_after_header(response_headers)
        if self.wait is not None and not (pause and pause > 0):
            return self.wait(None)
        return super()._calculate_retry_timeout(remaining_retries, options, response_headers)


class _Connection(httpx2.AsyncClient):
    """HTTP client of one attempt; openai's client repeats it after httpx2's errors, not after
    ServerError."""

    def __init__(self, options: EndpointOptions, counts: Counter[str]) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=None))
        self._options = options
        self._counts = counts
        self._has_answered = False  # with a completion: it is a server of the protocol
        self._is_there = False  # it has answered anything at all
        self._warned = self._answered = float("-inf")  # times of the last warning and the last answer

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The answer, read to its end and checked."""
        aside = request.headers.pop(_ASIDE, None) is not None
        self._counts["requests"] += 1
        path = request.url.path.removeprefix(urlsplit(self._options.base).path)
        attempt = 1 + int(request.headers.get("x-stainless-retry-count", 0))

        # Receive the whole answer before the deadline and check it. What may be an accident is raised as it
        # is, to be repeated; what would come again is final, some of it only after a few attempts.
        try:
            async with asyncio.timeout(self._options.deadline):
                response, content = await self._watched(self._receive(request, options))
            answer = _KINDS.get(path, Answer).read(content) if response.is_success else None
            if answer is not None:
                answer.check_complete()
        except UnfinishedAnswer as error:
            self._has_answered = True
            self._count(error.reason)
            if error.lasting and attempt >= LATE_ATTEMPTS:
                raise _failure(self._options, path, error) from None
            raise
        except TimeoutError as error:
            self._count("TimeoutError")
            if attempt >= LATE_ATTEMPTS:
                raise _failure(self._options, path, error) from None
            raise httpx2.ReadTimeout("no answer before the deadline", request=request) from error
        except (httpx2.TransportError, UnusableAnswer) as error:
            self._count(type(error).__name__)
            # Before any answer there is most likely no such server. One attempt shows that nothing listens,
            # or that it speaks another protocol; a connection that breaks may be an accident a few times.
            unlikely = isinstance(error, _FINAL_AT_FIRST) or attempt >= LATE_ATTEMPTS
            is_there = self._is_there and not isinstance(error, UnusableAnswer)
            if unlikely and not (self._has_answered or is_there):
                raise _failure(self._options, path, error) from None
            raise
        self._is_there = True
        self._answered = time.monotonic()

        # A server that fails before it has ever answered fails at every request; a busy one says so (503).
        status = response.status_code
        final = status == 500 and attempt >= LATE_ATTEMPTS and not self._has_answered
        if answer is not None:
            self._has_answered = True
        elif not aside and (status in (408, 409, 429) or status >= 500):  # repeated by openai's client
            self._count(str(status))
        if status >= 500:  # a pause would not give it more room
            final = final or room_of_refusal(status, content.decode(errors="replace")) is not None

        # Hand the answer to openai's client. The body is unpacked and UTF-8 now, whatever the headers say: a
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

    async def _receive(
        self,
        request: httpx2.Request,
        options: dict[str, Any],
    ) -> tuple[httpx2.Response, bytes]:
        """An answer and its body. Raises UnusableAnswer if it is too large, or not compressed as it says."""
        response = await super().send(request, **options | {"stream": True})
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
        """Wait for ``receiving``, with warnings, and end it if the server has gone.

        A server that stops may keep its connections open; the attempt has failed if nothing listens at its
        address.
        """
        task = asyncio.ensure_future(receiving)
        began = time.monotonic()
        try:
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

    def _count(self, reason: str) -> None:
        """Count a failed attempt, and warn of it."""
        self._counts[f"repeated/{reason}"] += 1
        self._warn(f"an attempt failed ({reason})")

    def _warn(self, what: str) -> None:
        """Log a warning, unless there was one a moment ago."""
        now = time.monotonic()
        if now - self._warned >= QUIET:
            self._warned = now
            log.warning("%s: %s", self._options.shown, what)


def _refusal(options: EndpointOptions, path: str, response: httpx2.Response) -> ServerError:
    """The error for a request that the server has refused."""
    where = options.shown + path
    status = response.status_code
    text = response.content.decode(errors="replace")
    reason = _safe(options, message(text))[:300]
    room = room_of_refusal(status, text)
    if room is not None:
        return DialogTooLongError(f"{where} answered {status}: {reason}", room)
    advice = {
        400: f"A refused request is not scored. {KEPT}",
        401: f"Put the server's key into {KEY}",
        403: f"Is the key in {KEY} the right one?",
    }
    wait = response.headers.get("retry-after")
    further = f" (it asks to wait {_safe(options, wait)[:40]})" if wait else ""
    return ServerError(f"{where} answered {status}: {reason}{further}. {advice.get(status, KEPT)}")


def _failure(options: EndpointOptions, path: str, error: BaseException) -> ServerError:
    """The error for a request that got no usable answer."""
    where = options.shown + path
    settable = options.settable
    if isinstance(error, TimeoutError):
        return ServerError(
            f"{where} gave no answer within {options.deadline:g} s, {LATE_ATTEMPTS} times. Raise "
            f"{settable.deadline}, lower {settable.concurrency}, or check the server. {KEPT}"
        )
    if isinstance(error, UnusableAnswer):
        return ServerError(
            f"{where} did not answer with a completion ({error}; it begins "
            f"{_safe(options, error.text)[:80]!r}). Is {settable.url} the address of an OpenAI-compatible "
            f"server? {KEPT}"
        )
    if isinstance(error, UnfinishedAnswer):
        return UnfinishedError(
            f"{where} gave no complete answer after {LATE_ATTEMPTS if error.lasting else ATTEMPTS} attempts "
            f"({_safe(options, str(error))[:300]}). A response that may be incomplete is not scored: check "
            "the "
            f"server. {KEPT}",
            error.reason if error.lasting else None,
        )
    reason = f"{type(error).__name__}: {_safe(options, str(error))}"
    advice = f"Start the server, or correct {settable.url}. {KEPT}"
    return ServerError(f"{where} cannot be reached ({reason}). {advice}")


def _safe(options: EndpointOptions, text: str) -> str:
    """``text`` on one line, without control codes, and without key and password, which servers may
    repeat."""
    user, _, password = urlsplit(options.url).netloc.rpartition("@")[0].partition(":")
    text = masked(text, *(unquote(part) for part in (password, f"{user}:{password}" if user else "")))
    plain = "".join(sign if sign.isprintable() else " " for sign in _TERMINAL.sub(" ", text))
    return " ".join(plain.split())


def _request(sampling: Sampling, address: Address) -> dict[str, Any]:
    """Fields that chat and completion requests share; servers take 32-bit seeds."""
    seed = seed_of(*address) % 2**31
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "seed": seed}


async def about_model(options: EndpointOptions) -> dict[str, Any]:
    """Description of the model by its server (:meth:`Endpoint.about`)."""
    async with Endpoint(options) as endpoint:
        return await endpoint.about()


async def only_model(options: EndpointOptions) -> str:
    """Name of the served model. Raises ServerError unless there is exactly one."""
    async with Endpoint(options) as endpoint:
        try:
            names = await endpoint.models()
        except ServerError as error:
            raise ServerError(f"{error}; or name the model: {options.settable.model} NAME") from error
    if len(names) != 1:
        served = _safe(options, ", ".join(names))[:300] or "no model that it names"
        raise ServerError(f"{options.shown} serves {served}; choose with {options.settable.model} NAME")
    return names[0]
