"""Released definitions answer cases in a process of their own: an empty environment and folder, no site of the user.

Run as a script it is that process: a request on stdin, the answers on stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PATH": os.defpath, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
TIMEOUT = 900  # seconds; our choice: the slowest check takes a tenth


def ask(module: str, name: str, sources: Mapping[str, str], cases: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers of the check ``name`` of ``module`` to ``cases``, from the ``sources`` of its files by path.

    Raises DataError with the last line of what the process wrote, where it ends early.
    """
    from r3l.core.errors import DataError

    request = json.dumps({"module": module, "name": name, "sources": dict(sources), "cases": list(cases)})
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-I", __file__],
            input=request,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=ENVIRONMENT,
            timeout=TIMEOUT,
        )
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"the released code of {name} ({', '.join(sources)}) could not run: {last}")
    answers: list[Any] = json.loads(ran.stdout)
    return answers


def serve(request: dict[str, Any]) -> list[Any]:
    """The answers to a request."""
    from r3l.released.check import Check, answer
    from r3l.released.definitions import execute

    checks: Sequence[Check] = importlib.import_module(request["module"]).CHECKS
    (check,) = [check for check in checks if check.name == request["name"]]
    namespace: dict[str, Any] = {"__name__": "released"}
    for code in check.code:
        execute(request["sources"][code.path], code.path, code.names, namespace)
    return [answer(check.theirs, namespace, case) for case in request["cases"]]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    with redirect_stdout(sys.stderr):  # released code prints
        answers = serve(json.load(sys.stdin))
    json.dump(answers, sys.stdout)
