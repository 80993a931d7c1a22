"""Readers of the pages, for the tests of this folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from r3l.files.paths import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
KEPT = DOCS / "preregistration.md"  # its bytes never change: it names commands, files and pages of its time
TODAY = [page for page in PAGES if page != KEPT]
NOTEBOOK = sorted((ROOT / "results" / "notebook").glob("*.md"))  # dated: they too name commands of their time

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[str]:
    """The contents of its code blocks."""
    return [block.split("\n", 1)[1].rsplit("\n", 1)[0] for block in _FENCE.findall(text(page))]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", text(page))


def links(page: Path) -> Iterator[str]:
    """The targets of its links, those to the network left out."""
    for target in _LINK.findall(prose(page)):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of its headings: lower case, punctuation dropped, spaces to hyphens."""
    plain = (re.sub(r"[`*]", "", heading).strip().lower() for heading in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def inline_code(page: Path) -> list[str]:
    """Texts in backticks, once each."""
    return list(dict.fromkeys(re.findall(r"`([^`\n]+)`", prose(page))))
