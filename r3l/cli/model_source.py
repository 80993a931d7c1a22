"""The model under test in an evaluation or a probe: local, or behind a server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.core.errors import ConfigError, check_known

if TYPE_CHECKING:
    from r3l.evaluation.served_model import ServedModel

CONCURRENCY = 16  # episodes at once; our choice
DEADLINE = 600.0  # seconds; 4,096 tokens of a slow server under load take minutes
SERVER_ONLY = ("dialog", "tokenizer", "request", "deadline")


@dataclass(frozen=True)
class ModelSource:
    """The options that name the model under test: a local one, or one behind ``server`` and how it is called.

    ``batch``: episodes at once, for a server its requests at the same time; None: a default. ``request``:
    ``KEY=VALUE`` fields of every request, values as JSON. ``deadline``: seconds for one response.
    """

    server: str | None = None
    model: str | None = None
    dialog: str = "messages"
    tokenizer: str | None = None
    request: list[str] = field(default_factory=list)
    deadline: float = DEADLINE
    batch: int | None = None

    def check(self) -> None:
        """Raise ConfigError for options that need --server without it, or for an invalid address.

        With --server it opens and closes a connection without a request, and raises ServerError if nothing
        listens at the address. Called before imports that take seconds.
        """
        from r3l.endpoint.options import EndpointOptions

        if self.server:
            EndpointOptions(self.server, "").check_there()
            return
        unused = [name for name in SERVER_ONLY if getattr(self, name) != getattr(ModelSource(), name)]
        if unused:
            raise ConfigError(
                f"--{unused[0]} cannot be combined with a local model: name a --server, or leave it out"
            )

    def served_model(self, tokenizer: str | None = None) -> ServedModel:
        """The model at the server, found by a request; without a name the only one there.

        ``tokenizer``: used if the options name none. Raises ConfigError for an option that cannot be used,
        and ServerError if no model is named and the server does not list exactly one.
        """
        from r3l.config.method import check_change
        from r3l.endpoint.client import about_model, only_model
        from r3l.endpoint.options import EndpointOptions
        from r3l.evaluation.served_model import Dialog, ServedModel

        check_known("dialog", self.dialog, set(Dialog))
        if self.model is not None and not self.model.strip(" /"):
            raise ConfigError(
                f"--model is {self.model!r}: give the model's name as the server has it, or leave the option "
                "out if the server has only one"
            )
        fields: dict[str, Any] = {}
        for text in self.request:
            check_change(text)
            key, _, value = text.partition("=")
            try:
                fields[key] = json.loads(value)
            except ValueError:  # plain text
                fields[key] = value
        options = EndpointOptions(
            str(self.server), self.model or "", self.batch or CONCURRENCY, self.deadline, fields
        )
        if self.model is None:
            options = replace(options, model=asyncio.run(only_model(options)))
        if Path(options.model).name in ("", ".."):  # `vllm serve .` names its model so
            raise ConfigError(
                f"the server calls its model {options.model!r}, under which no score can be filed: start the "
                "server with a name for it (vLLM: --served-model-name NAME), and give that as --model"
            )
        about = asyncio.run(about_model(options))
        return ServedModel(options, Dialog(self.dialog), self.tokenizer or tokenizer, about)
