"""Declaration of a hyperparameter: its default, meaning, allowed values and source in one place."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

REQUIRED = ...  # instead of a default: every configuration file gives the value and its source


def option(default: Any, meaning: str, source: str = "", **limits: Any) -> Any:
    """Declare a pydantic field of a settings model; ``limits`` are pydantic's (``ge=1``).

    ``meaning`` is its description in help and docs. ``source`` says where the default comes from: a paper,
    its released code, a measurement or our choice.
    """
    return Field(default, description=meaning, json_schema_extra={"source": source}, **limits)


class OptionModel(BaseModel):
    """Base class of settings. It rejects true and false for numeric fields, where pydantic reads 1 and 0."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_number(cls, value: Any, field: ValidationInfo) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        if not any(isinstance(one, bool) for one in values):
            return value
        # Collect the parts of unions, lists and tuples; the list grows while it is read.
        types = [cls.model_fields[field.field_name or ""].annotation]
        for annotation in types:
            types += get_args(annotation)
        if {int, float} & set(types) and bool not in types:
            raise ValueError("true and false are not numbers")
        return value


def source_of(field: FieldInfo) -> str:
    """The ``source`` with which an option was declared (a paper, our choice, ...); empty if it has none."""
    extra = field.json_schema_extra
    return str(extra.get("source", "")) if isinstance(extra, dict) else ""
