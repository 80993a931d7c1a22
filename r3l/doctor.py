"""``r3l doctor``: can this machine run a tier? Each check says what is wrong and how to mend it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rich.table import Table

from r3l.config import ROOT, EnvConfig, TierConfig, load, names
from r3l.core.errors import R3LError

PYTHONS = ((3, 11), (3, 12))
MEMORY_GB, DISK_GB = 2.0, 1.0  # a nano run keeps under 2 GB; checkpoints and logs under 1 GB
INSTALL = "make setup (or: pip install -e '.[dev]')"


@dataclass(frozen=True)
class Check:
    """One finding; ``fix`` is empty where ``ok``."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def examine(tier: str) -> list[Check]:
    """Every check of ``tier``. Raises ConfigError for an unknown tier."""
    config = load("tiers", tier, TierConfig)
    checks = [_python(), *_packages(), _memory(), _disk(), _writable(), _model(config.model)]
    for name in names("envs"):
        if tier in (env := load("envs", name, EnvConfig)).tiers:
            panel = env.tiers[tier].test_panel
            checks.append(_guarded(f"{env.label} engine", _env_starts, name, panel))
    return checks


def render(checks: list[Check]) -> Table:
    """For a terminal."""
    table = Table(title="r3l doctor")
    for column in ("check", "", "found", "fix"):
        table.add_column(column)
    for check in checks:
        table.add_row(check.name, "[green]ok[/]" if check.ok else "[red]fail[/]", check.found, check.fix)
    return table


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", *_verdict(sys.version_info[:2] in PYTHONS, found, "use Python 3.11 or 3.12: make setup"))


def _packages() -> Iterator[Check]:
    """Every run-time requirement of pyproject.toml, as the installed metadata states it."""
    for text in requires("r3l") or []:
        requirement, _, marker = text.partition(";")
        if "extra ==" not in marker:
            yield _package(requirement.strip())


def _package(requirement: str) -> Check:
    from packaging.specifiers import SpecifierSet

    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    name, wanted = match.group(), requirement[match.end() :]
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, False, "not installed", INSTALL)
    return Check(name, *_verdict(SpecifierSet(wanted).contains(found, prereleases=True), found, f"{wanted}: {INSTALL}"))


def _memory() -> Check:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    return Check("free memory", *_verdict(free >= MEMORY_GB, f"{free:.1f} GB", f"free {MEMORY_GB:.0f} GB"))


def _disk() -> Check:
    free = shutil.disk_usage(_existing(Path("results"))).free / 2**30
    return Check("free disk", *_verdict(free >= DISK_GB, f"{free:.1f} GB", f"free {DISK_GB:.0f} GB"))


def _writable() -> Check:
    where = _existing(Path("results"))
    try:
        with tempfile.TemporaryFile(dir=where):
            return Check("write permission", True, str(where.resolve()))
    except OSError as error:
        return Check("write permission", False, f"{where.resolve()}: {error.strerror}", "chmod, or run elsewhere")


def _existing(path: Path) -> Path:
    return path if path.exists() else path.absolute().parent


def _model(model: str) -> Check:
    from r3l.local.checkpoint import locate

    where = Path(locate(model))
    present = (where / "config.json").is_file() and any(where.glob("*.safetensors"))
    found = _short(where) if present else f"no weights in {_short(where)}"
    return Check(
        f"start model {model!r}",
        *_verdict(present, found, f"git checkout results/stored, or r3l warmstart {model}"),
    )


def _short(path: Path) -> str:
    return os.path.relpath(path, ROOT) if path.is_absolute() else str(path)


def _guarded(name: str, check: Callable[..., str], *arguments: str) -> Check:
    """A check that starts foreign code: whatever typed error or missing import it raises is the finding."""
    try:
        return Check(name, True, check(*arguments))
    except (R3LError, ImportError, OSError) as error:
        return Check(name, False, f"{type(error).__name__}: {error}", INSTALL)


def _env_starts(name: str, panel: str) -> str:
    """Start the panel's first task and take one step."""
    from r3l.core.pool import find_package

    package = find_package(name)
    task = package.tasks(panel)[0]
    engine = package.create({})
    first = engine.reset(task)
    answer = engine.step(first.admissible[0] if first.admissible else "look")
    engine.close()
    return f"{task.id}: {answer.text.split('.')[0].strip()[:60]!r}"


def _verdict(ok: bool, found: str, fix: str) -> tuple[bool, str, str]:
    return ok, found, "" if ok else fix
