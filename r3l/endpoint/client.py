"""A client for any server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, `transformers serve`, hosted ones.

The `openai` package does the work: connections, pauses between attempts, Retry-After in both forms. Three things are
ours, all in the HTTP client that it sends through (``_Connection``), because only there is every attempt seen:
attempts are counted by how they failed; a deadline covers the whole answer, not the pause between two packets; and a
body is bounded and checked, so that a server that once answers with half a page is asked again.
The key is read from the environment and stands in no message, file or log (r3l.files.redact).
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
from r3l.endpoint.context_limits import entry_of_model, limit_of_model, limit_of_properties, message, refusal_for_room
from r3l.endpoint.options import CONNECT, KEPT, DialogTooLongError, EndpointOptions, ServerError, UnfinishedError
from r3l.endpoint.responses import Answer, ChatAnswer, ModelList, TokenAnswer, UnfinishedAnswer, UnusableAnswer
from r3l.files.redact import KEY, masked

log = logging.getLogger(__name__)
ATTEMPTS = 20  # of one request; their pauses of up to 8 s add up to two minutes, in which a server can restart
LATE_ATTEMPTS = 3  # the third deadline passed is final (each takes that long), and the third filtered or unknown answer
LARGEST_BODY = 2**24  # bytes, unpacked; a response of 100,000 tokens takes one
QUIET = 5.0  # seconds between warnings: dialogs that wait for one server all have the same to say
NOTICE = 60.0  # seconds without an answer before a warning and a check that the server still listens; our choice
_IN_HEADER = re.compile(r"[!-~]*")  # what a header can carry of a key
_TERMINAL = re.compile("\x1b\\[[0-9;]*[A-Za-z]")  # colours
_RESPONSE_TOKENS = ("max_tokens", "max_completion_tokens")  # fields of a request
_OF_WEIGHTS = ("root", "parent", "owned_by", "meta")  # fields of an entry of /models
_KINDS: dict[str, type[Answer]] = {"/chat/completions": ChatAnswer, "/completions": TokenAnswer, "/models": ModelList}
_ASIDE = "x-r3l-aside"  # a header that is not sent: of a question that need not be answered
_OPTIONAL: Any = {"max_retries": 0, "headers": {_ASIDE: "1"}}
_FINAL_AT_FIRST = (httpx2.ConnectError, httpx2.ConnectTimeout, UnusableAnswer)  # no such server, most likely
AnswerT = TypeVar("AnswerT", bound=Answer)
ReceivedT = TypeVar("ReceivedT")


class Endpoint:
    """A connection to the server; an asynchronous context.

    ``counts``: ``requests``; ``repeated/REASON``, attempts that failed and were repeated (or given up);
    ``shortened``, responses for which the server had less room than asked; ``overlong``, responses of more tokens than
    were asked for; ``uncounted``, answers without their number
    of tokens; ``replaced``, characters that were not Unicode; ``end_marks``, texts that ended with a control token.
    ``wait``: seconds between two attempts where the server asks for no pause (a wait of tenacity); None: up to 8.
    """

    def __init__(self, options: EndpointOptions, wait: Callable[[Any], float] | None = None) -> None:
        self.options, self.counts = options, Counter[str]()
        self._asking, self._has_asked = asyncio.Lock(), False
        self._limit: int | None = None
        key = os.environ.get(KEY, "")
        if not _IN_HEADER.fullmatch(key):
            raise ConfigError(f"the key in {KEY} has spaces, line breaks or characters that no header can carry")
        try:
            self._client = _Client(
                base_url=options.base,
                api_key=key or "none",  # the client wants one; servers without keys ignore it
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
        await self._client.close()

    async def chat(self, messages: Sequence[Message], sampling: Sampling, address: Address) -> ChatAnswer:
        """The next message of a dialog. Raises ServerError."""
        content = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        return await self._sample(ChatAnswer, "/chat/completions", content | _request(sampling, address), None)

    async def complete(
        self, ids: Sequence[int], stops: Sequence[int], sampling: Sampling, address: Address
    ) -> TokenAnswer:
        """What follows the tokens ``ids``, up to and including one of ``stops``. Raises ServerError."""
        content = {"prompt": list(ids), "stop_token_ids": sorted(stops), "return_token_ids": True}
        return await self._sample(TokenAnswer, "/completions", content | _request(sampling, address), len(ids))

    async def models(self) -> list[str]:
        """The names that the server says it serves. Raises ServerError."""
        return [model.id for model in (await self._ask(ModelList, "/models", None)).data]

    async def about(self) -> dict[str, Any]:
        """What the server says of its model that tells weights apart: vLLM the folder, llama.cpp sizes, or nothing."""
        entry = entry_of_model(await self._get("/models"), self.options.model)
        return {key: entry[key] for key in _OF_WEIGHTS if entry.get(key) is not None}

    async def _sample(self, kind: type[AnswerT], path: str, content: Mapping[str, Any], prompt: int | None) -> AnswerT:
        """A response; a shorter one where the server has less room. ``prompt``: its tokens, where they are known.

        Raises DialogTooLongError where there is no room for one token, ServerError for all other refusals: a request
        that is refused has no answer that could be wrong.
        """
        request = {"model": self.options.model, **content, **self.options.fields}
        body = {key: value for key, value in request.items() if value is not None}
        limits, asked = _limits(body), _asked(body)
        try:
            return await self._ask(kind, path, body)
        except DialogTooLongError as error:
            refused = error
        if not asked:
            raise refused
        limit = refused.room.limit or await self._room()
        left = refused.room.left(asked, limit, prompt)
        if left is not None and left < 1:
            raise refused
        for less in (left, 1):
            if less is None or less >= asked > 1:
                continue
            try:
                answer = await self._ask(kind, path, body | dict.fromkeys(limits, less))
            except DialogTooLongError:
                if less == 1:
                    raise
                continue
            if less == left:
                self.counts["shortened"] += 1
                return answer
            # The server says nothing of numbers, but it has now read the prompt and counted it.
            read = answer.read_tokens
            if limit and read is not None and 0 < limit - read < asked:
                with suppress(DialogTooLongError):
                    answer = await self._ask(kind, path, body | dict.fromkeys(limits, limit - read))
                    self.counts["shortened"] += 1
                    return answer
        raise ServerError(
            f"{refused}. It has room for a shorter response, but does not say how long: ask for fewer tokens"
        )

    async def _room(self) -> int | None:
        """Tokens that the server says it has room for, prompt and response; asked for once."""
        async with self._asking:
            if not self._has_asked:
                self._has_asked = True
                models, root = await self._get("/models"), self.options.base.removesuffix("/v1")
                self._limit = limit_of_model(models, self.options.model)
                self._limit = self._limit or limit_of_properties(await self._get(root + "/props"))
        return self._limit

    async def _get(self, path: str) -> Any:
        """What the server answers at once, as JSON; None where it does not."""
        try:
            async with asyncio.timeout(CONNECT):
                response = await self._client.get(path, cast_to=httpx2.Response, options=_OPTIONAL)
        except (openai.APIError, ServerError, TimeoutError):
            return None
        return json.loads(response.content)

    async def _ask(self, kind: type[AnswerT], path: str, body: Mapping[str, Any] | None) -> AnswerT:
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
        limit = _asked(body) if body is not None else 0
        if limit and answer.counted and answer.counted.response > limit:
            self.counts["overlong"] += 1
        return answer


def _limits(body: Mapping[str, Any]) -> list[str]:
    """The fields that say how many tokens a response may have."""
    return [key for key in _RESPONSE_TOKENS if type(body.get(key)) is int]


def _asked(body: Mapping[str, Any]) -> int:
    """Tokens that a response may have; 0 where the request does not say."""
    return max((body[key] for key in _limits(body)), default=0)


class _Client(openai.AsyncOpenAI):
    wait: Callable[[Any], float] | None = None

    def _calculate_retry_timeout(self, remaining_retries: int, options: Any, response_headers: Any = None) -> float:
        asked = self._parse_retry_after_header(response_headers)
        if self.wait is not None and not (asked and asked > 0):
            return self.wait(None)
        return super()._calculate_retry_timeout(remaining_retries, options, response_headers)


class _Connection(httpx2.AsyncClient):
    """Sends one attempt. What may pass is raised as httpx2's errors, which openai's client repeats; a ServerError is
    final."""

    def __init__(self, options: EndpointOptions, counts: Counter[str]) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=None))
        self._options, self._counts = options, counts
        self._has_answered = False  # so it is such a server, and a strange answer may be an accident
        self._is_there = False  # whatever it answers
        self._warned = self._answered = float("-inf")

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The answer, read to its end and checked."""
        aside = request.headers.pop(_ASIDE, None) is not None
        self._counts["requests"] += 1
        path = request.url.path.removeprefix(urlsplit(self._options.base).path)
        attempt = 1 + int(request.headers.get("x-stainless-retry-count", 0))
        try:
            async with asyncio.timeout(self._options.deadline):
                response, content = await self._watched(self._received(request, options))
            answer = _KINDS.get(path, Answer).read(content) if response.is_success else None
            if answer is not None:
                answer.check_whole()
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
            # Before any answer there is most likely no such server: once is enough to know that nobody listens, or that
            # it speaks otherwise; a connection that breaks may be an accident, a few times.
            unlikely = isinstance(error, _FINAL_AT_FIRST) or attempt >= LATE_ATTEMPTS
            if unlikely and not (self._has_answered or (self._is_there and not isinstance(error, UnusableAnswer))):
                raise _failure(self._options, path, error) from None
            raise
        self._is_there, self._answered = True, time.monotonic()
        # A server that fails before it has ever answered fails at every request; a busy one says so (503).
        final = response.status_code == 500 and attempt >= LATE_ATTEMPTS and not self._has_answered
        if answer is not None:
            self._has_answered = True
        elif not aside and (response.status_code in (408, 409, 429) or response.status_code >= 500):  # repeated
            self._count(str(response.status_code))
        # The body is unpacked, and read as UTF-8: a server may name a character set that is none.
        changed = (b"content-encoding", b"content-type")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in changed]
        if response.status_code >= 500:  # to wait would not give it more room
            final = final or refusal_for_room(response.status_code, content.decode(errors="replace")) is not None
        if final:
            headers.append((b"x-should-retry", b"false"))
        return httpx2.Response(
            response.status_code, headers=headers, content=content, request=request, extensions={"answer": answer}
        )

    async def _received(self, request: httpx2.Request, options: dict[str, Any]) -> tuple[httpx2.Response, bytes]:
        response = await super().send(request, **options | {"stream": True})
        return response, await _read(response)

    async def _watched(self, receiving: Coroutine[Any, Any, ReceivedT]) -> ReceivedT:
        """What is being received. A server that stops may keep its connections open: where nobody listens at its
        address any more, this attempt has failed."""
        task, began = asyncio.ensure_future(receiving), time.monotonic()
        try:
            while not (await asyncio.wait({task}, timeout=NOTICE))[0]:
                try:
                    await asyncio.to_thread(self._options.check_there)
                except ServerError as error:
                    raise httpx2.ReadError("nobody listens there any more") from error
                silent = time.monotonic() - max(began, self._answered)
                if silent >= NOTICE:
                    setting = self._options.settable.deadline
                    self._warn(f"no answer for {silent:.0f} s; waiting up to {self._options.deadline:g} s ({setting})")
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _count(self, reason: str) -> None:
        self._counts[f"repeated/{reason}"] += 1
        self._warn(f"an attempt failed ({reason})")

    def _warn(self, what: str) -> None:
        now = time.monotonic()
        if now - self._warned >= QUIET:
            self._warned = now
            log.warning("%s: %s", self._options.shown, what)


