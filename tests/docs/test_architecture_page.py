"""The page of the architecture names every folder."""

from __future__ import annotations

import re

from docs.pages import DOCS, text

from r3l.core.paths import ROOT

PAGE = DOCS / "architecture.md"


def test_every_folder_is_in_the_table():
    listed = set(re.findall(r"^\| `([\w/]+)/`", text(PAGE), re.MULTILINE))
    folders = {
        f"r3l/{path.name}"
        for path in (ROOT / "r3l").iterdir()
        if (path / "__init__.py").exists() and not path.is_symlink()
    }
    tops = {"baselines", "envs", "configs", "examples", "tests", "docs", "profiles", "results"}
    assert listed == folders | tops
