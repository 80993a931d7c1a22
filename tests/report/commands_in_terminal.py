"""Run as a program in a pseudo-terminal: prints what commands print there, at several widths.

The arguments, in JSON: a list of commands, then the widths. Runs that several tables show are read once.
"""

from __future__ import annotations

import functools
import json
import os
import sys

from r3l import cli
from r3l.report import frame

END = "\x1e"  # ends the output of one command at one width; its exit code follows


def main() -> None:
    commands, *widths = map(json.loads, sys.argv[1:])
    frame._read_run = functools.cache(frame._read_run)
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
