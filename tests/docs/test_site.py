"""The front page is short, every page is in the navigation of the site, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from docs.pages import DOCS, PAGES, prose, text

from r3l.files.paths import ROOT

_ITEM = re.compile(r"^ {0,3}([-*]|\d+\.) ")
_TAG = re.compile(r"<[A-Za-z/][^>\n]*>")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose Python objects are not of interest here."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def navigation() -> list[str]:
    """The pages, in the order of the site."""

    def pages(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        parts = part.values() if isinstance(part, dict) else part
        return [page for below in parts for page in pages(below)]

    return pages(yaml.load(text(ROOT / "mkdocs.yml"), Loader)["nav"])


def test_the_front_page_has_at_most_90_lines():
    assert len(text(ROOT / "README.md").splitlines()) <= 90


def test_every_page_is_in_the_navigation_once():
    assert sorted(navigation()) == sorted(page.name for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_lists_on_the_site_too(page):
    """Python-Markdown asks for an empty line before a list, GitHub does not."""
    lines = prose(page).splitlines()
    inside = False
    for before, line in zip(["", *lines], lines, strict=False):
        starts = bool(_ITEM.match(line))
        assert inside or not starts or not before.strip(), f"{page.name}: no empty line before {line!r}"
        inside = starts or (inside and bool(line.strip()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_taken_for_html(page):
    assert _TAG.findall(re.sub(r"`[^`\n]*`", "", prose(page))) == []


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", site]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_site_builds_with_every_link(tmp_path):
    built = build(ROOT / "mkdocs.yml", tmp_path)
    assert built.returncode == 0, built.stderr
    assert {page.stem for page in DOCS.glob("*.md")} <= {page.stem for page in tmp_path.glob("*.html")}
    assert "float64" in text(tmp_path / "files/tests/baselines/test_gradients.py.txt")  # linked, so copied
    assert "step_advantages" in text(tmp_path / "api.html")  # from the docstrings
    assert 'href="files/tests/' in text(tmp_path / "what_works_where.html")
    assert 'href="../' not in "".join(map(text, tmp_path.glob("*.html")))


@pytest.mark.slow
def test_a_broken_link_is_noticed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md), [here](#there)\n")
    (tmp_path / "docs" / "site").symlink_to(DOCS / "site")
    plain = re.sub(r"^nav:.*?(?=^plugins:)", "", text(ROOT / "mkdocs.yml"), flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(plain)
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 1
    assert "'nowhere.md'" in built.stderr and "'#there'" in built.stderr
