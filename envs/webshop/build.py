"""Where catalogues lie, and the command that builds one: ``python -m envs.webshop.build --help``.

Named synthetic catalogues are built on first use and kept under ``$R3L_CACHE/webshop`` (default
``~/.cache/r3l/webshop``). The original's catalogue is built once from its files; ``$R3L_WEBSHOP`` names its folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from envs.webshop.catalogue import Meta, build, original_files, read_meta
from envs.webshop.synthetic import sources
from r3l.core.errors import ConfigError, DataError, R3LError

ORIGINAL = "original"  # the name of a catalogue of the original's files
_VARIABLE = "R3L_WEBSHOP"


def locate(catalogue: str) -> Path:
    """The folder of the catalogue with this id. Raises DataError when it is not there or another one."""
    return _located(catalogue, os.environ.get(_VARIABLE, ""), str(cache_directory()))


def original() -> tuple[Path, Meta]:
    """The catalogue that ``$R3L_WEBSHOP`` names. Raises DataError when there is none."""
    folder = os.environ.get(_VARIABLE)
    if not folder:
        raise DataError(
            f"{_VARIABLE} is not set: build the catalogue of the original files (python -m envs.webshop.build --help) "
            f"and set {_VARIABLE} to its folder"
        )
    return Path(folder), read_meta(Path(folder))


def synthetic(name: str, products: int, seed: int, page_size: int) -> tuple[Path, Meta]:
    """The named synthetic catalogue, built if it is not there yet (some seconds for 1,000 products)."""
    folder = cache_directory() / f"{name}-{products}-{seed}-{page_size}"
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):  # several workers may come at once
                if not folder.exists():
                    build(sources(products, seed), folder, name, page_size)
        except OSError as error:
            raise DataError(f"{folder} cannot be written ({error}). Set R3L_CACHE to a writable directory") from error
    return folder, read_meta(folder)


def cache_directory() -> Path:
    """Where synthetic catalogues are kept."""
    root = os.environ.get("R3L_CACHE") or str(Path.home() / ".cache" / "r3l")
    return Path(root) / "webshop"


@lru_cache(maxsize=32)
def _located(catalogue: str, variable: str, cache: str) -> Path:
    """The arguments after the first are what the answer depends on."""
    if variable and read_meta(Path(variable)).id == catalogue:
        return Path(variable)
    name = catalogue.rsplit("-", 2)[0]
    if name == ORIGINAL:
        folder, meta = original()
    else:
        from envs.webshop.panels import definition

        wanted = definition(name).catalogue
        folder, meta = synthetic(name, wanted.products, wanted.seed, wanted.page_size)
    if meta.id != catalogue:
        raise DataError(f"{folder} holds catalogue {meta.id}, the task belongs to {catalogue}; build or name that one")
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Build a catalogue of the original's files (1,181,436 products: some 15 minutes, 6 GB of disk)."""
    parser = argparse.ArgumentParser(prog="python -m envs.webshop.build", description=main.__doc__)
    parser.add_argument("--items", type=Path, required=True, help="items_shuffle.json or items_shuffle_1000.json")
    parser.add_argument("--attrs", type=Path, required=True, help="items_ins_v2.json or items_ins_v2_1000.json")
    parser.add_argument("--human", type=Path, help="items_human_ins.json; without it, goals are made from --attrs")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make; name it in R3L_WEBSHOP")
    parser.add_argument("--limit", type=int, help="only the first products (the original's num_products)")
    options = parser.parse_args(arguments)
    try:
        if options.limit is not None and options.limit < 1:
            raise ConfigError(f"--limit is {options.limit}; it must be at least 1")
        found = original_files(options.items, options.attrs, options.human, options.limit)
        meta = build(found, options.out, ORIGINAL)
    except R3LError as error:
        sys.exit(_usage_error(error))
    print(f"{options.out}: catalogue {meta.id}, {meta.products} products, {meta.goals} goals, sha256 {meta.sha256}")


def _usage_error(error: R3LError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
