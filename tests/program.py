"""The program as a user starts it."""

from __future__ import annotations

import sys

import pytest

from r3l import cli


def run(monkeypatch, capsys, *arguments):
    """(exit code, stdout, stderr) of ``r3l ARGUMENTS``, in this process."""
    monkeypatch.setattr(sys, "argv", ["r3l", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err