async def _read(response: httpx2.Response) -> bytes:
    """The body. Raises UnusableAnswer where it is too large, or not compressed as it says."""
    content = bytearray()
    try:
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > LARGEST_BODY:
                raise UnusableAnswer(f"it is longer than {LARGEST_BODY / 2**20:.0f} MiB", bytes(content[:100]))
    except httpx2.DecodingError as error:
        raise UnusableAnswer(f"it is not compressed as it says ({error})") from error
    finally:
        await response.aclose()
    return bytes(content)


def _refusal(options: EndpointOptions, path: str, response: httpx2.Response) -> ServerError:
    where, status, text = options.shown + path, response.status_code, response.content.decode(errors="replace")
    reason = _safe(options, message(text))[:300]
    room = refusal_for_room(status, text)
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
    where, settable = options.shown + path, options.settable
    if isinstance(error, TimeoutError):
        return ServerError(
            f"{where} gave no answer within {options.deadline:g} s, {LATE_ATTEMPTS} times. Raise {settable.deadline}, "
            f"lower {settable.concurrency}, or check the server. {KEPT}"
        )
    if isinstance(error, UnusableAnswer):
        return ServerError(
            f"{where} did not answer with a completion ({error}; it begins {_safe(options, error.text)[:80]!r}). Is "
            f"{settable.url} the address of an OpenAI-compatible server? {KEPT}"
        )
    if isinstance(error, UnfinishedAnswer):
        return UnfinishedError(
            f"{where} gave no whole answer, asked again and again ({_safe(options, str(error))[:300]}). A response "
            f"that may be broken off is not scored: check the server. {KEPT}",
            error.reason if error.lasting else None,
        )
    reason = f"{type(error).__name__}: {_safe(options, str(error))}"
    return ServerError(f"{where} cannot be reached ({reason}). Start the server, or correct {settable.url}. {KEPT}")


