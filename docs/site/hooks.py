"""What the site does to the pages.

- The pages of commands, options, metrics and interfaces are generated while it is built, from the code.
- Files of the repository that pages link to are copied to files/.
- The notebook of measurements (results/notebook/) becomes pages under notebook/.
- Links of the pre-registration, whose bytes do not change, are redirected to where pages have moved.
- A number and its interval stay on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from moved import MOVED
from reference import commands, interfaces, metrics, options

_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")
_NOTEBOOK_LINK = re.compile(r"(?<=\]\()\.\./\.\./([^)#\s]+)")  # an entry's links, from results/notebook/
_INTERVAL = re.compile(
    r"(?<=\d) (?=±)|(?<=±) (?=\d)|(?<=\d) (?=\(\d+/\d+\))|(?<=\d) (?=to \d)|(?<=\d to) (?=\d)"
)
_SHOWN = {".png", ".html"}  # what a browser shows as it is; anything else is shown as text
NOTEBOOK = "results/notebook/"

GENERATED: dict[str, Callable[[], str]] = {
    "cli.md": commands,
    "options.md": options,
    "metrics.md": metrics,
    "api.md": interfaces,
}


def address(target: str) -> str:
    """Path on the site of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.startswith(NOTEBOOK):
        return target.removeprefix("results/")
    return f"files/{target}" if Path(target).suffix in _SHOWN else f"files/{target}.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the notebook, the generated pages, and the files that pages link to."""
    root = Path(config.config_file_path).parent
    targets = {
        target for page in files.documentation_pages() for target in _LINK.findall(page.content_string)
    }
    for entry in sorted((root / NOTEBOOK).glob("*.md")):
        targets |= set(_NOTEBOOK_LINK.findall(entry.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"notebook/{entry.name}", abs_src_path=str(entry)))
    for target in sorted(targets):
        if (root / target).is_file() and not target.startswith(("docs/", NOTEBOOK)):
            files.append(File.generated(config, address(target), abs_src_path=str(root / target)))
    for name, content in GENERATED.items():
        files.append(File.generated(config, name, content=content()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirects links, and keeps numbers together."""
    if page.file.src_path == "preregistration.md":
        for old, new in MOVED.items():
            markdown = markdown.replace(f"]({old})", f"]({new})")
    if page.file.src_path.startswith("notebook/"):
        linked = _NOTEBOOK_LINK.sub(lambda match: f"../{address(match[1])}", markdown)
    else:
        linked = _LINK.sub(lambda match: address(match[1]), markdown)
    return _INTERVAL.sub("\u00a0", linked)
