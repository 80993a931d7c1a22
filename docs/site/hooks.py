"""What the site does to the pages: files of the repository that they link to are copied to files/; a number and its
interval stay on one line."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
_INTERVAL = re.compile(r"(?<=\d) (?=±)|(?<=±) (?=\d)|(?<=\d) (?=\(\d+/\d+\))|(?<=\d) (?=to \d)|(?<=\d to) (?=\d)")
_SHOWN = {".png", ".html"}  # what a browser shows as it is; anything else is shown as text


def address(target: str) -> str:
    """Where the site has a file of the repository."""
    return f"files/{target}" if Path(target).suffix in _SHOWN else f"files/{target}.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to."""
    root = Path(config.config_file_path).parent
    targets = {target for page in files.documentation_pages() for target in _LINK.findall(page.content_string)}
    for target in sorted(targets):
        if (root / target).is_file():
            files.append(File.generated(config, address(target), abs_src_path=str(root / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets the links point there, and keeps numbers together."""
    linked = _LINK.sub(lambda match: address(match[1]), markdown)
    return _INTERVAL.sub("\u00a0", linked)
