"""The program as a user starts it."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import pytest

from r3l import cli

# Imports are most of what a short command takes: 3 to 6 s. A process that has done them is forked for each
# command.
ENVIRONMENT = dict(os.environ)
FORKS = multiprocessing.get_context("forkserver")
OURS = ["r3l.cli", "r3l.evaluation.evaluate", "r3l.local.engine", "r3l.report.tables"]
FORKS.set_forkserver_preload([*OURS, "snakemake.cli", "smart_open"])


def run(monkeypatch, capsys, *arguments):
    """(exit code, stdout, stderr) of ``r3l ARGUMENTS``, in this process."""
    monkeypatch.setattr(sys, "argv", ["r3l", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


def ready():
    """Have that process, with the environment of the whole session, not of the first test that comes here."""
    with patch.dict(os.environ, ENVIRONMENT, clear=True):
        forkserver.ensure_running()


class Program:
    """``python -m MODULE ARGUMENTS`` in ``folder``: a process and a session of its own."""

    def __init__(self, module, *arguments, folder="."):
        self.folder = Path(folder)
        self._outputs = tempfile.TemporaryDirectory()
        for name in ("stdout", "stderr"):
            Path(self._outputs.name, name).touch()  # it may be killed before it comes to that
        start = (
            module,
            list(map(str, arguments)),
            os.path.abspath(folder),
            dict(os.environ),
            self._outputs.name,
        )
        ready()
        self.process = FORKS.Process(target=_main, args=start)
        self.process.start()

    def written(self, name):
        """What it has written so far to ``stdout`` or ``stderr``."""
        return Path(self._outputs.name, name).read_text()

    def wait(self):
        """(exit code, stdout, stderr) when it has ended; the code is -N where signal N has ended it."""
        self.process.join()
        stdout, stderr = map(self.written, ("stdout", "stderr"))
        self._outputs.cleanup()
        return self.process.exitcode, stdout, stderr


def _main(module, arguments, folder, environment, outputs):
    os.setsid()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # as from a terminal: a shell's background job ignores it
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(outputs, name), os.O_WRONLY), number)
    sys.modules.pop(
        "__mp_main__", None
    )  # of a process that multiprocessing has started, which a user's is not
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
