"""Run as a program in a pseudo-terminal: prints what commands print there, at several widths.

The arguments, in JSON: a list of commands, then the widths. What takes long is computed once: runs for all commands,
and the numbers of a table for all widths.
"""

from __future__ import annotations

import functools
import json
import os
import sys

from r3l import cli
from r3l.report import claim_verdicts, compare, reading, tables

END = "\x1e"  # ends the output of one command at one width; its exit code follows


def compute_once(module, name: str, key) -> None:
    """Let a function of ``module`` compute only where ``key`` of its arguments is new."""
    function, known = getattr(module, name), {}

    def kept(*arguments, **named):
        of = key(*arguments, **named)
        if of not in known:
            known[of] = function(*arguments, **named)
        return known[of]

    setattr(module, name, kept)


def main() -> None:
    commands, *widths = map(json.loads, sys.argv[1:])
    reading._read_run = functools.cache(reading._read_run)
    compute_once(reading, "read_runs", lambda paths, named=(): (*paths, "named", *named))
    for module, name in ((tables, "build"), (claim_verdicts, "claim_verdicts"), (compare, "compare_methods")):
        compute_once(module, name, lambda *arguments, **named: tuple(sys.argv))
    for words in commands:
        for width in widths:
            os.environ["COLUMNS"] = str(width)
            sys.argv = ["r3l", *words]
            try:
                code = cli.main() or 0
            except SystemExit as ended:
                code = ended.code or 0
            print(f"{END}{code}", flush=True)


if __name__ == "__main__":
    main()
