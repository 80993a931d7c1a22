"""This project's stored runs: a checkout has them in results/stored, an installed package gets them as an archive.

The archive ``r3l-stored-VERSION.zip`` (`make dist`) holds one folder of its own name: results/stored without what the
wheel has already. It is unpacked into ``$R3L_CACHE/stored/VERSION``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import r3l
from r3l.core.errors import ConfigError, DataError
from r3l.files.cache import cache_folder
from r3l.files.paths import STORED, is_checkout
from r3l.files.unpacking import most

TOP = f"r3l-stored-{r3l.__version__}"
ARCHIVE = f"{TOP}.zip"


def folder() -> Path:
    """Where stored runs lie, or would."""
    return STORED if is_checkout() else cache_folder("stored") / r3l.__version__


def stored_runs() -> Path:
    """Where stored runs lie. Raises DataError where nobody has fetched them."""
    if not folder().is_dir():
        raise DataError(
            f"the stored runs are not here: the wheel holds none. Get {ARCHIVE}, which comes with the wheel, and "
            f"unpack it: r3l stored fetch {ARCHIVE} (a file or a URL). Or work in a checkout, which has them"
        )
    return folder()


def fetch(source: str) -> Path:
    """Unpack the archive ``source``, a file or a URL; where its runs lie now.

    Raises DataError for another file, ConfigError in a checkout.
    """
    if is_checkout():
        raise ConfigError(f"this is a checkout, which has the stored runs already: {folder()}; nothing to fetch")
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch.") as scratch:
        _unpack(_local(source, Path(scratch)), Path(scratch))
        shutil.rmtree(target, ignore_errors=True)
        os.replace(Path(scratch) / TOP, target)
    return target


def _local(source: str, scratch: Path) -> Path:
    """``source`` itself, or what lies at the URL."""
    if not source.startswith(("http://", "https://")):
        return Path(source)
    import httpx2

    path = scratch / ARCHIVE
    try:
        with httpx2.stream("GET", source, follow_redirects=True) as answer, path.open("wb") as file:
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
    except httpx2.HTTPError as error:
        raise DataError(f"{source} cannot be fetched ({error}); download it otherwise and give its path") from error
    return path


def _unpack(path: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            if foreign := [name for name in archive.namelist() if not name.startswith(f"{TOP}/")]:
                raise DataError(
                    f"{path} holds {foreign[0]}, not the folder {TOP}/: it is not the archive of stored runs of r3l "
                    f"{r3l.__version__}, which is called {ARCHIVE}"
                )
            if sum(entry.file_size for entry in archive.infolist()) > most(path.stat().st_size):
                raise DataError(f"{path} unpacks to far more than its size; get it again")
            archive.extractall(into)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; give the path of {ARCHIVE}, or its URL") from error
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is not a whole zip archive ({error}); get {ARCHIVE} again") from error
