"""What the program says of itself."""

from program import run

import r3l
from r3l.cli.reference import page


def test_first_sentences_are_whole():
    assert "* `preflight`: Explore one step, update nothing: are sampling's log-probs those of training?" in page()


def test_the_version_is_printed_and_nothing_else(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"{r3l.__version__}\n", "")
