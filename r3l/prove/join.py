"""Joins the parts of a packed kit and checks each: `python3 join.py`, beside them. Needs Python 3.12 alone."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

PARTS = "parts.json"  # in the folder of the parts: their names in order, with their sha256


def wrong_parts(folder: Path) -> list[str]:
    """What is wrong with the parts, a line each: missing, or damaged. [] where all are whole."""
    digests = json.loads((folder / PARTS).read_text(encoding="utf-8"))["parts"]
    wrong = []
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            wrong.append(f"{name} is missing: carry it here")
        elif digest_of(path) != digest:
            wrong.append(f"{name} is damaged (its sha256 is not that of {PARTS}): carry it here again")
    return wrong


def digest_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def join(folder: Path, to: Path) -> None:
    """Unpack the kit, whose parts in ``folder`` are whole, into ``to``; what was made there earlier stays."""
    names = json.loads((folder / PARTS).read_text(encoding="utf-8"))["parts"]
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BufferedReader(_Joined([folder / name for name in names])), mode="r|") as archive:
        archive.extractall(to, filter="data")
    source = to / "source"
    source.mkdir(exist_ok=True)
    with tarfile.open(to / "source.tar.gz") as archive:
        archive.extractall(source, filter="data")


class _Joined(io.RawIOBase):
    """The bytes of several files, one after the other."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = iter(paths)
        self._file: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        while True:
            if self._file is None:
                path = next(self._paths, None)
                if path is None:
                    return 0
                self._file = path.open("rb")
            if count := self._file.readinto(buffer):
                return count
            self._file.close()
            self._file = None


def main() -> int:
    """Join what lies beside this file into the folder kit; the number of parts that are missing or damaged."""
    folder = Path(__file__).resolve().parent
    wrong = wrong_parts(folder)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        join(folder, folder / "kit")
        print(f"whole: {folder / 'kit'}; next: sh {folder / 'kit' / 'run.sh'} --minutes 10")
    return min(len(wrong), 2) and 2


if __name__ == "__main__":
    sys.exit(main())
