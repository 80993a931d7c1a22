"""The settings of an environment's engine (``options`` of configs/envs/<name>.yaml), read by one rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError

from r3l.core.errors import ConfigError
from r3l.core.option import OptionModel


class Options(OptionModel):
    """Base of an engine's settings; as it stands, of an engine that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(kind: type[OptionsT], env: str, options: Mapping[str, Any]) -> OptionsT:
    """``options`` checked. Raises ConfigError naming the key, its value and what is allowed."""
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        wrong = "; ".join(
            f"{env}.{'.'.join(map(str, e['loc']))} is {e['input']!r}: {e['msg'].lower()}" for e in error.errors()
        )
        known = ", ".join(kind.model_fields) or f"none, {env} has no options"
        raise ConfigError(f"{wrong}; known keys: {known}") from error
