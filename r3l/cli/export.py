"""`r3l export`: a trained model for others, or a run for Trinity-RFT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier
from r3l.cli.printing import print_result
from r3l.core.errors import ConfigError


def model(
    run_dir: Annotated[Path, typer.Argument(help="Directory of a finished, evaluated run.")],
    to: Annotated[str, typer.Argument(help="A new folder (with a slash), or hub:OWNER/NAME.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a run's model, with a model card, into a folder or to the Hugging Face hub.

    Example: `r3l export model results/nano/alfworld/alfworld-1.5m-plain/r3l/seed0 hub:OWNER/NAME --dry-run`
    """
    from r3l.api.running import check_run_dir
    from r3l.evaluation import publishing

    check_run_dir(run_dir)
    if not publishing.is_target(to):
        raise ConfigError(f"{to} is neither a folder (write ./{to}) nor hub:OWNER/NAME")
    files = publishing.publish(run_dir, to, dry_run)
    verb = "would hold" if dry_run else "holds"
    print_result({"model": to, "files": files}, as_json, f"{to} {verb} {', '.join(files)}")


def trinity(
    out: Annotated[Path, typer.Argument(help="The YAML file to write.")],
    tier: Tier = "paper",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Default: results/TIER/ENV/MODEL/METHOD/seedN.")
    ] = None,
    write_tasks: Annotated[
        bool, typer.Option("--write-tasks", help="Also write its tasksets, and LoRA's adapter.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the configuration with which Trinity-RFT 0.6.0 trains a run. Nothing is trained.

    Example: `r3l export trinity r3l.yaml --tier paper --write-tasks && trinity run --config r3l.yaml`
    """
    from r3l.api.running import default_run_dir
    from r3l.config import resolve
    from r3l.files.writing import check_writable, writable, write_text_atomic
    from r3l.trinity.config import Place, as_yaml, trinity_config, write_inputs

    check_writable(out)
    run = resolve(tier, env, method, seed, model, overrides)
    folder = (run_dir or default_run_dir(run)) / "trinity"
    place = Place(folder, folder / "tasks")
    text = as_yaml(run, trinity_config(run, place))
    if write_tasks:
        write_inputs(run, place)
    with writable(out):
        write_text_atomic(out, text)
    print_result({"file": str(out)}, as_json, str(out))