def _safe(options: EndpointOptions, text: str) -> str:
    """``text`` on one line without key and password, which servers may repeat, and without what moves a terminal."""
    user, _, password = urlsplit(options.url).netloc.rpartition("@")[0].partition(":")
    text = masked(text, *(unquote(part) for part in (password, f"{user}:{password}" if user else "")))
    plain = "".join(sign if sign.isprintable() else " " for sign in _TERMINAL.sub(" ", text))
    return " ".join(plain.split())


def _request(sampling: Sampling, address: Address) -> dict[str, Any]:
    """What chat and completion requests share; servers take 32-bit seeds."""
    seed = seed_of(*address) % 2**31
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "seed": seed}


async def about_model(options: EndpointOptions) -> dict[str, Any]:
    """What the server says of its model (:meth:`Endpoint.about`)."""
    async with Endpoint(options) as endpoint:
        return await endpoint.about()


async def only_model(options: EndpointOptions) -> str:
    """The name of the one model that is served. Raises ServerError where there is not exactly one."""
    async with Endpoint(options) as endpoint:
        try:
            names = await endpoint.models()
        except ServerError as error:
            raise ServerError(f"{error}; or name the model: {options.settable.model} NAME") from error
    if len(names) != 1:
        served = _safe(options, ", ".join(names))[:300] or "no model that it names"
        raise ServerError(f"{options.shown} serves {served}; choose with {options.settable.model} NAME")
    return names[0]
