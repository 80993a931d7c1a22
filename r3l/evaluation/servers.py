"""Replies from any server that speaks OpenAI's chat completions: vLLM, SGLang, llama.cpp, hosted ones.

What may pass (a lost connection, a busy or restarting server) is asked again with growing pauses; what will not
(a wrong model name, a prompt that is too long) ends the evaluation, whose finished items are kept.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from tenacity import Retrying, before_sleep_log, retry_if_exception, stop_after_attempt, wait_exponential_jitter
from tenacity.wait import wait_base

from r3l.core.benchmark import Reply
from r3l.core.environment import Message
from r3l.core.errors import R3LError
from r3l.core.seeds import Address, seed_of

log = logging.getLogger(__name__)
KEY = "OPENAI_API_KEY"  # environment variable with the key, for servers that ask for one
TRANSIENT = (408, 409, 425, 429, 500, 502, 503, 504)  # HTTP statuses that the same request may not get again
ATTEMPTS = 6  # of one request, about a minute of pauses in all
CONNECT, REPLY = 10.0, 1800.0  # seconds; 4,096 tokens of a slow server under load take minutes
_STOPS = {"stop": "end", "length": "length"}
# In the text of a 400: vLLM, llama.cpp and OpenAI each have their own words.
_NO_ROOM = re.compile(r"context|too long|too many tokens", re.IGNORECASE)


class ServerError(R3LError, RuntimeError):
    """A model server that cannot be reached, refuses, or answers what is no chat completion."""


class DialogTooLongError(ServerError):
    """The server has no room for this dialog and a reply."""


class Server:
    """An OpenAI-compatible server. ``url`` is its base, with or without ``/v1``; ``concurrency`` requests at once.

    ``model`` may be None where the server has exactly one. Close it, or use it as a context manager.
    """

    batch = 1

    def __init__(
        self,
        url: str,
        model: str | None,
        temperature: float,
        max_tokens: int,
        concurrency: int = 16,
        pauses: wait_base | None = None,
    ) -> None:
        self.threads = concurrency
        self._url = url.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1") + "/v1"
        key = os.environ.get(KEY)
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(REPLY, connect=CONNECT),
            limits=httpx2.Limits(max_connections=concurrency),
        )
        self._retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=pauses or wait_exponential_jitter(initial=1, max=30),
            retry=retry_if_exception(_transient),
            before_sleep=before_sleep_log(log, logging.WARNING),
            reraise=True,
        )
        self.name = model or self._only_model()
        self.settings: Mapping[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}

    def respond(self, dialogs: Sequence[Sequence[Message]], addresses: Sequence[Address]) -> list[Reply]:
        """One reply each, in turn. Raises ServerError."""
        return [self._reply(dialog, address) for dialog, address in zip(dialogs, addresses, strict=True)]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _reply(self, dialog: Sequence[Message], address: Address) -> Reply:
        request = {
            "model": self.name,
            "messages": [{"role": m.role, "content": m.content} for m in dialog],
            "seed": seed_of(*address) % 2**31,  # servers take 32-bit integers
            **self.settings,
        }
        try:
            answer = self._ask("POST", "/chat/completions", request)
        except DialogTooLongError:
            return Reply("", "context", 0)
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            thought = choice["message"].get("reasoning_content") or ""  # servers that parse the thinking away
            tokens = (answer.get("usage") or {}).get("completion_tokens")
            stop = str(choice["finish_reason"])
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServerError(
                f"{self._url}/chat/completions answered no chat completion ({error!r}): {str(answer)[:200]}; "
                "is --server the address of an OpenAI-compatible server?"
            ) from error
        if thought and "</think>" not in text:
            text = f"<think>{thought}</think>{text}"
        return Reply(text, _STOPS.get(stop, stop), tokens)

    def _only_model(self) -> str:
        answer = self._ask("GET", "/models", None)
        names = [str(m.get("id")) for m in answer.get("data", [])] if isinstance(answer, dict) else []
        if len(names) != 1:
            raise ServerError(
                f"{self._url} serves {', '.join(names) or 'no model it tells of'}; choose with --model NAME"
            )
        return names[0]

    def _ask(self, method: str, path: str, content: Any) -> Any:
        try:
            return self._retrying(self._once, method, path, content)
        except httpx2.HTTPStatusError as error:
            status, reason = error.response.status_code, error.response.text.strip().replace("\n", " ")[:300]
            kind = DialogTooLongError if status in (400, 413) and _NO_ROOM.search(reason) else ServerError
            raise kind(f"{self._url}{path} answered {status}: {reason}") from error
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise ServerError(
                f"{self._url}{path} cannot be reached ({type(error).__name__}: {error}); start the server, or correct "
                "--server. Finished items are kept: the same command goes on"
            ) from error
        except ValueError as error:
            raise ServerError(f"{self._url}{path} answered no JSON ({error}); correct --server") from error

    def _once(self, method: str, path: str, content: Any) -> Any:
        answer = self._client.request(method, self._url + path, json=content)
        answer.raise_for_status()
        return answer.json()


def _transient(error: BaseException) -> bool:
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in TRANSIENT
    return isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)
