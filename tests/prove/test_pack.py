"""Packing in parts, and joining them: by hash, with the Python standard library alone."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from program import run

from r3l.files.writing import write_json_atomic
from r3l.prove import join, pack


@pytest.fixture
def packed(tmp_path):
    """A kit of 250,000 random bytes and a source, in parts of 100,000 bytes."""
    kit = tmp_path / "made"
    kit.mkdir()
    (kit / "model.whl").write_bytes(os.urandom(250_000))
    with tarfile.open(kit / "source.tar.gz", "w:gz") as source:
        entry = tarfile.TarInfo("r3l/__init__.py")
        entry.size = 5
        source.addfile(entry, io.BytesIO(b"'''a'"))
    archive = tmp_path / "kit.tar"
    with tarfile.open(archive, "w") as whole:
        for path in sorted(kit.iterdir()):
            whole.add(path, path.name)
    folder = tmp_path / "parts"
    folder.mkdir()
    write_json_atomic(folder / join.PARTS, {"parts": pack.split(archive, folder, 100_000)})
    (folder / "join.py").write_bytes(Path(join.__file__).read_bytes())
    return folder, kit


def joined(folder):
    """What `python join.py` says: in a folder without this project, without its packages."""
    command = [sys.executable, "-S", "-E", "join.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_parts_join_to_what_was_packed(packed):
    folder, kit = packed
    sizes = [path.stat().st_size for path in sorted(folder.glob("kit.tar.*"))]
    assert len(sizes) == 3 and sizes[:2] == [100_000] * 2 and sizes[2] <= 100_000
    done = joined(folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "kit" / "model.whl").read_bytes() == (kit / "model.whl").read_bytes()
    assert (folder / "kit" / "source" / "r3l" / "__init__.py").read_text() == "'''a'"


def test_a_missing_and_a_damaged_part_are_named(packed, monkeypatch, capsys):
    folder, _ = packed
    damaged = bytearray((folder / "kit.tar.000").read_bytes())
    damaged[5000] ^= 1
    (folder / "kit.tar.000").write_bytes(damaged)
    (folder / "kit.tar.001").unlink()
    done = joined(folder)
    assert done.returncode == 2 and not (folder / "kit").exists()
    assert done.stderr.splitlines() == [
        "kit.tar.000 is damaged (its sha256 is not that of parts.json): carry it here again",
        "kit.tar.001 is missing: carry it here",
    ]
    code, _, error = run(monkeypatch, capsys, "prove", "join", folder)
    assert code == 2 and "kit.tar.000 is damaged" in error and "kit.tar.001 is missing" in error
    code, _, error = run(monkeypatch, capsys, "prove", "join", folder.parent)
    assert code == 2 and "has no parts.json" in error


def test_fewer_parts_than_before_leave_none_behind(tmp_path):
    archive = tmp_path / "kit.tar"
    archive.write_bytes(b"x" * 10)
    assert list(pack.split(archive, tmp_path, 3)) == [f"kit.tar.00{k}" for k in range(4)]
    assert list(pack.split(archive, tmp_path, 8)) == ["kit.tar.000", "kit.tar.001"]
    assert sorted(path.name for path in tmp_path.glob("kit.tar.*")) == ["kit.tar.000", "kit.tar.001"]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("psutil-7.2.2-cp36-abi3-manylinux_2_12_x86_64.whl", True),
        ("jericho-3.3.1-py3-none-any.whl", True),
        ("pydantic_core-2.50.4-cp312-cp312-manylinux_2_17_x86_64.whl", True),
        ("pydantic_core-2.50.4-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        ("built-1.0-cp311-none-linux_x86_64.whl", False),
    ],
)
def test_wheels_of_another_python_are_refused(tmp_path, name, fits):
    (tmp_path / name).touch()
    if fits:
        pack._check_wheels(tmp_path)
    else:
        with pytest.raises(pack.DataError, match=f"{name} is not for Python 3.12"):
            pack._check_wheels(tmp_path)


@pytest.mark.slow
def test_the_whole_kit(tmp_path):
    """From PyPI, in parts of 30 MiB; joined, it has what run.sh installs."""
    content = pack.pack(tmp_path, 30)
    assert all(path.stat().st_size <= 30 * 2**20 for path in tmp_path.glob("kit.tar.*"))
    assert len(content["wheels"]) == 29 and json.loads((tmp_path / join.PARTS).read_text()) == content
    done = joined(tmp_path)
    assert done.returncode == 0, done.stderr
    kit = tmp_path / "kit"
    assert sorted(path.name for path in (kit / "wheels").iterdir()) == content["wheels"]
    assert (kit / "source" / "r3l" / "configs" / "prove" / "run.sh").read_bytes() == (kit / "run.sh").read_bytes()
