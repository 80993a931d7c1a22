"""What the verbs share: the options' types, and how results are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from r3l.config import Run, Variant

RESULTS = Path("results")

Tier = Annotated[str, typer.Option(help="Scale: a file of configs/tiers/.")]
Env = Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")]
Model = Annotated[str | None, typer.Option(help="Stored model, folder, or hub id. Default: the tier's.")]
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


def check_known(kind: str, name: str, known: Any) -> None:
    """Raises ConfigError for a name that is none of ``known``."""
    if name not in known:
        raise ConfigError(f"there is no {kind} {name!r}; known: {', '.join(sorted(known))}")


def pairs(values: dict[str, float]) -> str:
    """``key 0.123`` of each, by commas."""
    return ", ".join(f"{key} {value:.3f}" for key, value in values.items()) or "nothing trained"


def print_result(content: dict[str, Any], as_json: bool, text: str) -> None:
    """One JSON object, or a line of text."""
    print(json.dumps(content, sort_keys=True) if as_json else text)


def print_shown(content: dict[str, Any], as_json: bool, shown: RenderableType) -> None:
    """One JSON object, or a table."""
    if as_json:
        print(json.dumps(content))
    else:
        console().print(shown)


def print_report(content: dict[str, Any], as_json: bool) -> None:
    """A measurement; always JSON."""
    print(json.dumps(content, indent=None if as_json else 2))


def print_rows(content: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    """The one list of rows in ``content``: JSON, or a table."""
    (rows,) = content.values()
    shown = Table()
    for column in rows[0]:
        shown.add_column(column)
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    print_shown(content, as_json, shown)


def console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    return Console() if Console().is_terminal else Console(width=150)


def _text(value: Any) -> str:
    return "\n".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def configured(**given: Any) -> Any:
    """configs/workflow.yaml, or the tier's own, with what an option has changed."""
    from r3l.workflow import plan

    found = plan.workflow_content(given.pop("tier", None))
    return plan.load(found | {key: value for key, value in given.items() if value is not None})


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
