"""Write ``sets.json`` and the packaged sets from a folder with every data file: ``python -m r3l.envs.math.freeze DIR``.

Only for whoever changes a set on purpose. The result is committed; every load is compared with it.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from r3l.envs.math import datasets
from r3l.envs.math.cleaning import key_of

from r3l.files.writing import write_text_atomic

PACKAGED = ("gsm8k", "math500", "olympiadbench")  # MIT: may be redistributed


def main(folder: Path) -> None:
    """Freeze every set as ``folder`` has it; DeepMath stays as it was (``freeze_cleaned``)."""
    sets = {name: datasets.read_set(name, folder) for name in datasets.SETS if name not in datasets.CLEANED}
    published = {key_of(p.problem) for p in datasets.read_set("dapo_raw", folder)}
    content = {name: _summary(problems) for name, problems in sets.items()}
    for name in datasets.TEST_SETS:
        content[name]["in_dapo"] = [p.id for p in sets[name] if key_of(p.problem) in published]
    _write(datasets.frozen() | content)
    for name in PACKAGED:
        _package(name, sets[name])
    for name in ("dapo", "dapo_nano", "deepmath_nano"):
        freeze(name, folder)
    print(json.dumps(datasets.frozen()["dapo"]["cleaning"], indent=1))


def freeze(name: str, source: Path | None) -> Path:
    """Freeze one set, of cleaned training data both parts with the report of its cleaning; the file written.

    ``source`` is a folder of data files (default: ``$R3L_MATH``, else the hub). Raises DataError as ``load`` does.
    """
    if name in datasets.CLEANING:
        parts, report = datasets.cleaned(name, source)
        content = {part: _summary(problems) for part, problems in parts.items()}
        content[name]["cleaning"] = report.as_dict()
    else:
        content = {name: _summary(datasets.read_set(name, source))}
    _write(datasets.frozen() | content)
    return datasets.FROZEN


def _summary(problems: list[datasets.Problem]) -> dict[str, Any]:
    return {"rows": len(problems), "sha256": datasets.sha256_of(problems)}


def _write(content: dict[str, dict[str, Any]]) -> None:
    write_text_atomic(datasets.FROZEN, json.dumps(content, indent=1) + "\n")
    datasets.frozen.cache_clear()


def _package(name: str, problems: list[datasets.Problem]) -> None:
    lines = "".join(json.dumps([p.id.partition("/")[2], p.problem, p.gold]) + "\n" for p in problems)
    datasets.PACKAGED.mkdir(exist_ok=True)
    path = datasets.PACKAGED / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))  # no date in it: the same set is the same bytes


if __name__ == "__main__":
    main(Path(sys.argv[1]))
