"""What the manifests of finished runs say of their code and of the plan that they were made under."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.files.json_files import read_json
from r3l.runs.provenance import is_dirty, preregistration_sha256
from r3l.runs.run_dir import MANIFEST


@dataclass(frozen=True)
class Origins:
    """``dirty``: run directories whose code was in no commit; ``plans``: runs by the pre-registration's sha256 (None:
    there was none)."""

    dirty: list[Path]
    plans: dict[str | None, int]

    def as_json(self) -> dict[str, Any]:
        """For one JSON object."""
        plans = {sha256 or "none": runs for sha256, runs in self.plans.items()}
        return {"dirty": [str(path) for path in self.dirty], "preregistration": plans}

    def lines(self) -> list[str]:
        """For people."""
        seeds: dict[Path, list[str]] = defaultdict(list)
        for path in self.dirty:
            seeds[path.parent].append(path.name.removeprefix("seed"))
        dirty = [f"  {cell}: seed {', '.join(numbers)}" for cell, numbers in seeds.items()]
        heading = [f"{len(self.dirty)} were made from a tree with uncommitted changes:"] if dirty else []
        return [*heading, *dirty, *(f"{runs} {_plan(sha256)}" for sha256, runs in self.plans.items())]


def origins(run_dirs: Sequence[Path]) -> Origins:
    """Of finished runs, in their order."""
    manifests = [read_json(run_dir / MANIFEST) for run_dir in run_dirs]
    plans = Counter(manifest.get("preregistration_sha256") for manifest in manifests)
    dirty = [path for path, manifest in zip(run_dirs, manifests, strict=True) if is_dirty(manifest["commit"])]
    return Origins(dirty, dict(plans))


def _plan(sha256: str | None) -> str:
    if sha256 is None:
        return "were made before there was a pre-registration"
    same = sha256 == preregistration_sha256()
    return f"were made under docs/preregistration.md {'as it is' if same else 'as it once was'} ({sha256[:12]})"
