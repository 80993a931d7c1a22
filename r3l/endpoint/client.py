"""The client of any server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp, `transformers serve`, hosted ones.

What may pass (a lost connection, a busy or restarting server, no answer in time) is asked again with growing pauses,
and counted; what will not (a wrong model name, a wrong address) is an error. The key is read from the environment and
stands in no message, file or log (r3l.core.masking).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter
from tenacity.wait import wait_base

from r3l.core.errors import ConfigError, R3LError
from r3l.core.masking import KEY, masked
from r3l.core.message import Message
from r3l.core.policy import Sampling
from r3l.core.seeds import Address, seed_of
from r3l.endpoint.answers import Answer, ChatAnswer, ModelList, TokenAnswer, UnusableAnswer

log = logging.getLogger(__name__)
TRANSIENT = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # HTTP statuses that the same request may not get again
ATTEMPTS = 8  # of one request: two to three minutes of pauses, in which a server can restart
LATE_ATTEMPTS = 3  # of one that ran into the deadline, each of which takes that long
LONGEST_PAUSE = 60.0  # seconds
CONNECT = 10.0  # seconds
QUIET = 5.0  # seconds from warning to warning: dialogs that wait for one server all have the same to say
# In the text of a 400: vLLM, llama.cpp and OpenAI each have their own words.
_ADDRESS = re.compile(r"https?://[^\s/]\S*")
_IN_HEADER = re.compile(r"[!-~]*")  # what a header can carry of a key
_NO_ROOM = re.compile(r"context|too long|too many tokens", re.IGNORECASE)
AnswerT = TypeVar("AnswerT", bound=Answer)


class ServerError(R3LError, RuntimeError):
    """A model server that cannot be reached, refuses, or answers what is no completion."""


class DialogTooLongError(ServerError):
    """The server has no room for this dialog and a response."""


class Settable(NamedTuple):
    """What a user sets address, model, deadline and dialogs at once by, for messages."""

    url: str = "--server"
    model: str = "--model"
    deadline: str = "--deadline"
    concurrency: str = "--batch"


@dataclass(frozen=True)
class EndpointOptions:
    """Where a model is served and how it is asked.

    ``url``: the server's base, with or without ``/v1``. ``concurrency``: dialogs at once. ``deadline``: seconds of one
    request. ``fields``: what every request carries besides; a null leaves out what it would carry otherwise.
    ``settable``: for messages.
    """

    url: str
    model: str
    concurrency: int = 16
    deadline: float = 600.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    settable: Settable = Settable()

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.url):
            raise ConfigError(f"the server {self.url!r} must be an address such as http://localhost:8000")

    @property
    def base(self) -> str:
        """The address up to ``/v1``."""
        return self.url.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1") + "/v1"

    @property
    def shown(self) -> str:
        """The address without user, password and query, for messages and files."""
        parts = urlsplit(self.base)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Endpoint:
    """A connection to the server; an asynchronous context. ``counts``: requests, repetitions by their reason,
    responses that are ``missing`` (null) by why they ended, and characters of answers that were no Unicode and had to
    be ``replaced``."""

    def __init__(self, options: EndpointOptions, pauses: wait_base | None = None) -> None:
        self.options, self.counts = options, Counter[str]()
        key = _key()
        self._pauses = pauses or wait_exponential_jitter(initial=1, max=LONGEST_PAUSE)
        self._warned = float("-inf")
        self._has_answered = False  # so it is such a server, and a strange answer may be an accident
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(None, connect=CONNECT),  # the deadline is of the whole request
            limits=httpx2.Limits(max_connections=None),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def chat(self, messages: Sequence[Message], sampling: Sampling, address: Address) -> ChatAnswer:
        """The next message of a dialog. Raises ServerError."""
        content = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        return await self._ask(ChatAnswer, "/chat/completions", content | _request(sampling, address))

    async def complete(
        self, ids: Sequence[int], stops: Sequence[int], sampling: Sampling, address: Address
    ) -> TokenAnswer:
        """What follows the tokens ``ids``, up to and including one of ``stops``. Raises ServerError."""
        content = {"prompt": list(ids), "stop_token_ids": sorted(stops), "return_token_ids": True}
        return await self._ask(TokenAnswer, "/completions", content | _request(sampling, address))

    async def models(self) -> list[str]:
        """The names that the server says it serves. Raises ServerError."""
        return [model.id for model in (await self._ask(ModelList, "/models", None)).data]

    async def _ask(self, kind: type[AnswerT], path: str, content: Mapping[str, Any] | None) -> AnswerT:
        where, settable = self.options.shown + path, self.options.settable
        retrying = AsyncRetrying(
            stop=_enough,
            wait=self._pause,
            retry=retry_if_exception(self._may_pass),
            before_sleep=self._count,
            reraise=True,
        )
        try:
            answer: AnswerT = await retrying(self._once, kind, path, content)
        except httpx2.HTTPStatusError as error:
            raise self._refusal(where, error.response) from None
        except TimeoutError:
            raise ServerError(
                f"{where} gave no answer within {self.options.deadline:g} s, {LATE_ATTEMPTS} times; raise "
                f"{settable.deadline}, lower {settable.concurrency}, or look after the server. What is finished is "
                "kept: the same command goes on"
            ) from None
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ServerError(
                f"{where} cannot be reached ({type(error).__name__}: {self._safe(str(error))}); start the server, or "
                f"correct {settable.url}. What is finished is kept: the same command goes on"
            ) from None
        except UnusableAnswer as error:
            raise ServerError(
                f"{where} answered no completion ({error}; it begins {self._safe(error.text)[:80]!r}); is "
                f"{settable.url} the address of an OpenAI-compatible server? What is finished is kept: the same "
                "command goes on"
            ) from None
        self._has_answered = True
        return answer

    async def _once(self, kind: type[AnswerT], path: str, content: Mapping[str, Any] | None) -> AnswerT:
        self.counts["requests"] += 1
        method, url = "GET" if content is None else "POST", self.options.base + path
        async with asyncio.timeout(self.options.deadline):
            answer = await self._request(method, url, None if content is None else self._complete(content))
        answer.raise_for_status()
        read = kind.read(answer.content)
        if read.replaced:
            self.counts["replaced"] += read.replaced
        if read.missing:
            self.counts[f"missing/{read.missing}"] += 1
        return read

    async def _request(self, method: str, url: str, content: Mapping[str, Any] | None) -> httpx2.Response:
        try:
            return await self._client.request(method, url, json=content)
        except httpx2.DecodingError as error:
            raise UnusableAnswer(f"it is not compressed as it says ({error})") from error

    def _complete(self, content: Mapping[str, Any]) -> dict[str, Any]:
        request = {"model": self.options.model, **content, **self.options.fields}
        return {key: value for key, value in request.items() if value is not None}

    def _refusal(self, where: str, answer: httpx2.Response) -> ServerError:
        reason = " ".join(self._safe(answer.text).split())[:300]
        if answer.status_code in (400, 413, 422) and _NO_ROOM.search(reason):
            return DialogTooLongError(f"{where} answered {answer.status_code}: {reason}")
        advice = {401: f"put the server's key into {KEY}", 403: f"is the key in {KEY} the right one?"}
        further = advice.get(answer.status_code, "what is finished is kept: the same command goes on")
        return ServerError(f"{where} answered {answer.status_code}: {reason}; {further}")

    def _safe(self, text: str) -> str:
        """Servers may repeat what was sent."""
        user, _, password = urlsplit(self.options.url).netloc.rpartition("@")[0].partition(":")
        return masked(text, *(unquote(part) for part in (password, f"{user}:{password}" if user else "")))

    def _may_pass(self, error: BaseException) -> bool:
        if isinstance(error, httpx2.HTTPStatusError):
            return error.response.status_code in TRANSIENT
        if isinstance(error, UnusableAnswer):
            return self._has_answered
        transport = isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)
        return transport or isinstance(error, TimeoutError)

    def _count(self, state: RetryCallState) -> None:
        error = _error_of(state)
        reason = str(error.response.status_code) if isinstance(error, httpx2.HTTPStatusError) else type(error).__name__
        self.counts[f"repeated/{reason}"] += 1
        now = time.monotonic()
        if now - self._warned >= QUIET:
            self._warned = now
            said = f"no server answers there ({reason})" if isinstance(error, httpx2.ConnectError) else reason
            where, attempt = self.options.shown, state.attempt_number
            log.warning("%s: %s; asked again (attempt %d of %d)", where, said, attempt, ATTEMPTS)

    def _pause(self, state: RetryCallState) -> float:
        """As long as the server asks for, but no longer than LONGEST_PAUSE."""
        error = _error_of(state)
        wanted = error.response.headers.get("retry-after", "") if isinstance(error, httpx2.HTTPStatusError) else ""
        pause = self._pauses(state)
        return max(pause, min(float(wanted), LONGEST_PAUSE)) if wanted.isdecimal() else pause


def _request(sampling: Sampling, address: Address) -> dict[str, Any]:
    """What chat and completion ask for alike; servers take 32-bit seeds."""
    seed = seed_of(*address) % 2**31
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "seed": seed}


def _key() -> str:
    key = os.environ.get(KEY, "")
    if not _IN_HEADER.fullmatch(key):
        raise ConfigError(f"the key in {KEY} has spaces, line breaks or letters that no header can carry; set it anew")
    return key


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _enough(state: RetryCallState) -> bool:
    late = isinstance(_error_of(state), TimeoutError)
    return state.attempt_number >= (LATE_ATTEMPTS if late else ATTEMPTS)


async def only_model(options: EndpointOptions, pauses: wait_base | None = None) -> str:
    """The name of the one model that is served. Raises ServerError where there is not exactly one."""
    async with Endpoint(options, pauses) as endpoint:
        names = await endpoint.models()
    if len(names) != 1:
        served = ", ".join(names) or "no model it tells of"
        raise ServerError(f"{options.shown} serves {served}; choose with {options.settable.model} NAME")
    return names[0]
