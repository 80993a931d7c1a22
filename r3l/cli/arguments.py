"""The options that verbs share, and what is made of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.core.errors import ConfigError, DataError
from r3l.files import paths

if TYPE_CHECKING:
    from r3l.config import Run, Variant
    from r3l.workflow.plan import WorkflowConfig

RESULTS = paths.RESULTS


def _existing(param: typer.CallbackParam, value: Any) -> Any:
    """Folders of runs that an option names. Raises DataError for one that there is not."""
    for folder in [value] if isinstance(value, Path) else value or ():
        if not folder.is_dir():
            raise DataError(
                f"--{param.name} {folder} is no folder; correct the path, or make runs (`make table1`, r3l train)"
            )
    return value


def each_once(changes: list[str] | None) -> list[str] | None:
    """Changes ``KEY=VALUE`` as they are. Raises ConfigError where two have one key: one of them is a mistake."""
    keys = [change.partition("=")[0] for change in changes or ()]
    for key in keys:
        if keys.count(key) > 1:
            given = ", ".join(change for change in changes or () if change.partition("=")[0] == key)
            raise ConfigError(f"{key} is set more than once ({given}); keep one")
    return changes


Tier = Annotated[str, typer.Option(help="Scale: a file of configs/tiers/.")]
Env = Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")]
Model = Annotated[str | None, typer.Option(help="Stored model, folder, or hub id. Default: the tier's.")]
Profile = Annotated[str | None, typer.Option(help="paper, released_code, fair or tuned.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every draw of the run.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", callback=each_once, help="KEY=VALUE, repeatable: train.lr=1e-4.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Envs = Annotated[str | None, typer.Option("--env", help="Environments, by commas. Default: configs/workflow.yaml.")]
Seeds = Annotated[str | None, typer.Option(help="Seeds, by commas.")]
Results = Annotated[Path, typer.Option(help="Where runs lie: RESULTS/tier/env/model/method/seedN.")]
Runs = Annotated[
    list[Path] | None,
    typer.Argument(help="Runs to show: their directories, or their evaluation.json files.", show_default=False),
]
SeveralResults = Annotated[
    list[Path] | None,
    typer.Option(
        "--results",
        callback=_existing,
        help="Where runs lie: RESULTS/tier/env/model/method/seedN; repeatable. Default: results, if no run is named.",
    ),
]
StoredRuns = Annotated[
    Path | None, typer.Option(callback=_existing, help="Where stored runs lie. Default: those of this project.")
]


def output(meaning: str, folder: bool = False) -> Any:
    """The option --out: a file that is written (or a folder), which is checked before any work starts."""
    return typer.Option(help=meaning, dir_okay=folder, callback=_checked_output)


def _checked_output(out: Path | None) -> Path | None:
    from r3l.files.writing import check_writable

    if out is not None:
        check_writable(out)
    return out


def named_runs(runs: list[Path] | None) -> list[Path]:
    """The evaluation.json of each run that a command names."""
    from r3l.runs.places import named_evaluation

    return [named_evaluation(run) for run in runs or ()]


def found(named: list[Path], results: list[Path] | None, may_be_none: bool = False) -> list[Path]:
    """The runs that a command names, and all under ``--results``; a file that is found twice counts once."""
    from r3l.runs.places import find_runs

    folders = results or ([] if named else [RESULTS])
    paths = [*named, *(path for folder in folders for path in find_runs(folder, may_be_none))]
    files: dict[Path, Path] = {}
    for path in paths:
        files.setdefault(path.resolve(), path)
    return list(files.values())


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
    return resolve(tier, env, method, seed, model, each_once([*(overrides or []), *short]))


def tier_engine(tier: str) -> str:
    """The engine that a tier's runs have unless another is chosen."""
    from r3l.config import TierConfig, load

    return load("tiers", tier, TierConfig).engine


def configured(**options: Any) -> WorkflowConfig:
    """configs/workflow.yaml, or the tier's own, with the options that are not None."""
    from r3l.workflow import plan

    values = plan.workflow_content(options.pop("tier", None))
    return plan.load(values | {key: value for key, value in options.items() if value is not None})


def listed(text: str | None, option: str) -> list[str] | None:
    """Parts of an ``option`` that holds several, by commas.

    Raises ConfigError where one is empty or stands there twice.
    """
    if text is None:
        return None
    parts = text.split(",")
    if len(set(parts)) < len(parts) or not all(part.strip() for part in parts):
        raise ConfigError(f"{option} is {text!r}; it must be different names by commas")
    return parts


def rows_named(text: str | None) -> list[str] | None:
    """The methods or variants of ``--rows``, by commas. Raises ConfigError for one that there is not."""
    from r3l.config import variant
    from r3l.config.method import load_method

    methods = listed(text, "--rows")
    for method in methods or []:
        load_method(variant(method).method)
    return methods


def environments_named(text: str | None) -> list[str] | None:
    """The environments of ``--env``, by commas. Raises ConfigError for one that there is not."""
    from r3l.config import EnvConfig, load

    envs = listed(text, "--env")
    for env in envs or []:
        load("envs", env, EnvConfig)
    return envs


def numbers(text: str | None) -> list[int] | None:
    """Seeds by commas. Raises ConfigError."""
    parts = listed(text, "--seeds")
    if parts is None:
        return None
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise ConfigError(f"--seeds is {text!r}; it must be whole numbers by commas, such as 0,1,2")
    return [int(part) for part in parts]


def check_cores(text: str) -> None:
    """Raises ConfigError unless snakemake would take it as a number of cores."""
    if text != "all" and not (text.isdecimal() and text.isascii() and int(text) > 0):
        raise ConfigError(f"--cores is {text!r}; it must be a whole number of at least 1, or all")


def check_arguments(arguments: list[str]) -> None:
    """Raises ConfigError for an argument that is empty, or that a terminal could not show in one line."""
    for k, argument in enumerate(arguments):
        after = f" after {arguments[k - 1]}" if k else ""
        if not argument.strip() or re.fullmatch(r"--[\w-]+=\s*", argument):
            raise ConfigError(f"argument {k + 1}{after} is empty; give it a value, or leave the option out")
        if not argument.isprintable():
            raise ConfigError(f"argument {k + 1}{after} is {argument!r}; it must be text without control characters")
