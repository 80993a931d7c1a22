"""What the site does to the pages.

- The pages of commands, options, metrics and interfaces are generated while it is built, from the code.
- Files of the repository that pages link to are copied to files/.
- The pre-registration is kept as it was written, so its links to pages that have moved are redirected.
- A number and its interval stay on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import commands, interfaces, metrics, options

_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
_INTERVAL = re.compile(r"(?<=\d) (?=±)|(?<=±) (?=\d)|(?<=\d) (?=\(\d+/\d+\))|(?<=\d) (?=to \d)|(?<=\d to) (?=\d)")
_SHOWN = {".png", ".html"}  # what a browser shows as it is; anything else is shown as text
MOVED = {"regime.md": "start_models.md", "tuning.md": "compare.md#tune-learning-rates", "power.md": "compare.md#power"}

GENERATED: dict[str, Callable[[], str]] = {
    "cli.md": commands,
    "options.md": options,
    "metrics.md": metrics,
    "api.md": interfaces,
}


def address(target: str) -> str:
    """Where the site has a file of the repository."""
    return f"files/{target}" if Path(target).suffix in _SHOWN else f"files/{target}.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, and the files that pages link to."""
    root = Path(config.config_file_path).parent
    targets = {target for page in files.documentation_pages() for target in _LINK.findall(page.content_string)}
    for target in sorted(targets):
        if (root / target).is_file():
            files.append(File.generated(config, address(target), abs_src_path=str(root / target)))
    for name, content in GENERATED.items():
        files.append(File.generated(config, name, content=content()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirects links, and keeps numbers together."""
    linked = _LINK.sub(lambda match: address(match[1]), markdown)
    if page.file.src_path == "preregistration.md":
        for old, new in MOVED.items():
            linked = linked.replace(f"]({old})", f"]({new})")
    return _INTERVAL.sub("\u00a0", linked)
