"""The audit's options (`option`: our default → the release's behaviour) are those of the code."""

from __future__ import annotations

import re

from docs.pages import DOCS, text

from r3l.config.options import Option, environment_options, method_options

_ENTRY = re.compile(r"`(\w+)`(?: of [^:\n]+)?: `?(\w[\w.]*\w|\w)`? → `?(\w+(?:\.\d+)?)`?")


def has(option: Option, default: str, other: str) -> bool:
    """``default`` is the option's default, and ``other`` a further value of it."""
    if option.values.startswith(("float", "int")):
        return float(option.default) == float(default) != float(other)
    choices = ["false", "true"] if option.values == "bool" else option.values.split(" | ")
    return option.default.lower() == default and other in choices and other != default


def test_options_of_the_audit_have_these_defaults_and_values():
    options = [*method_options(), *environment_options()]
    entries = _ENTRY.findall(text(DOCS / "audit.md"))
    assert len(entries) >= 35
    for name, default, other in entries:
        named = [option for option in options if option.option.rpartition(".")[2] == name]
        assert any(has(option, default, other) for option in named), (name, default, other)
