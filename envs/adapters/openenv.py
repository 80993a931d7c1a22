"""Environments on an OpenEnv server: an engine is a session, a task is the seed passed to ``reset``.

The session is ours, not the library client's: if a session is lost, the client silently opens
a new one, and an episode would continue in a game that was never started.
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
DEADLINE_S = 120.0  # for an answer; our choice, below the deadline of a worker
MAX_BYTES = 2**24  # of an answer; our choice, sixteen times the longest observation
ANSWER_FORMAT = '{"type": "observation", "data": {"observation": {...}, "reward": ..., "done": ...}}'
FULL = "CAPACITY_REACHED"  # the server's error code if all sessions are in use


class OpenEnvArguments(GameArguments):
    """The key ``arguments`` for an environment on an OpenEnv server."""

    url: str = option(..., "address of the server, e.g. http://localhost:8000")
    observation: str = option(..., "field of an observation that the model reads")
    action: str = option(
        ...,
        "field of an action that receives the response, or the number of a named action",
    )


class OpenEnv(TextGames[OpenEnvArguments]):
    """The environment that an OpenEnv server plays; each running episode holds one session of the server."""

    arguments = OpenEnvArguments
    extra = "openenv"

    def payload(self, number: int) -> dict[str, Any]:
        """The contents of game ``number``, part of its task and so of the task set's hash.

        ``before``: the system message with rules and form of an action, if there is one. ``server``: name and
        version that the server gives of itself, since its games may change with them. Raises ConfigError if
        no server answers.
        """
        about = self._described("metadata")
        return super().payload(number) | {"server": {key: about.get(key) for key in ("name", "version")}}

    def make(self) -> OpenEnvSession:
        """Create a session, which connects at its first reset.

        Asks the server for its schema, and raises ConfigError if no server answers, if it lacks the
        configured fields, or if its actions need further ones.
        """
        schema = self._described("schema")
        for kind in ("observation", "action"):
            field = getattr(self.given, kind)
            known = _part(_part(schema, kind, dict), "properties", dict)
            if field not in known:
                raise self.wrong(
                    kind,
                    field,
                    f"no field of the server's {kind}s, which have {', '.join(known)}",
                )
        required = _part(schema["action"], "required", list)
        further = [str(name) for name in required if name != self.given.action]
        if further:
            raise self.wrong(
                "action",
                self.given.action,
                f"the server's actions also need {', '.join(further)}",
            )
        return OpenEnvSession(self.name, self.given)

    def _described(self, what: str) -> dict[str, Any]:
        """The server's ``metadata`` or ``schema``."""
        try:
            return _get(f"{self.given.url.rstrip('/')}/{what}")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            why = f"no OpenEnv server answers there with its {what}: {type(error).__name__}: {error}"
            raise self.wrong("url", self.given.url, why) from error


