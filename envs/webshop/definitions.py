"""Which task sets there are: goals of synthetic catalogues (configs/task_sets), and the original's splits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field
from r3l.envs.base.task_sets import Strict, read_definition

ENV = "webshop"
# Session numbers. official: the original's baseline_models/env.py; r3l: the R3L release's data script.
ORIGINAL_SPLITS: Mapping[str, Mapping[str, range | None]] = {
    "official": {"test": range(500), "dev": range(500, 1500), "train": None},  # None: from 1500 to the end
    "r3l": {"train": range(4096), "test": range(4096, 4196)},
}

WARNINGS: Mapping[str, str] = {
    "r3l/train": "trains on all of official/test and official/dev",
    "r3l/test": "lies in official/train; methods trained on r3l/train have seen official/test",
}


class CatalogueConfig(Strict):
    """The synthetic catalogue that a task set's goals belong to."""

    products: int = Field(ge=1)
    seed: int = Field(ge=0)
    page_size: int = Field(ge=1)


class Definition(Strict):
    """configs/task_sets/webshop_NAME.yaml. ``splits``: tasks of each group; goals are given out in this order."""

    name: str
    catalogue: CatalogueConfig
    splits: Mapping[str, Mapping[str, int]]
    sources: Mapping[str, str]


@lru_cache(maxsize=8)
def definition(name: str) -> Definition:
    """Read ``configs/task_sets/webshop_NAME.yaml``. Raises ConfigError when it is missing or wrong."""
    others = ", ".join(f"{key}/{split}" for key, splits in ORIGINAL_SPLITS.items() for split in splits)
    return read_definition(Definition, ENV, name, others)
