"""`r3l cell`: print or run the snakemake command that makes one run; `r3l compare` trains with it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, check_cores
from r3l.cli.printing import print_result
from r3l.core.errors import ConfigError, DataError, check_known, unknown
from r3l.core.parent import end_with_parent
from r3l.core.paths import STORED_MODELS, checkout

if TYPE_CHECKING:
    from r3l.config import Run

FORM = "TIER/ENV/MODEL/METHOD/SEED, e.g. nano/alfworld/nano/r3l/0"


def cell(
    name: Annotated[str, typer.Argument(metavar="[TIER/]ENV/MODEL/METHOD/SEED", help="As results/ has it.")],
    options: Annotated[list[str] | None, typer.Argument(help="After --: further options of snakemake.")] = None,
    profile: Annotated[str | None, typer.Option(help="A folder of profiles/, e.g. slurm.")] = None,
    cores: Annotated[str, typer.Option(help="Without --profile: given to snakemake.")] = "all",
    run: Annotated[bool, typer.Option("--run", help="Carry it out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the snakemake line that trains and evaluates one cell and nothing else; --run carries it out.

    The tier may be left out: that of configs/workflow.yaml. The task set is checked first, where that has not been
    done.

    Example: `r3l cell nano/alfworld/nano/r3l/0 --run`

    Example: `r3l cell paper/webshop/qwen2.5-1.5b/grpo/2 --profile slurm --run -- --dry-run`
    """
    check_cores(cores)
    named = parse(name)
    placement = ["--profile", _profile(profile)] if profile else ["--cores", cores]
    config = {"tier": named.tier, "envs": [named.env], "methods": [named.method], "seeds": [named.seed]}
    command = line([f"results/{named.cell}/seed{named.seed}/evaluation.json"], config | _model(named), placement)
    command += options or []
    if run:
        make(command)
    else:
        print_result({"cell": f"{named.cell}/{named.seed}", "command": command}, as_json, shlex.join(command))


def parse(name: str) -> Run:
    """The run that ``[TIER/]ENV/MODEL/METHOD/SEED`` names. Raises ConfigError that says which part is wrong.

    A model may be a hub id, with a slash in it.
    """
    from r3l.config import names, resolve
    from r3l.workflow import plan

    parts = name.split("/")
    tiers, envs = names("tiers"), names("envs")
    if parts[0] not in envs and (parts[0] in tiers or len(parts) > 4):
        tier, *parts = parts
    else:
        tier = plan.load().tier
    if len(parts) < 4 or not parts[-1].isdecimal():
        raise ConfigError(f"cell {name!r} must look like {FORM}")
    env, *model, method, seed = parts
    known = resolve(tier, env, method, int(seed))  # the tier's own model, where it is the one that is named
    if "/".join(model) in (known.model, Path(known.model).name):
        return known
    _check_model("/".join(model))
    return resolve(tier, env, method, int(seed), "/".join(model))


def _check_model(model: str) -> None:
    """Raises ConfigError for a name that no model here has; hub ids are left to the loader."""
    from r3l.config import names, stored_model

    known = sorted({*names("models"), *(path.name for path in STORED_MODELS.iterdir())})
    if "/" not in model and model not in known and stored_model(model) is None:
        raise ConfigError(
            f"{unknown('stored model', model, known)}; others are named by their hub id, such as "
            "Qwen/Qwen2.5-1.5B-Instruct"
        )


def _model(run: Run) -> dict[str, str]:
    """The workflow's key, where the model is not what the environment has in this tier."""
    from r3l.config import resolve

    default = resolve(run.tier, run.env, run.method, run.seed).model
    return {} if run.model == default else {"model": run.model}


def _profile(name: str) -> str:
    profiles = checkout() / "profiles"
    known = sorted(path.parent.name for path in profiles.glob("*/config.yaml"))
    check_known("profile", name, known)
    return os.path.relpath(profiles / name)


def line(targets: list[str], config: dict[str, Any], placement: list[str]) -> list[str]:
    """A snakemake command; ``config``: keys of configs/workflow.yaml, ``placement``: cores or a profile."""
    snakefile = checkout() / "Snakefile"
    here = [] if Path("Snakefile").resolve() == snakefile else ["--snakefile", str(snakefile)]
    pairs = [
        f"{key}={json.dumps(value, separators=(',', ':')) if isinstance(value, list) else value}"
        for key, value in config.items()
    ]
    return ["snakemake", *here, *placement, *targets, "--config", *pairs]


def make(command: list[str]) -> None:
    """Carry out a command of :func:`line`; snakemake's own log goes to stderr. Raises DataError where a job failed."""
    killed = partial(end_with_parent, signal.SIGKILL)  # SIGTERM would let it wait for its jobs; this one ends them
    if subprocess.run([sys.executable, "-m", *command], stdout=sys.stderr, preexec_fn=killed).returncode:
        raise DataError("some runs did not finish (see above); the same command goes on with them")
