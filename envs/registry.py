"""Registry of environments: every package in this folder is one.

An environment consists of its package, which defines ``ENVIRONMENT``, and a file in configs/envs. A package
is imported on first use, so listing the names imports none. Environments that differ only in their data
(gsm8k, knights_knaves, ...) are files in configs/envs that name one of these packages.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import r3l.envs
from r3l.envs.base.package import EnvironmentPackage

from r3l.core.errors import ConfigError, unknown

SHARED = {"adapters", "base"}  # packages that are not environments
_PACKAGES = [module.name for module in iter_modules(r3l.envs.__path__) if module.ispkg]
ENVIRONMENTS = tuple(sorted(name for name in _PACKAGES if name not in SHARED))


@cache
def find_environment(name: str) -> EnvironmentPackage[Any]:
    """The environment of package ``name``. Raises ConfigError for an unknown name."""
    if name not in ENVIRONMENTS:
        raise ConfigError(unknown("environment", name, ENVIRONMENTS))
    environment: EnvironmentPackage[Any] = import_module(f"r3l.envs.{name}").ENVIRONMENT
    return environment
