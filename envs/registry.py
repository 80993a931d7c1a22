"""Which environments there are: the packages beside this file.

An environment is registered by its folder, which defines ``ENVIRONMENT``, and by a file of configs/envs. It is imported
when first asked for, so that knowing the names imports none. Environments that differ by their data alone (gsm8k,
knights_knaves, ...) are files of configs/envs that name one of these.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import r3l.envs
from r3l.envs.base.package import EnvironmentPackage

from r3l.core.errors import ConfigError, unknown

SHARED = {"adapters", "base"}  # folders that are no environments
ENVIRONMENTS = tuple(
    sorted(module.name for module in iter_modules(r3l.envs.__path__) if module.ispkg and module.name not in SHARED)
)


@cache
def find_environment(name: str) -> EnvironmentPackage[Any]:
    """The environment in the folder ``name``. Raises ConfigError where there is none."""
    if name not in ENVIRONMENTS:
        raise ConfigError(unknown("environment", name, ENVIRONMENTS))
    environment: EnvironmentPackage[Any] = import_module(f"r3l.envs.{name}").ENVIRONMENT
    return environment
