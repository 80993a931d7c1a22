"""The page of all commands is what the program says of itself."""

from program import run

import r3l
from r3l.cli.reference import page


def test_the_page_has_every_command_with_a_whole_first_sentence():
    text = page()
    assert "* `compare`: Train a method where it is not trained yet, then compare it with the stored baselines" in text
    assert "## `r3l data`" in text and "--set" in text


def test_the_version_is_printed_and_nothing_else(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"{r3l.__version__}\n", "")
