"""The declaration of a hyperparameter: default, meaning, allowed values and source in one place."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo

REQUIRED = ...  # in place of a default: every file states the value, and where that comes from


def option(default: Any, meaning: str, source: str = "", **limits: Any) -> Any:
    """A field of a settings model; ``limits`` are pydantic's (``ge=1``).

    ``source`` says where the default comes from: a paper, its released code, a measurement or our choice.
    """
    return Field(default, description=meaning, json_schema_extra={"source": source}, **limits)


def source_of(field: FieldInfo) -> str:
    """Where the default of an option comes from; empty for a required one."""
    extra = field.json_schema_extra
    return str(extra.get("source", "")) if isinstance(extra, dict) else ""
