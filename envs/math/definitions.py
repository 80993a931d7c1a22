"""Which task sets of mathematics there are: templated problems (configs/task_sets), and the real data sets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from r3l.envs.base.task_sets import Strict, read_definition

ENV = "math"


class Definition(Strict):
    """configs/task_sets/math_NAME.yaml. ``splits``: problems of each group in each split."""

    name: str
    splits: Mapping[str, Mapping[str, int]]
    operations: Mapping[str, int]
    sources: Mapping[str, str]


@lru_cache(maxsize=8)
def definition(name: str) -> Definition:
    """Read ``configs/task_sets/math_NAME.yaml``. Raises ConfigError when it is missing or wrong."""
    return read_definition(Definition, ENV, name, "the data sets of envs/math/sets.json")