class OpenEnvSession:
    """One session on an OpenEnv server: it plays one game at a time (``reset``, ``step``), over a websocket.

    If the session is lost, the game fails with EngineLost, and the next ``reset`` opens a new session.
    """

    def __init__(self, name: str, given: OpenEnvArguments) -> None:
        self._who = f"environment {name!r}"
        self._given = given
        self._answered = False  # whether this connection has received an answer
        self._open = contextlib.ExitStack()
        self._connection: ClientConnection | None = None

    def reset(self, seed: int) -> SimpleNamespace:
        """Start the game with ``seed``; returns what :meth:`step` returns. Opens a session if none is open.

        Raises EngineError if the server refuses to start the game, EngineLost if a session cannot be opened
        or the connection breaks.
        """
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        if self._connection is None:
            address = f"{self._given.url.rstrip('/')}/ws".replace("http", "ws", 1)
            try:
                # No pings from here: while a model is trained, nothing in this process reads their answers.
                connection = connect(address, ping_interval=None, max_size=MAX_BYTES)
                self._connection = self._open.enter_context(connection)
            except (OSError, ValueError, WebSocketException) as error:
                raise EngineLost(f"no session at {self._given.url}: {error}") from error
        try:
            return self._request("reset", {"seed": seed})
        except RefusedError as error:
            fix = ""
            if FULL in str(error):
                fix = ": give its create_app a max_concurrent_envs of all episodes in play"
            raise EngineError(
                f"{self._given.url} starts no episode with seed {seed}{fix}. {error}",
            ) from error

    def step(self, action: str | int) -> SimpleNamespace:
        """Send an action and return the server's ``observation`` (a text), ``reward`` and ``done``.

        Raises RefusedError if the environment reports an error, EngineLost if the connection is closed or
        breaks.
        """
        return self._request("step", {self._given.action: action})

    def close(self) -> None:
        """Close the session, if there is one; the next ``reset`` opens another."""
        from websockets.exceptions import WebSocketException

        self._connection = None
        self._answered = False
        with contextlib.suppress(OSError, WebSocketException):  # already lost
            self._open.close()

    def _request(self, kind: str, data: dict[str, Any]) -> SimpleNamespace:
        """Send a request; the answer's ``observation`` (a text), ``reward`` and ``done``.

        Raises EngineLost if the connection is closed or breaks, RefusedError if the server answers with an
        error.
        """
        from websockets.exceptions import WebSocketException

        if self._connection is None:
            raise EngineLost(f"the session at {self._given.url} is lost")

        # An unrequested message would be taken for the next answer, and shift all later ones.
        try:
            early: str | bytes | None = None
            if self._answered:
                with contextlib.suppress(TimeoutError):
                    early = self._connection.recv(timeout=0)
            if early is not None:
                fix = "correct the server: it must answer each message once"
                raise wrong(self._who, f"before the request {kind}, the server sent", early, fix)
            # A full server sends an error and closes: sending fails, but its message can still be received.
            with contextlib.suppress(WebSocketException):
                self._connection.send(json.dumps({"type": kind, "data": data}))
            received = self._connection.recv(timeout=DEADLINE_S)
        except (OSError, WebSocketException) as error:
            self.close()
            raise EngineLost(f"the session at {self._given.url} was lost at {kind}: {error}") from error
        self._answered = True

        # Read the answer; anything but the documented format is the server's error.
        try:
            answer = json.loads(received)
        except (ValueError, RecursionError):
            answer = received
        if not isinstance(answer, dict):
            fix = f"correct the server: {ANSWER_FORMAT}"
            raise wrong(self._who, f"the server answers {kind} with", received, fix)
        content = _part(answer, "data", dict)
        if answer.get("type") == "error":
            raise RefusedError(shown(f"{content.get('code')}: {content.get('message')}"))
        observation = _part(content, "observation", dict).get(self._given.observation)
        if answer.get("type") != "observation" or observation is None:
            field = self._given.observation
            fix = f"correct the server: an answer is {ANSWER_FORMAT} with {field!r} in its observation"
            raise wrong(self._who, f"the server answers {kind} with", answer, fix)
        text = observation if isinstance(observation, str) else json.dumps(observation)
        return SimpleNamespace(
            observation=text,
            reward=content.get("reward"),
            done=content.get("done", False),
        )


class RefusedError(RuntimeError):
    """An error that the server or its environment sent in reply."""


@cache
def _get(url: str) -> dict[str, Any]:
    """Get a JSON object from the server. Raises ValueError for another content, size or duration."""
    content = b""
    until = time.monotonic() + DEADLINE_S
    with httpx2.stream("GET", url) as response:
        for part in response.raise_for_status().iter_bytes():
            content += part
            if len(content) > MAX_BYTES or time.monotonic() > until:
                raise ValueError(
                    f"its answer has more than {MAX_BYTES} bytes, or takes more than {DEADLINE_S:g} s",
                )
    try:
        answer = json.loads(content)
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
    if not isinstance(answer, dict):
        raise ValueError(f"it answers {shown(answer)}")
    return answer


def _part(value: Any, key: str, kind: type[Part]) -> Part:
    """A part of a JSON object; empty if it is missing or of another type."""
    part = value.get(key) if isinstance(value, dict) else None
    return part if isinstance(part, kind) else kind()
