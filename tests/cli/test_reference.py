"""docs/cli.md is what the program says of itself."""

from docs.pages import DOCS, text

from r3l.cli.reference import page


def test_the_page_of_commands_is_current():
    assert text(DOCS / "cli.md") == page(), "python -m r3l.cli.reference > docs/cli.md"


def test_first_sentences_are_whole():
    assert "* `preflight`: Explore one step, update nothing: are sampling's log-probs those of training?" in page()
