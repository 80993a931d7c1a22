"""What plays an evaluation or answers a probe: a model of this machine, or one at a server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from r3l.core.errors import check_known

if TYPE_CHECKING:
    from r3l.evaluation.agents import ServedAgent

CONCURRENCY = 16  # episodes at once; our choice
DEADLINE = 600.0  # seconds; 4,096 tokens of a slow server under load take minutes
SERVER_ONLY = {"dialog", "tokenizer", "request", "deadline"}


@dataclass(frozen=True)
class Asked:
    """What plays or answers: a model of this machine, or one at a server, and how that is asked."""

    server: str | None
    model: str | None
    dialog: str
    tokenizer: str | None
    request: list[str]
    deadline: float
    batch: int | None

    def check_there(self) -> None:
        """Refuse a server that is not there before anything is imported that takes seconds."""
        from r3l.endpoint.options import EndpointOptions

        if self.server:
            EndpointOptions(self.server, "").check_there()

    def agent(self, tokenizer: str | None = None) -> ServedAgent:
        """The model at the server; without a name the only one there. ``tokenizer``: where none is given."""
        from r3l.endpoint.client import about_model, only_model
        from r3l.endpoint.options import EndpointOptions
        from r3l.evaluation.agents import Dialog, ServedAgent

        check_known("dialog", self.dialog, set(Dialog))
        fields = dict(map(_field, self.request))
        options = EndpointOptions(str(self.server), self.model or "", self.batch or CONCURRENCY, self.deadline, fields)
        if self.model is None:
            options = replace(options, model=asyncio.run(only_model(options)))
        about = asyncio.run(about_model(options))
        return ServedAgent(options, Dialog(self.dialog), self.tokenizer or tokenizer, about)


def _field(text: str) -> tuple[str, Any]:
    """``top_p=0.9`` -> (``top_p``, 0.9); what is not JSON is text."""
    from r3l.config.method import check_change

    check_change(text)
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
