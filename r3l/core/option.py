"""Declaration of a hyperparameter: its default, meaning, allowed values and source in one place."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

REQUIRED = ...  # instead of a default: every configuration file gives the value and its source


def option(default: Any, meaning: str, source: str = "", **limits: Any) -> Any:
    """Declare a field of a settings model: pydantic's Field with this default; ``limits`` are its (``ge=1``).

    ``meaning``: its description in help and docs. ``source``: where the default comes from (a paper, its
    released code, a measurement, our choice), which :func:`source_of` reads. ``default`` REQUIRED: no
    default.
    """
    return Field(default, description=meaning, json_schema_extra={"source": source}, **limits)


class OptionModel(BaseModel):
    """Base class of settings. It rejects True and False for numeric fields, where pydantic reads 1 and 0.

    Raises pydantic's ValidationError, also for members of a list or tuple. A field whose type includes bool
    accepts them.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_number(cls, value: Any, field: ValidationInfo) -> Any:
        """Raise ValueError for a bool, or a list or tuple with one, if the field is numeric and not bool."""
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
