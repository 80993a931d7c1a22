"""Write ``sets.json`` and the packaged sets from a folder with every data file: ``python -m r3l.envs.math.freeze DIR``.

Only for whoever changes a set on purpose. The result is committed; every load is compared with it.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from r3l.core.files import write_text_atomic
from r3l.envs.math import datasets
from r3l.envs.math.cleaning import clean, key_of

PACKAGED = ("gsm8k", "math500", "olympiadbench")  # MIT: may be redistributed


def main(folder: Path) -> None:
    """Freeze every set as ``folder`` has it."""
    sets = {name: datasets.read_set(name, folder) for name in datasets.ORIGINS}
    raw = sets.pop("dapo_raw")
    tests = {name: [p.problem for p in sets[name]] for name in datasets.TEST_SETS}
    train, test, report = clean([(p.problem, p.gold) for p in raw], tests)
    for name, part in (("dapo", test), ("dapo_train", train)):
        sets[name] = [datasets.record("dapo", key[:16], problem, gold) for key, problem, gold in part]
    published = {key_of(p.problem) for p in raw}
    content: dict[str, dict[str, object]] = {
        name: {"rows": len(problems), "sha256": datasets.sha256_of(problems)} for name, problems in sets.items()
    }
    for name in datasets.TEST_SETS:
        content[name]["in_dapo"] = [p.id for p in sets[name] if key_of(p.problem) in published]
    content["dapo"]["cleaning"] = report.as_dict()
    write_text_atomic(datasets.FROZEN, json.dumps(content, indent=1) + "\n")
    for name in PACKAGED:
        _package(name, sets[name])
    print(json.dumps(content["dapo"]["cleaning"], indent=1))


def _package(name: str, problems: list[datasets.Problem]) -> None:
    lines = "".join(json.dumps([p.id.partition("/")[2], p.problem, p.gold]) + "\n" for p in problems)
    datasets.PACKAGED.mkdir(exist_ok=True)
    path = datasets.PACKAGED / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))  # no date in it: the same set is the same bytes


if __name__ == "__main__":
    main(Path(sys.argv[1]))
