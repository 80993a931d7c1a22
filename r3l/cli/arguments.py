"""The options that verbs share, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from r3l.config import Run, Variant
    from r3l.workflow.plan import WorkflowConfig

RESULTS = Path("results")
Tier = Annotated[str, typer.Option(help="Scale: a file of configs/tiers/.")]
Env = Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")]
Model = Annotated[str | None, typer.Option(help="Stored model, folder, or hub id. Default: the tier's.")]
Profile = Annotated[str | None, typer.Option(help="paper, released_code or fair.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every draw of the run.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, repeatable: train.lr=1e-4.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Envs = Annotated[str | None, typer.Option("--env", help="Environments, by commas. Default: configs/workflow.yaml.")]
Seeds = Annotated[str | None, typer.Option(help="Seeds, by commas.")]
Results = Annotated[Path, typer.Option(help="Where runs lie: RESULTS/tier/env/model/method/seedN.")]


def resolve_run(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int,
    model: str | None,
    overrides: list[str] | None,
    steps: int | None,
) -> Run:
    """The run that options describe, validated."""
    from r3l.config import resolve

    short = [] if steps is None else [f"train.steps={steps}"]
    return resolve(tier, env, method, seed, model, [*(overrides or []), *short])


def tier_engine(tier: str) -> str:
    """The engine that a tier's runs have unless another is chosen."""
    from r3l.config import TierConfig, load

    return load("tiers", tier, TierConfig).engine


def configured(**options: Any) -> WorkflowConfig:
    """configs/workflow.yaml, or the tier's own, with the options that are not None."""
    from r3l.workflow import plan

    values = plan.workflow_content(options.pop("tier", None))
    return plan.load(values | {key: value for key, value in options.items() if value is not None})


def listed(text: str | None) -> list[str] | None:
    """Parts of an option that holds several, by commas."""
    return text.split(",") if text else None


def numbers(text: str | None) -> list[int] | None:
    """Whole numbers by commas. Raises ConfigError."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds is {text!r}; it must be whole numbers by commas, such as 0,1,2") from error
