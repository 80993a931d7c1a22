"""The page of all commands is what the program says of itself."""

from program import run

import r3l


def test_the_version_is_printed_and_nothing_else(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"{r3l.__version__}\n", "")
