"""Options of a served model, and the errors of a server. Imports no client, which takes seconds."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from r3l.core.errors import ConfigError, R3LError
from r3l.endpoint.context_limits import ContextRoom
from r3l.files.redact import MASK, hide_address, hide_fields

KEPT = "Finished episodes are kept: re-run to resume"
CONNECT = 10.0  # seconds for a connection; our choice
PORTS = {"http": 80, "https": 443}
ANSWERED_BY = "answered_by/"  # begins the counts of answers by model
_ADDRESS = re.compile(r"https?://[^\s/]\S*")


class ServerError(R3LError, RuntimeError):
    """A model server cannot be reached, refuses a request, or gives no usable answer."""


class DialogTooLongError(ServerError):
    """The server refused a request because dialog and response do not fit into its context.

    ``room``: the token counts that its refusal names.
    """

    def __init__(self, message: str, room: ContextRoom | None = None) -> None:
        super().__init__(message)  # pickle makes the error from this alone, then sets its attributes
        self.room = room or ContextRoom()


class RefusedRequestError(ServerError):
    """The server refused a request as wrong (status 400 or 422), for another reason than a full context."""


class UnfinishedError(ServerError):
    """The server's responses to a request stay incomplete, also when it is repeated.

    ``lasting``: the reason, if it would come again at any repetition (such as ``content_filter``); else None.
    """

    def __init__(self, message: str, lasting: str | None = None) -> None:
        super().__init__(message)
        self.lasting = lasting


class Settable(NamedTuple):
    """Names by which error messages tell the user what to change: an option, a setting, a variable.

    ``url``, ``model``, ``deadline``, ``concurrency``: names for these fields of EndpointOptions; ``result``:
    what the responses are for, in words.
    """

    url: str = "--server"
    model: str = "--model"
    deadline: str = "--deadline"
    concurrency: str = "--batch"
    result: str = "the score"


def models_in(counts: Mapping[str, float]) -> dict[str, int]:
    """Number of answers by the model that they name, from an endpoint's ``counts`` (``answered_by/NAME``).

    Other counts are ignored; sorted by name.
    """
    return {
        key.removeprefix(ANSWERED_BY): int(number)
        for key, number in sorted(counts.items())
        if key.startswith(ANSWERED_BY)
    }


@dataclass(frozen=True)
class EndpointOptions:
    """A model at an OpenAI-compatible server, and how it is called.

    ``url``: the server's base address, with or without ``/v1``, and a query if it needs one. ``model``: its
    name there. ``concurrency``: dialogs at once. ``deadline``: seconds for one attempt at a request.
    ``fields``: added to every request; None as value removes a field that would be sent otherwise.
    ``settable``: names of these settings for errors. Raises ConfigError for an invalid address. Secrets in
    address and fields are hidden from messages from then on.
    """

    url: str
    model: str
    concurrency: int = 16
    deadline: float = 600.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    settable: Settable = Settable()

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            # A port beyond 65535 raises ValueError.
            valid = _ADDRESS.fullmatch(self.url) and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        hide_address(self.url)
        if not valid:
            # Everything before the last @ may be a password, and so may a query.
            before, _, rest = self.url.partition("?")[0].rpartition("@")
            address = f"{MASK}@{rest}" if before else rest
            raise ConfigError(f"the server {address!r} must be an address such as http://localhost:8000")
        hide_fields(self.fields)

    @property
    def base(self) -> str:
        """The address up to and with ``/v1``, which is added if missing; user and password stay.

        A query and the ending ``/chat/completions`` are removed.
        """
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1") + "/v1"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))

    @property
    def query(self) -> dict[str, str]:
        """The address's query by name, which goes with every request (Azure: ``?api-version=preview``)."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    def check_there(self) -> None:
        """Open and close a connection; raise ServerError if nothing listens at the address.

        A server that does not connect within CONNECT (10) seconds passes; behind a proxy nothing is checked.
        """
        parts = urlsplit(self.base)
        host = str(parts.hostname)
        if getproxies().get(parts.scheme) and not proxy_bypass(host):
            return
        with suppress(TimeoutError):  # a slow server is left to the client, which waits longer
            try:
                socket.create_connection((host, parts.port or PORTS[parts.scheme]), timeout=CONNECT).close()
            except TimeoutError:
                raise
            except OSError as error:
                raise ServerError(
                    f"{self.shown} cannot be reached ({error}). Start the server, or correct "
                    f"{self.settable.url}"
                ) from error

    @property
    def is_openai(self) -> bool:
        """True if the server is OpenAI's own (openai.com or a subdomain)."""
        host = str(urlsplit(self.base).hostname)
        return host == "openai.com" or host.endswith(".openai.com")

    @property
    def shown(self) -> str:
        """The address without user, password and query, for messages and files."""
        parts = urlsplit(self.base)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
