"""A program of its own: renders a chat template under limits of time, memory and text (r3l.chat.chat_template).

A template is a program that comes with a model: two nested loops need a day, and ``'x' * 10**9`` fits in a line. No
limit inside a process stops both. It needs jinja2 alone, so it starts in a tenth of a second.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS, MEMORY, CHARACTERS = 2, 512 << 20, 1_000_000  # of one short dialog; our choice
TOO_LONG, TOO_LARGE = 3, 4  # exit codes
# What a template takes for today, so that prompts do not depend on the day: Llama 3.1's default.
DAY = datetime(2024, 7, 26)


class Generation(Extension):
    """``{% generation %}`` of transformers' templates: its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def environment() -> ImmutableSandboxedEnvironment:
    """With what transformers gives a chat template."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": DAY.strftime}
    return made


def main() -> int:
    """Standard input: JSON with ``template`` and the variables of every ``dialog``. An error ends a rendering in good
    time too: whoever asks meets it again."""
    given = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    for variables in given["dialogs"]:
        length = 0
        try:
            for piece in environment().from_string(given["template"]).generate(**variables):
                length += len(piece)
                if length > CHARACTERS:
                    return TOO_LONG
        except MemoryError:
            return TOO_LARGE
        except Exception:  # noqa: BLE001 - a template may raise anything
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
