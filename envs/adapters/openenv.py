"""Environments behind an OpenEnv server: an engine is a session there, a task is the seed that ``reset`` gets.

The session is held here and not by the library's client: that one opens a new session without a word where the first
was lost, and an episode would go on in a game that was never begun.
"""

from __future__ import annotations

import contextlib
import json
import time
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
from r3l.envs.adapters.gymnasium import GameArguments, TextGames

from r3l.core.errors import EngineError, EngineLost
from r3l.core.option import option
from r3l.core.text import shown
from r3l.core.validation import wrong

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

Part = TypeVar("Part", dict[str, Any], list[Any])
ANSWER = 120.0  # seconds until an answer; our choice, below the deadline of a worker
LARGEST = 2**24  # bytes of an answer; our choice, sixteen times the longest observation
ANSWERS = '{"type": "observation", "data": {"observation": {...}, "reward": ..., "done": ...}}'
FULL = "CAPACITY_REACHED"  # the server's code for: all sessions are taken


class OpenEnvArguments(GameArguments):
    """Of any OpenEnv server."""

    url: str = option(..., "address of the server, e.g. http://localhost:8000")
    observation: str = option(..., "the field of an observation that a model reads")
    action: str = option(..., "the field of an action that gets the response, or the number of a named action")


class OpenEnv(TextGames[OpenEnvArguments]):
    """The environment that a server plays. Every episode in play takes a session of it."""

    arguments = OpenEnvArguments
    extra = "openenv"

    def payload(self, number: int) -> dict[str, Any]:
        """Name and version, as the server gives them."""
        about = self._described("metadata")
        return super().payload(number) | {"server": {key: about.get(key) for key in ("name", "version")}}

    def make(self) -> Session:
        """A session. Raises ConfigError where the server has no such fields, or an action needs further ones."""
        schema = self._described("schema")
        for kind in ("observation", "action"):
            field, known = getattr(self.given, kind), _part(_part(schema, kind, dict), "properties", dict)
            if field not in known:
                raise self.wrong(kind, field, f"no field of the server's {kind}s, which have {', '.join(known)}")
        required = _part(schema["action"], "required", list)
        if further := [str(name) for name in required if name != self.given.action]:
            raise self.wrong("action", self.given.action, f"the server's actions also need {', '.join(further)}")
        return Session(self.name, self.given)

    def _described(self, what: str) -> dict[str, Any]:
        try:
            return _get(f"{self.given.url.rstrip('/')}/{what}")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            why = f"no OpenEnv server answers there with its {what}: {type(error).__name__}: {error}"
            raise self.wrong("url", self.given.url, why) from error


class Session:
    """A game on the server, as ``TextGames.make`` gives it. A lost session is made again at the next reset."""

    def __init__(self, name: str, given: OpenEnvArguments) -> None:
        self._who, self._given = f"environment {name!r}", given
        self._asked = False  # whether this connection has answered anything
        self._open = contextlib.ExitStack()
        self._connection: ClientConnection | None = None

    def reset(self, seed: int) -> SimpleNamespace:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        if self._connection is None:
            address = f"{self._given.url.rstrip('/')}/ws".replace("http", "ws", 1)
            try:  # pings are the server's: here nothing may answer while a model is trained
                self._connection = self._open.enter_context(connect(address, ping_interval=None, max_size=LARGEST))
            except (OSError, ValueError, WebSocketException) as error:
                raise EngineLost(f"no session at {self._given.url}: {error}") from error
        try:
            return self._ask("reset", {"seed": seed})
        except RefusedError as error:
            fix = ": give its create_app a max_concurrent_envs of all episodes in play" if FULL in str(error) else ""
            raise EngineError(f"{self._given.url} starts no episode with seed {seed}{fix}. {error}") from error

    def step(self, action: str | int) -> SimpleNamespace:
        """Play an action. Raises RefusedError for an error of the environment."""
        return self._ask("step", {self._given.action: action})

    def close(self) -> None:
        from websockets.exceptions import WebSocketException

        self._connection, self._asked = None, False
        with contextlib.suppress(OSError, WebSocketException):  # lost already
            self._open.close()

    def _ask(self, kind: str, data: dict[str, Any]) -> SimpleNamespace:
        """``observation`` (a text), ``reward`` and ``done`` of the answer. Raises EngineLost with the session."""
        answer = self._answer(kind, data)
        said = _part(answer, "data", dict)
        if answer.get("type") == "error":
            raise RefusedError(shown(f"{said.get('code')}: {said.get('message')}"))
        observation = _part(said, "observation", dict).get(self._given.observation)
        if answer.get("type") != "observation" or observation is None:
            fix = f"correct the server: an answer is {ANSWERS} with {self._given.observation!r} in its observation"
            raise wrong(self._who, f"the server answers {kind} with", answer, fix)
        text = observation if isinstance(observation, str) else json.dumps(observation)
        return SimpleNamespace(observation=text, reward=said.get("reward"), done=said.get("done", False))

    def _answer(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        from websockets.exceptions import WebSocketException

        if self._connection is None:
            raise EngineLost(f"the session at {self._given.url} is lost")
        try:
            if self._asked and (early := _waiting(self._connection)) is not None:
                fix = "correct the server: it must answer each message once"
                raise wrong(self._who, f"before {kind} was asked for, the server sent", early, fix)
            with contextlib.suppress(WebSocketException):  # a full server says so and hangs up: its words are there
                self._connection.send(json.dumps({"type": kind, "data": data}))
            received = self._connection.recv(timeout=ANSWER)
        except (OSError, WebSocketException) as error:
            self.close()
            raise EngineLost(f"the session at {self._given.url} was lost at {kind}: {error}") from error
        self._asked = True
        try:
            answer = json.loads(received)
        except (ValueError, RecursionError):
            answer = received
        if not isinstance(answer, dict):
            raise wrong(self._who, f"the server answers {kind} with", received, f"correct the server: {ANSWERS}")
        return answer


def _waiting(connection: ClientConnection) -> str | bytes | None:
    """A message that came without a question; None where there is none."""
    with contextlib.suppress(TimeoutError):
        return connection.recv(timeout=0)
    return None


class RefusedError(RuntimeError):
    """What the server answers where its environment, or the server itself, cannot do what was asked."""


@cache
def _get(url: str) -> dict[str, Any]:
    """What a server says of itself. Raises ValueError where that is no JSON object, or does not end."""
    content, until = b"", time.monotonic() + ANSWER
    with httpx2.stream("GET", url) as response:
        for part in response.raise_for_status().iter_bytes():
            content += part
            if len(content) > LARGEST or time.monotonic() > until:
                raise ValueError(f"its answer has more than {LARGEST} bytes, or takes more than {ANSWER:g} s")
    try:
        answer = json.loads(content)
    except RecursionError as error:
        raise ValueError("its answer has too many brackets within one another") from error
    if not isinstance(answer, dict):
        raise ValueError(f"it answers {shown(answer)}")
    return answer


def _part(value: Any, key: str, kind: type[Part]) -> Part:
    """A part of a JSON object, empty where it is missing or of another type."""
    part = value.get(key) if isinstance(value, dict) else None
    return part if isinstance(part, kind) else kind()
