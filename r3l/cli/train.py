"""`r3l train`: one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier, output, refuse_unused, resolve_run
from r3l.cli.printing import print_result
from r3l.core.errors import check_known

if TYPE_CHECKING:
    from r3l.config import Run

OF_RUN = {"tier", "env", "method", "model", "seed", "overrides", "engine", "run_dir"}


def train(
    ctx: typer.Context,
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    engine: Annotated[str | None, typer.Option(help="local or trinity. Default: the tier's.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Default: results/TIER/ENV/MODEL/METHOD/seedN.")] = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or wandb (offline); repeatable.")
    ] = None,
    set_aside: Annotated[bool, typer.Option(help="Rename a directory that holds another configuration.")] = False,
    minutes: Annotated[float | None, typer.Option(min=0, help="Time limit; exit code 75; re-run to resume.")] = None,
    trinity_config: Annotated[
        Path | None, output("Train nothing; write the configuration of Trinity-RFT 0.6.0 (YAML) here.")
    ] = None,
    write_tasks: Annotated[
        bool,
        typer.Option(
            "--write-tasks",
            help="With --trinity-config: also write its tasksets, and LoRA's adapter.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train one run; re-run to resume.

    Example: `r3l train --method grpo --seed 1 --set train.lr=1e-4`

    Example: `until r3l train --tier smol --minutes 10; do [ $? = 75 ] || break; done`

    Example: `r3l train --tier paper --trinity-config r3l.yaml --write-tasks && trinity run --config r3l.yaml`
    """
    from r3l.api.running import place_of, train_run
    from r3l.config import TierConfig, load, variant
    from r3l.runs.loggers import LOGGERS

    for name in logger or []:
        check_known("logger", name, LOGGERS)
    if engine and engine != load("tiers", tier, TierConfig).engine:
        method = variant(method).changed(engine=engine).name
    run = resolve_run(tier, env, method, seed, model, overrides)
    where = run_dir or place_of(run)
    if trinity_config is not None:
        refuse_unused(ctx, "--trinity-config, which trains nothing", OF_RUN | {"trinity_config", "write_tasks"})
        _write_trinity_config(run, where, trinity_config, write_tasks)
        print_result({"file": str(trinity_config)}, as_json, str(trinity_config))
        return
    refuse_unused(ctx, "training (without --trinity-config)", OF_RUN | {"logger", "set_aside", "minutes"})
    result = train_run(run, where, logger or (), minutes, set_aside)
    text = f"{_sentences(run, result)}\nin {where}\nnext: r3l evaluate {where}"
    print_result(result, as_json, text)


def _sentences(run: Run, result: dict[str, Any]) -> str:
    """What a finished run amounts to."""
    from r3l.runs.result import FINAL_WINDOW

    head, final = f"{run.method_label} on {run.env}, seed {run.seed}: {result['steps']} steps.", result["final"]
    if "train/success" not in final:
        return f"{head} Nothing was trained."
    groups = [f"{key.rpartition('/')[2]} {value:.3f}" for key, value in final.items() if "/success/" in key]
    of_groups = f" ({', '.join(groups)})" if groups else ""
    steps = min(FINAL_WINDOW, result["steps"])
    return (
        f"{head} Means of the last {steps}, on training tasks:\n"
        f"success {final['train/success']:.3f}{of_groups}, reward {final['train/reward']:.3f}, "
        f"{final['train/turns']:.1f} turns an attempt."
    )


def _write_trinity_config(run: Run, where: Path, out: Path, write_tasks: bool) -> None:
    from r3l.files.writing import writable, write_text_atomic
    from r3l.trinity.config import Place, as_yaml, trinity_config, write_inputs

    place = Place(where / "trinity", where / "trinity" / "tasks")
    text = as_yaml(run, trinity_config(run, place))
    if write_tasks:
        write_inputs(run, place)
    with writable(out):
        write_text_atomic(out, text)
