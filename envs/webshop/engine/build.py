"""Folders of catalogues, and their construction.

Synthetic catalogues are built on first use and kept under ``$R3L_CACHE/webshop`` (default
``~/.cache/r3l/webshop``). The original's catalogue is built once from its files (``r3l data catalogue``);
``$R3L_WEBSHOP`` names its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import Field
from r3l.envs.base import task_sets
from r3l.envs.base.task_sets import DefinitionModel, read_definition
from r3l.envs.webshop.engine.catalogue import (
    PAGE_SIZE,
    Meta,
    Source,
    build,
    original_files,
    read_meta,
)
from r3l.envs.webshop.engine.synthetic import sources

from r3l.core.errors import DataError
from r3l.core.named_folders import named_folder
from r3l.files.cleanup import remove_unfinished
from r3l.files.locks import locked
from r3l.files.paths import cache_folder

ORIGINAL = "original"  # name of a catalogue of the original's files
VARIABLE = "R3L_WEBSHOP"


class CatalogueConfig(DefinitionModel):
    """Parameters of a task set's synthetic catalogue; ``page_size``: products on a page of results."""

    products: int = Field(ge=1)
    seed: int = Field(ge=0)
    page_size: int = Field(ge=1)


class WebShopDefinition(task_sets.TaskSetDefinition):
    """Contents of configs/task_sets/webshop_NAME.yaml.

    ``splits``: number of tasks by split and group, in the order in which goals are assigned.
    """

    catalogue: CatalogueConfig
    splits: Mapping[str, Mapping[str, int]]


def definition(name: str) -> WebShopDefinition:
    """Contents of configs/task_sets/webshop_NAME.yaml. Raises ConfigError if it is missing or malformed."""
    others = "official and r3l, of the original catalogue"
    found: WebShopDefinition = read_definition(WebShopDefinition, "webshop", name, others)
    return found


def locate(catalogue: str) -> Path:
    """The folder of the catalogue with this id (``Meta.id``); a synthetic one is built if it is missing.

    Raises DataError if the original's catalogue is missing, or if the folder holds one with another id,
    ConfigError if no task set has the id's name.
    """
    return _located(catalogue, named_folder(VARIABLE), str(cache_folder("webshop")))


def original() -> tuple[Path, Meta]:
    """(folder, meta) of the catalogue of the original's products, which ``$R3L_WEBSHOP`` names.

    Raises DataError if the variable is not set, or its folder holds no catalogue of this release.
    """
    folder = named_folder(VARIABLE)
    if folder is None:
        raise DataError(
            f"{VARIABLE} is not set: build the catalogue of the original files (`r3l data catalogue --help`) "
            f"and set {VARIABLE} to its folder, or play this project's own catalogue (--tier nano)"
        )
    return folder, read_meta(folder)


def synthetic(name: str, products: int, seed: int, page_size: int) -> tuple[Path, Meta]:
    """(folder, meta) of a synthetic catalogue; it is built in r3l's cache folder if it is not there yet.

    ``name``: the catalogue's. ``products``, ``page_size``: number of products, and of products on a page of
    results. Building takes some seconds for 1,000 products.
    """
    folder = cache_folder("webshop") / f"{name}-{products}-{seed}-{page_size}"
    if not folder.exists():
        # Several workers may need it at once: one builds, the others wait and find it.
        with locked(folder, option="R3L_CACHE", wait=-1):
            remove_unfinished(folder.parent)
            if not folder.exists():
                build(sources(products, seed), folder, name, page_size)
    return folder, read_meta(folder)


def make(products: Iterable[Source], folder: Path, name: str, page_size: int = PAGE_SIZE) -> Meta:
    """Write the catalogue (products, goals, search index) of ``products`` to the new folder ``folder``.

    Also removes unfinished builds from its parent folder. ``name``: part of the catalogue's id and so of
    task ids. ``page_size``: products on a page of results. Raises RunDirectoryError if another process is
    building there, ConfigError if the folder exists.
    """
    with locked(folder):
        remove_unfinished(folder.parent)
        return build(products, folder, name, page_size)


def make_original(
    items: Path,
    attributes: Path,
    human: Path | None,
    folder: Path,
    limit: int | None = None,
) -> Meta:
    """Build the catalogue of the original WebShop in ``folder`` from its files.

    ``items``, ``attributes``, ``human``: its files (see ``catalogue.original_files``). ``limit``: number of
    products, None for all. Raises DataError for a missing or damaged file, RunDirectoryError if another
    process is building there, ConfigError if the folder exists.
    """
    return make(original_files(items, attributes, human, limit), folder, ORIGINAL)


@lru_cache(maxsize=32)
def _located(catalogue: str, named: Path | None, cache: str) -> Path:
    """The cached part of ``locate``; its result depends on ``named`` and ``cache``, so it takes them."""
    if named and read_meta(named).id == catalogue:
        return named
    name = catalogue.rsplit("-", 2)[0]
    if name == ORIGINAL:
        folder, meta = original()
    else:
        config = definition(name).catalogue
        folder, meta = synthetic(name, config.products, config.seed, config.page_size)
    if meta.id != catalogue:
        raise DataError(
            f"{folder} holds catalogue {meta.id}, the task belongs to {catalogue}; build or name that one",
        )
    return folder
