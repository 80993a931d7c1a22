"""Checks of ``r3l doctor``: can this machine run a tier?

A failed check says what is wrong and how to fix it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from r3l.config import (
    EnvConfig,
    EnvTierConfig,
    Run,
    TierConfig,
    base_checkpoint_of,
    env_configs,
    environment_of,
    find_model,
    load,
    locate,
    resolve,
    trains,
)
from r3l.core.errors import ConfigError, DataError
from r3l.core.named_folders import check_named_folders
from r3l.core.validation import close_all
from r3l.envs.base.package import EnvironmentPackage
from r3l.files import requirements
from r3l.files.names import is_folder_name
from r3l.files.paths import ROOT, is_checkout
from r3l.files.requirements import Finding, checked, guarded
from r3l.processes.progress import tracked

PYTHONS = ((3, 11), (3, 12))
MEMORY_GB = 2.0  # a nano run needs less
DISK_GB = 1.0  # checkpoints and logs of a nano run need less
INSTALL = "`make setup`" if is_checkout() else "`pip install --force-reinstall r3l`"


def examine(tier: str, run: Run | None = None) -> list[Finding]:
    """Check that this machine can run ``tier`` in all of its environments, or only ``run``.

    Looks at packages, memory, disk, the engine, base checkpoints, and starts each environment's engine for
    one step, with a progress bar on stderr. Returns a finding per check, failed ones first. Raises
    ConfigError for an unknown tier, or a variable that names no folder.
    """
    check_named_folders()
    config = load("tiers", tier, TierConfig)
    known = [load("envs", run.env, EnvConfig)] if run else env_configs()
    envs = [env for env in known if tier in env.tiers]
    checks = [*_packages(), *_machine(), *_engine(config, envs, run)]
    for env in tracked(envs, "starting environments"):
        checks += _environment(env, tier)
    distinct = dict.fromkeys(checks)  # environments of one package share its own checks
    return sorted(distinct, key=lambda check: check.ok)


def lacking(runs: Iterable[Run]) -> list[str]:
    """The base checkpoints and data of ``runs`` that this machine lacks, a text each with how to get it.

    [] if nothing is missing. Nothing is downloaded and no engine starts: HF_HUB_OFFLINE is set to 1 for this
    process, unless it is set.
    """
    from r3l.trinity.doctor import weights

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # The base checkpoints, each once.
    found = []
    for model, run in {run.model: run for run in runs}.items():
        described = find_model(model)
        on_trinity = described if run.engine == "trinity" else None
        check = weights(on_trinity) if on_trinity else _base_checkpoint(model, run.env)
        if not check.ok:
            found.append(f"{check.name}: {check.detail}; {check.fix}")
    for run in {(run.model, run.env_settings.sft): run for run in runs}.values():
        check = _sft_checkpoint(run)
        if not check.ok:
            found.append(check.detail)  # it says how to make it

    # The data of each environment: loading its tasks says what is missing.
    for env, run in {run.env: run for run in runs}.items():
        try:
            for task_set in (run.env_settings.train_task_set, run.env_settings.test_task_set):
                environment_of(env).tasks(task_set)
        except DataError as error:
            found.append(f"data of {env}: {error}")
    return found


def _packages() -> Iterator[Finding]:
    """Python, and every run-time requirement of pyproject.toml, read from the installed metadata."""
    from packaging.requirements import Requirement

    python = ".".join(map(str, sys.version_info[:3]))
    yield checked("python", sys.version_info[:2] in PYTHONS, python, "use Python 3.11 or 3.12: `make setup`")
    for wanted in map(Requirement, requires("r3l") or []):
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            yield Finding(wanted.name, False, "not installed", INSTALL)
            continue
        fits = wanted.specifier.contains(found, prereleases=True)
        yield checked(wanted.name, fits, found, f"{wanted.specifier}: {INSTALL}")


def _machine() -> Iterator[Finding]:
    """Free memory, free disk, and write permission for results/."""
    import psutil

    free = psutil.virtual_memory().available / 2**30
    yield checked("free memory", free >= MEMORY_GB, f"{free:.1f} GB", f"free {MEMORY_GB:.0f} GB")
    where = Path("results").absolute()
    if not where.exists():
        where = where.parent
    free = shutil.disk_usage(where).free / 2**30
    yield checked("free disk", free >= DISK_GB, f"{free:.1f} GB", f"free {DISK_GB:.0f} GB")
    try:
        with tempfile.TemporaryFile(dir=where):
            yield Finding("write permission", True, str(where))
    except OSError as error:
        yield Finding("write permission", False, f"{where}: {error.strerror}", "chmod, or run elsewhere")


def _engine(config: TierConfig, envs: list[EnvConfig], run: Run | None) -> Iterator[Finding]:
    """Base checkpoints and memory of the local engine; for trinity GPUs and its own virtual environment."""
    engine = config.engine
    if run:
        engine = run.engine if trains(run) else "local"  # what trains nothing is always played locally
    if engine == "trinity":
        from r3l.trinity import doctor

        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else five tries before a missing model is reported
        yield from doctor.checks(config.tier, envs, run.model if run else None)
        return
    from r3l.local import memory as local

    # The base checkpoint of each environment; one that several share is checked once.
    models = {}
    for env in envs:
        models[env.label] = run.model if run else (env.tiers[config.tier].model or config.model)
    for model in dict.fromkeys(models.values()):
        users = ", ".join(label for label, name in models.items() if name == model)
        yield _base_checkpoint(model, users)
    for usual in [run] if run else [resolve(config.tier, env.env, "grpo", 0) for env in envs]:
        if usual.env_settings.sft:
            yield _sft_checkpoint(usual)
    yield from local.checks(config)


def _base_checkpoint(model: str, users: str) -> Finding:
    """Whether this machine has the weights of ``model``, from which the environments ``users`` begin."""
    where = Path(locate(model))
    present = (where / "config.json").is_file() and any(where.glob("*.safetensors"))
    short = str(where.relative_to(ROOT) if where.is_relative_to(ROOT) else where)
    described = find_model(model)
    packaged = described is not None and described.packaged is not None
    if packaged:
        fix = f"`r3l model fetch {model}`"
    elif is_folder_name(model):
        fix = f"`git checkout results/stored`, or `r3l sft {model}`"
    else:
        fix = "give a folder in Hugging Face layout, with config.json and *.safetensors"
    found = short if present else f"no weights in {short}"
    return checked(f"base checkpoint {model!r} ({users})", present, found, fix)


def _sft_checkpoint(run: Run) -> Finding:
    """Whether this machine has the finished SFT from which ``run`` starts; ok too if it starts from none."""
    name = f"SFT checkpoint {run.env_settings.sft!r} ({run.env})"
    try:
        return Finding(name, True, base_checkpoint_of(run))
    except ConfigError as error:
        return Finding(name, False, str(error), "make it as this says")


def _environment(env: EnvConfig, tier: str) -> Iterator[Finding]:
    """The environment's own checks, then a start of its engine; one finding if its extra is missing."""
    package = environment_of(env.env)
    missing = requirements.missing(package.extra) if package.extra else []
    if package.extra and missing:
        left_out = missing == requirements.packages(package.extra)  # all of them: on purpose, not broken
        install = f"`{requirements.install(package.extra)}`"
        what = f"not installed: {', '.join(missing)}" + (f"; {install}" if left_out else "")
        yield checked(f"{env.label} packages", left_out, what, install)
        return
    yield from package.checks()
    yield guarded(f"{env.label} engine", lambda: _first_step(package, env.tiers[tier]), INSTALL)


def _first_step(package: EnvironmentPackage[Any], settings: EnvTierConfig) -> str:
    """Start the first test task and take one step; returns the longest line of its first observation."""
    task = package.tasks(settings.test_task_set)[0]
    engine = package.create(settings.options)
    first = engine.reset(task)
    engine.step(first.admissible[0] if first.admissible else "look around")
    close_all(package.name, [engine])
    line = max(first.text.splitlines(), key=len).strip()
    return f"{task.id}: {textwrap.shorten(line, 60, placeholder=' ...')!r}"
