"""What the glossary calls ours is ours: names in the code, options of methods, settings of a run."""

from __future__ import annotations

import re

import pytest
from docs.pages import DOCS, text

from r3l.config import build_method, names, resolve

TERMS = re.findall(r"^\| ([^|]+) \|", text(DOCS / "glossary.md"), re.MULTILINE)
SETTINGS = [code for term in TERMS for code in re.findall(r"`([^`:]+)`", term) if not code.startswith("r3l")]


def test_a_term_stands_there_once():
    plain = [re.sub(r"`[^`]*`", "", term).strip(" ,") for term in TERMS]
    assert sorted(set(plain) - {"ours"}) == sorted(term for term in plain if term not in ("ours", "---"))


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s != "sft"])
def test_settings_exist(setting):
    run = resolve("nano", "alfworld", "r3l", 0)
    if "." in setting:
        part, key = setting.split(".")
        assert hasattr(getattr(run, part), key)
        return
    methods = [build_method(resolve("nano", "alfworld", name, 0)) for name in names("methods")]
    assert any(setting in method.describe() for method in methods)
