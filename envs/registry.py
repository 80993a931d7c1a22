"""Which environments there are: name -> class.

Classes are given as ``module:Class`` and imported when first asked for, as gymnasium does, so that knowing the names
imports no environment. Environments that differ by their data alone (gsm8k, knights_knaves, ...) are files of
configs/envs that name one of these.
"""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import Any

from r3l.envs.base.package import EnvironmentPackage

from r3l.core.errors import check_known

ENVIRONMENTS = {
    "alfworld": "r3l.envs.alfworld:Alfworld",
    "math": "r3l.envs.math:Math",
    "puzzles": "r3l.envs.puzzles:Puzzles",
    "scienceworld": "r3l.envs.scienceworld:ScienceWorld",
    "webshop": "r3l.envs.webshop:WebShop",
}


@cache
def find_environment(name: str) -> EnvironmentPackage[Any]:
    """The environment registered as ``name``. Raises ConfigError where there is none."""
    check_known("environment", name, ENVIRONMENTS)
    kind: type[EnvironmentPackage[Any]] = resolve_name(ENVIRONMENTS[name])
    return kind()
