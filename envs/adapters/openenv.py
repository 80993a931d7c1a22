"""Environments behind an OpenEnv server: an engine is a session there, a task is the seed that ``reset`` gets.

The session is held here and not by the library's client: that one opens a new session without a word where the first
was lost, and an episode would go on in a game that was never begun.
"""

from __future__ import annotations

import contextlib
import json
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
from r3l.envs.adapters.gymnasium import GameArguments, TextGames

from r3l.core.errors import EngineError, EngineLost
from r3l.core.option import option

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

ANSWER = 120.0  # seconds until an answer; our choice, below the deadline of a worker
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
            field, known = getattr(self.given, kind), schema[kind].get("properties", {})
            if field not in known:
                raise self.wrong(kind, field, f"no field of the server's {kind}s, which have {', '.join(known)}")
        if further := [name for name in schema["action"].get("required", ()) if name != self.given.action]:
            raise self.wrong("action", self.given.action, f"the server's actions also need {', '.join(further)}")
        return Session(self.given)

    def _described(self, what: str) -> dict[str, Any]:
        try:
            return _get(f"{self.given.url.rstrip('/')}/{what}")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            why = f"no OpenEnv server answers there with its {what}: {type(error).__name__}: {error}"
            raise self.wrong("url", self.given.url, why) from error


class Session:
    """A game on the server, as ``TextGames.make`` gives it. A lost session is made anew at the next reset."""

    def __init__(self, given: OpenEnvArguments) -> None:
        self._given = given
        self._open = contextlib.ExitStack()
        self._connection: ClientConnection | None = None

    def reset(self, seed: int) -> SimpleNamespace:
        from websockets.sync.client import connect

        if self._connection is None:
            address = f"{self._given.url.rstrip('/')}/ws".replace("http", "ws", 1)
            try:  # pings are the server's: here nothing may answer while a model is trained
                self._connection = self._open.enter_context(connect(address, ping_interval=None, max_size=None))
            except (OSError, ValueError) as error:
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

        self._connection = None
        with contextlib.suppress(OSError, WebSocketException):  # lost already
            self._open.close()

    def _ask(self, kind: str, data: dict[str, Any]) -> SimpleNamespace:
        """``observation`` (a text), ``reward`` and ``done`` of the answer. Raises EngineLost with the session."""
        from websockets.exceptions import WebSocketException

        if self._connection is None:
            raise EngineLost(f"the session at {self._given.url} is lost")
        try:
            with contextlib.suppress(WebSocketException):  # a full server says so and hangs up: its words are there
                self._connection.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(self._connection.recv(timeout=ANSWER))
        except (OSError, WebSocketException) as error:
            self.close()
            raise EngineLost(f"the session at {self._given.url} was lost at {kind}: {error}") from error
        if answer["type"] == "error":
            raise RefusedError(f"{answer['data'].get('code')}: {answer['data'].get('message')}")
        said = answer["data"]
        text = said["observation"][self._given.observation]
        text = text if isinstance(text, str) else json.dumps(text)
        return SimpleNamespace(observation=text, reward=said.get("reward"), done=said.get("done", False))


class RefusedError(RuntimeError):
    """What the server answers where its environment, or the server itself, cannot do what was asked."""


@cache
def _get(url: str) -> dict[str, Any]:
    answer = httpx2.get(url).raise_for_status().json()
    if not isinstance(answer, dict):
        raise ValueError(f"it answers {answer!r}")
    return answer
