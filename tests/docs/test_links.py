"""Links between the pages, and from them into the repository, lead somewhere; so do the paths that they
name."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from docs.pages import DOCS, KEPT, NOTEBOOK, PAGES, TODAY, anchors, blocks, inline_code, links, text

from docs.site.moved import MOVED
from r3l.files.paths import ROOT

GENERATED = {"cli.md", "options.md", "metrics.md", "api.md"}
_PATH = re.compile(
    r"(?<![\w/.@-])(?:r3l|baselines|envs|configs|tests|docs|examples|workflow|results/stored)/[\w./*-]*[\w*]"
)


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOK], ids=lambda page: page.name)
def test_links_resolve(page):
    for target in links(page):
        target = MOVED.get(target, target) if page == KEPT else target
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), (
            f"{page.name} links to {target}: there is no such heading"
        )


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_paths_exist(page):
    paths = {path for code in [*blocks(page), *inline_code(page)] for path in _PATH.findall(code)}
    named = sorted(path for path in paths if not re.search(r"NAME|\bX\b", path))
    assert [path for path in named if not list(ROOT.glob(path))] == []


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose Python objects are not of interest here."""


Loader.add_constructor("!ENV", lambda loader, node: None)
Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def test_every_page_is_in_the_navigation_once():
    nav = yaml.load(text(ROOT / "mkdocs.yml"), Loader)["nav"]
    named = re.findall(r"'(\w+\.md)'", repr(nav))
    assert sorted(named) == sorted({page.name for page in DOCS.glob("*.md")} | GENERATED)


def test_every_entry_of_the_notebook_is_in_its_index_once():
    index, *entries = sorted(NOTEBOOK, reverse=True)  # README.md, then the dated ones
    assert sorted(links(index)) == sorted(entry.name for entry in entries)


@pytest.mark.slow
def test_the_site_builds_with_every_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert {page.stem for page in DOCS.glob("*.md")} <= {page.stem for page in tmp_path.glob("*.html")}
    assert "step_advantages" in text(tmp_path / "api.html")  # from the docstrings
    assert "train.lr" in text(tmp_path / "options.html") and "--seed" in text(tmp_path / "cli.html")
    assert 'href="../' not in "".join(map(text, tmp_path.glob("*.html")))
