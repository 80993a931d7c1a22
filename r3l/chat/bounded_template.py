"""A separate program that renders a chat template under limits of time, memory and text length.

A template is a program that comes with a model: two nested loops can run for a day, and ``'x' * 10**9`` fits
in one line. No limit inside our process stops both, so r3l.chat.chat_template runs this one. It needs only
jinja2 and starts in a tenth of a second.
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

# Limits for rendering all dialogs together (bytes of memory) and the text of each; our choice.
CPU_SECONDS = 2
MEMORY = 512 << 20
CHARACTERS = 1_000_000
# Exit codes for text above CHARACTERS and for exhausted memory.
TOO_LONG = 3
TOO_LARGE = 4
# The date that templates get for today, so that prompts do not change from day to day (Llama 3.1's default).
DAY = datetime(2024, 7, 26)


class Generation(Extension):
    """jinja2 extension that renders transformers' block ``{% generation %}`` as its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes of the block's content, without its two tags; called by jinja2."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def environment() -> ImmutableSandboxedEnvironment:
    """A jinja2 sandbox with the extensions, filters and functions that transformers gives chat templates.

    Today's date is always DAY.
    """
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, Generation],
    )

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": DAY.strftime}
    return made


def main() -> int:
    """Render dialogs with a chat template within the limits of this module, and return the exit code.

    Standard input holds JSON: ``template``, and ``dialogs``, the template's variables for each. The code is
    0, ``TOO_LONG`` or ``TOO_LARGE``; beyond CPU_SECONDS the system kills the process. A template's own error
    counts as success: it ends in time, and the caller's rendering raises it again.
    """
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
