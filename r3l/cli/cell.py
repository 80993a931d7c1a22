"""`r3l cell`: print or run the snakemake command that makes one run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import AsJson, check_cores
from r3l.cli.printing import print_result
from r3l.cli.workflow import line, make, placement
from r3l.core.errors import ConfigError, unknown
from r3l.files.paths import STORED_MODELS

if TYPE_CHECKING:
    from r3l.config import Run

FORM = "TIER/ENV/MODEL/METHOD/SEED, e.g. nano/alfworld/alfworld-1.5m-hints/r3l/0"


def cell(
    name: Annotated[str, typer.Argument(metavar="[TIER/]ENV/MODEL/METHOD/SEED", help="As results/ has it.")],
    options: Annotated[list[str] | None, typer.Argument(help="After --: further options of snakemake.")] = None,
    profile: Annotated[str | None, typer.Option(help="A folder of workflow/profiles/, e.g. slurm.")] = None,
    cores: Annotated[str, typer.Option(help="Without --profile: given to snakemake.")] = "all",
    run: Annotated[bool, typer.Option("--run", help="Carry it out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the snakemake line that trains and evaluates one cell and nothing else; --run carries it out.

    The tier may be left out: that of configs/workflow.yaml. The task set is checked first, where that has not been
    done.

    Example: `r3l cell nano/alfworld/alfworld-1.5m-hints/r3l/0 --run`

    Example: `r3l cell paper/webshop/qwen2.5-1.5b/grpo/2 --profile slurm --run -- --dry-run`
    """
    check_cores(cores)
    named = parse(name)
    config = {"tier": named.tier, "envs": [named.env], "methods": [named.method], "seeds": [named.seed]}
    command = line([f"results/{named.directory}/evaluation.json"], config | _model(named), placement(profile, cores))
    command += options or []
    if run:
        log = make(command, {named.directory: named})
        if options:  # what they are for, such as a dry run, is in what snakemake says
            print(log.read_text(encoding="utf-8"), file=sys.stderr)
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
