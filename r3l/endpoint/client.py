"""Client for servers that speak OpenAI's protocol: vLLM, SGLang, llama.cpp, `transformers serve`, hosted.

The `openai` package repeats requests, with its pauses and Retry-After in both forms; each attempt goes
through r3l.endpoint.connection. The key is read from the environment and appears in no message, file or log
(r3l.files.redact).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpx2
import openai

from r3l.core.errors import ConfigError
from r3l.core.policy import Sampling
from r3l.core.seeds import Address, seed_of
from r3l.core.text import Message
from r3l.endpoint.connection import ATTEMPTS, FAILURES, Connection, failure, one_line, refusal
from r3l.endpoint.context_limits import entry_of_model, limit_of_model, limit_of_properties
from r3l.endpoint.options import ANSWERED_BY, CONNECT, DialogTooLongError, EndpointOptions, ServerError
from r3l.endpoint.responses import Answer, ChatAnswer, ModelList, TokenAnswer, read_json_of_server
from r3l.files.redact import KEY, masked_json

log = logging.getLogger(__name__)
LONGEST_NAME = 100  # characters of a model's name in an answer

_IN_HEADER = re.compile(r"[!-~]*")  # characters of a key that a header can carry
_RESPONSE_TOKENS = ("max_tokens", "max_completion_tokens")  # fields of a request
_OF_WEIGHTS = ("root", "parent", "owned_by", "meta")  # fields of an entry of /models
_OPTIONAL: Any = {"max_retries": 0}
AnswerT = TypeVar("AnswerT", bound=Answer)


class Endpoint:
    """Client of one model at an OpenAI-compatible server; an asynchronous context manager.

    Failed requests are repeated, up to 20 attempts; the third missed deadline is final, and the third
    incomplete answer of a kind that would most likely come again (content filter). ``counts``: ``requests``:
    attempts sent; ``repeated/REASON``: attempts that failed and were repeated or given up; ``shortened``:
    responses for which the server had less room than requested; ``overlong``: responses of more tokens than
    requested; ``cut_short``: responses that the server cut off below that; ``cut_prompts``: prompts that it
    cut; ``answered_by/NAME``: answers by the model that they name; ``uncounted``: answers without the number
    of their tokens; ``replaced``: characters that were not Unicode; ``end_marks``: texts that ended with a
    control token.

    ``answering``: the models that answers name, in order of appearance; it begins with ``before``, the models
    that answered over earlier connections in the same work. ``wait``: function that returns the seconds
    between two attempts if the server names no pause; None: the openai package's, up to 8. The key is read
    from the environment. Raises ConfigError for an address or a key that cannot be used; the server is not
    called yet.
    """

    def __init__(
        self,
        options: EndpointOptions,
        wait: Callable[[Any], float] | None = None,
        before: Iterable[str] = (),
    ) -> None:
        self.options = options
        self.counts = Counter[str]()
        self.answering = list(before)
        self._cuts_prompts = False
        self._limit_lock = asyncio.Lock()
        self._limit_is_known = False
        self._limit: int | None = None
        # The key is only in the environment; no message shows it.
        key = os.environ.get(KEY, "")
        if not _IN_HEADER.fullmatch(key):
            raise ConfigError(
                f"the key in {KEY} has spaces, line breaks or characters that no header can carry",
            )
        try:
            self._client = _Client(
                base_url=options.base,
                default_query=options.query,
                api_key=key or "none",  # the client requires one; servers without keys ignore it
                max_retries=ATTEMPTS - 1,
                http_client=Connection(options, self.counts),
                timeout=httpx2.Timeout(None, connect=CONNECT),  # the deadline covers the complete request
            )
            self._client.wait = wait
            if not options.is_openai:  # the package sends OPENAI_ORG_ID and OPENAI_PROJECT_ID to any server
                self._client.organization = self._client.project = None
        except httpx2.InvalidURL as error:
            raise ConfigError(f"the server {options.shown!r} is not a valid address: {error}") from error
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"a proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used ({one_line(str(error))}): "
                "correct or unset the variable, or name the server in NO_PROXY"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections to the server."""
        await self._client.close()

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        address: Address,
        ends: Sequence[str] = (),
    ) -> ChatAnswer:
        """Request the next message of a dialog (/chat/completions).

        ``address``: seed address, which gives the request's seed (r3l.core.seeds). ``ends``: spellings of the
        model's end tokens, which are removed from the end of the text. The response is shorter than requested
        if the context has less room. Raises DialogTooLongError if the context has room for no token,
        UnfinishedError if responses stay incomplete, and ServerError if the request fails otherwise.
        """
        content = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        body = content | _request(sampling, address)
        answer = await self._sample(ChatAnswer, "/chat/completions", body, None)
        if answer.remove_end_marks(ends):
            self.counts["end_marks"] += 1
        return answer

    async def complete(
        self, ids: Sequence[int], stops: Sequence[int], sampling: Sampling, address: Address
    ) -> TokenAnswer:
        """Request tokens after the prompt ``ids``, up to and including one of ``stops`` (/completions).

        ``ids``, ``stops``: token ids. ``address``: seed address, which gives the request's seed
        (r3l.core.seeds). If prompt and response do not fit together, the request is sent again for a shorter
        response. Raises DialogTooLongError if the context has room for no token, UnfinishedError if responses
        stay incomplete, and ServerError if the request fails otherwise.
        """
        content = {"prompt": list(ids), "stop_token_ids": sorted(stops), "return_token_ids": True}
        body = content | _request(sampling, address)
        answer = await self._sample(TokenAnswer, "/completions", body, len(ids))
        if answer.read_tokens and answer.read_tokens < len(ids):
            self.note_cut_prompt(answer.read_tokens, len(ids))
        return answer

    def note_cut_prompt(self, read: int, least: int) -> None:
        """Count a prompt that the server has cut (``cut_prompts``), and log a warning at the first.

        ``read``: tokens that it counts for the prompt; ``least``: that the prompt has at least.
        """
        self.counts["cut_prompts"] += 1
        if not self._cuts_prompts:
            self._cuts_prompts = True
            log.warning(
                "the server counts %d prompt_tokens for a dialog of at least %d: it cuts long prompts, so "
                "the model does not see all of them. Raise the server's context length (Ollama: "
                "OLLAMA_CONTEXT_LENGTH, 4096 by default), or lower sampling.max_context to it",
                *(read, least),
            )

    async def models(self) -> list[str]:
        """Names of the models that /models lists, in its order. Raises ServerError if the request fails."""
        return [model.id for model in (await self._ask(ModelList, "/models", None)).data]

    async def about(self) -> dict[str, Any]:
        """Fields of this model's entry in /models that tell weights apart: vLLM's folder, llama.cpp's sizes.

        {} if the server gives none or does not answer at the first attempt.
        """
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
        # known what is left. A limit that is smaller than the prompt was one of the prompt apart from the
        # requested response.
        read = answer.read_tokens
        possible = [room.limit, await self._context_limit()]
        named = room.limit or room.input_limit
        if named:
            possible.append(named + requested)
        for limit in possible:
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
        """JSON of a GET request that is optional; None if it fails at the first attempt."""
        FAILURES.set(None)
        try:
            async with asyncio.timeout(CONNECT):
                response = await self._client.get(path, cast_to=httpx2.Response, options=_OPTIONAL)
        except (openai.APIError, ServerError, TimeoutError):
            return None
        return masked_json(read_json_of_server(response.content))

    async def _ask(self, kind: type[AnswerT], path: str, body: Mapping[str, Any] | None) -> AnswerT:
        """Send a request (GET if ``body`` is None), repeated as needed, and count what the answer lacks."""
        FAILURES.set(Counter())
        try:
            if body is None:
                response = await self._client.get(path, cast_to=httpx2.Response)
            else:
                response = await self._client.post(path, cast_to=httpx2.Response, body=body)
        except openai.APIStatusError as error:
            raise refusal(self.options, path, error.response) from None
        except openai.APIConnectionError as error:
            raise failure(self.options, path, error.__cause__ or error) from None
        answer = response.extensions["answer"]
        assert isinstance(answer, kind)

        # Scores are of one model: warn of the first answer by another one than before.
        if answer.answered_by:
            name = one_line(answer.answered_by)
            if len(name) > LONGEST_NAME:  # two long ones may differ at their ends: a checkpoint, a version
                digest = hashlib.sha256(name.encode()).hexdigest()[:8]
                name = f"{name[: LONGEST_NAME - 9]}~{digest}"
            self.counts[f"{ANSWERED_BY}{name}"] += 1
            if len(self.answering) == 1 and name not in self.answering:
                log.warning(
                    "%s answers as %s, and as %s before: %s will be of several models or versions. Name "
                    "the one that is meant (%s), or serve no other during the run",
                    *(self.options.shown, name, self.answering[0]),
                    *(self.options.settable.result, self.options.settable.model),
                )
            if name not in self.answering:
                self.answering.append(name)

        # Count what is wrong with the answer without making it useless.
        if answer.replaced:
            self.counts["replaced"] += answer.replaced
        tokens = answer.response_tokens
        if body is not None and tokens is None:
            self.counts["uncounted"] += 1
        limit = _requested_tokens(body) if body is not None else 0
        if limit and tokens is not None and tokens > limit:
            self.counts["overlong"] += 1
        if limit and tokens is not None and answer.was_cut and tokens < limit:
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


def _request(sampling: Sampling, address: Address) -> dict[str, Any]:
    """Fields that chat and completion requests share; servers take 32-bit seeds."""
    seed = seed_of(*address) % 2**31
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "seed": seed}


async def about_model(options: EndpointOptions) -> dict[str, Any]:
    """Connect and return the fields of /models that tell the model's weights apart.

    {} if there are none, or if the server does not answer at the first attempt.
    """
    async with Endpoint(options) as endpoint:
        return await endpoint.about()


async def only_model(options: EndpointOptions) -> str:
    """Connect and return the name of the server's only model.

    ``options.model`` is not used. Raises ServerError unless the server lists exactly one named model.
    """
    async with Endpoint(options) as endpoint:
        try:
            names = await endpoint.models()
        except ServerError as error:
            raise ServerError(f"{error}; or name the model: {options.settable.model} NAME") from error
    names = [name for name in names if name.strip(" /")]  # an empty one is no name to file a score under
    if len(names) != 1:
        served = one_line(", ".join(names))[:300] or "no model that it names"
        raise ServerError(f"{options.shown} serves {served}; choose with {options.settable.model} NAME")
    return names[0]
