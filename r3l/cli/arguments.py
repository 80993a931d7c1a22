"""Options that several commands share, and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from r3l.core.errors import ConfigError, DataError, RunDirectoryError
from r3l.files import paths

if TYPE_CHECKING:
    from r3l.report.tables import Selection
    from r3l.workflow.plan import WorkflowConfig

RESULTS = paths.RESULTS


def _existing(param: typer.CallbackParam, value: Any) -> Any:
    """Return the folder or folders of an option. Raises DataError if one does not exist."""
    folders = [value] if isinstance(value, Path) else value or []
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                f"--{param.name} {folder} is not a directory; correct the path, or make runs (`r3l run`, "
                "`r3l train`)"
            )
    return value


def _no_file(param: typer.CallbackParam, folder: Path) -> Path:
    """Return the folder of an option, which need not exist yet. Raises DataError if it is a file."""
    return _existing(param, folder) if folder.exists() else folder


def each_once(changes: list[str] | None) -> list[str] | None:
    """Return ``changes`` (``KEY=VALUE`` texts) as they are. Raises ConfigError if a key is set twice.

    None for None.
    """
    keys = [change.partition("=")[0] for change in changes or ()]
    for key in keys:
        if keys.count(key) > 1:
            given = ", ".join(change for change in changes or () if change.partition("=")[0] == key)
            raise ConfigError(f"{key} is set more than once ({given}); keep one")
    return changes


def with_name(folder: Path | None) -> Path | None:
    """Return ``folder``, absolute if it is written ``.`` or ``..``: locks and unfinished files go next to it.

    None for None. Raises RunDirectoryError for the root, which has nothing next to it.
    """
    if folder is None or folder.name not in ("", ".."):
        return folder
    resolved = folder.resolve()
    if not resolved.name:
        raise RunDirectoryError(f"{folder} is the root of the file system; name a folder in it")
    return resolved


def output(meaning: str, folder: bool = False, ending: str = "") -> Any:
    """Declare a command's option for a path to write.

    ``meaning`` is its help; ``folder``: it may be a folder; ``ending``: how its name must end. That, and
    whether it can be written, is checked while the command line is read, before any work. Raises ConfigError
    or RunDirectoryError then.
    """

    def checked(param: typer.CallbackParam, out: Path | None) -> Path | None:
        from r3l.files.writing import check_writable

        if out is not None and not out.name.endswith(ending):
            raise ConfigError(
                f"--{param.name} {out} must end with {ending}: name the file {out.with_suffix(ending)}"
            )
        if folder:
            out = with_name(out)
        if out is not None:
            check_writable(out)
        return out

    return typer.Option(help=meaning, dir_okay=folder, callback=checked)


# One run.
Tier = Annotated[str, typer.Option(help="Scale: a file of configs/tiers/.")]
Env = Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")]
Model = Annotated[str | None, typer.Option(help="Stored model, folder or hub id. Default: the tier's.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        callback=each_once,
        help="KEY=VALUE of the method (alpha=5) or the run (train.lr=1e-4); repeatable.",
    ),
]
# Several runs.
Envs = Annotated[str | None, typer.Option("--env", help="Environments, comma-separated.")]
Methods = Annotated[str | None, typer.Option("--method", help="Methods or variants, comma-separated.")]
Seeds = Annotated[str | None, typer.Option("--seed", help="Seeds, comma-separated: 0,1,2.")]
SeedsPlanned = Annotated[
    int | None, typer.Option(min=1, help="Seeds planned. Default: configs/workflow.yaml.")
]
SomeTier = Annotated[str | None, typer.Option("--tier", help="Scale: a file of configs/tiers/.")]
Cores = Annotated[str, typer.Option(help="CPU cores for snakemake: a number, or all.")]
# Finished runs.
Runs = Annotated[
    list[Path] | None,
    typer.Argument(help="Runs to show: directories or evaluation.json files.", show_default=False),
]
SeveralResults = Annotated[
    list[Path] | None,
    typer.Option(
        "--results",
        callback=_existing,
        help="Folder of runs (TIER/ENV/MODEL/METHOD/seedN); repeatable. "
        "Default: results, if no run is named.",
    ),
]
Results = Annotated[
    Path, typer.Option(callback=_no_file, help="Folder of runs: TIER/ENV/MODEL/METHOD/seedN.")
]
StoredRuns = Annotated[
    Path | None, typer.Option(callback=_existing, help="Folder of stored runs. Default: this project's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def selection_of(env: str | None, method: str | None, runs: list[Path] | None) -> Selection:
    """The environments, methods and runs that a command's options name; --env and --method comma-separated.

    ``runs``: run directories or evaluation.json files, which are not checked. An option that is None
    restricts nothing: a table then has its own. Raises ConfigError for an unknown environment or method,
    DataError for a directory that is no evaluated run.
    """
    from r3l.report.tables import Selection
    from r3l.runs.run_paths import named_evaluation

    envs = named("--env", env) if env else None
    methods = named("--method", method) if method else None
    return Selection(envs, methods, [named_evaluation(run) for run in runs or ()])


def found(named: Sequence[Path], results: list[Path] | None, may_be_none: bool = False) -> list[Path]:
    """The evaluation.json files ``named``, and those of all runs under the folders ``results``, each once.

    Searches the folder RESULTS if both are empty. Raises DataError for a folder without runs, unless
    ``may_be_none``. The files ``named`` are not read, and need not exist.
    """
    from r3l.runs.run_paths import find_runs

    folders = results or ([] if named else [RESULTS])
    paths = [*named, *(path for folder in folders for path in find_runs(folder, may_be_none))]
    files: dict[Path, Path] = {}
    for path in paths:
        files.setdefault(path.resolve(), path)
    return list(files.values())


def configured(tier: str | None, **options: Any) -> WorkflowConfig:
    """The configuration of workflows: :func:`workflow_values`, validated.

    Raises ConfigError for an unknown tier, key or value.
    """
    from r3l.workflow import plan

    return plan.load(workflow_values(tier, **options))


def workflow_values(tier: str | None, **options: Any) -> dict[str, Any]:
    """The values of configs/workflow.yaml, replaced by ``options`` (its keys), not validated.

    A tier with a file of its own has the values of that file. Options that are None change nothing.
    """
    from r3l.workflow import plan

    given = {key: value for key, value in options.items() if value is not None}
    return plan.workflow_content(tier) | given


def listed(text: str | None, option: str) -> list[str] | None:
    """The comma-separated parts of ``text``; a variant (r3l@alpha=5,retries=2) is one part. None for None.

    Raises ConfigError, which names ``option``, if a part is empty or repeated.
    """
    if text is None:
        return None
    parts = re.split(r",(?![^,@]*=)", text)
    if len(set(parts)) < len(parts) or not all(part.strip() for part in parts):
        raise ConfigError(f"{option} is {text!r}; it must be different names, comma-separated")
    return parts


def named(option: Literal["--env", "--method"], text: str | None) -> list[str] | None:
    """The environments or methods (variants too) that an option lists, comma-separated; None without it.

    Raises ConfigError for an unknown, empty or repeated one.
    """
    from r3l.config import EnvConfig, MethodConfig, load, variant

    names = listed(text, option)
    for name in names or []:
        if option == "--env":
            load("envs", name, EnvConfig)
        else:
            load("methods", variant(name).method, MethodConfig)
    return names


def seeds_named(text: str | None) -> list[int] | None:
    """The seeds that the option ``--seed`` lists; None without it. Raises ConfigError for other text."""
    parts = listed(text, "--seed")
    if not all(part.isdecimal() and part.isascii() for part in parts or ()):
        raise ConfigError(f"--seed is {text!r}; it must be whole numbers, comma-separated, such as 0,1,2")
    return None if parts is None else [int(part) for part in parts]


def check_cores(text: str) -> None:
    """Raise ConfigError unless ``text`` is a whole number of at least 1, or ``all``."""
    if text != "all" and not (text.isdecimal() and text.isascii() and int(text) > 0):
        raise ConfigError(f"--cores is {text!r}; it must be a whole number of at least 1, or all")


def check_arguments(arguments: list[str]) -> None:
    """Raise ConfigError for an argument, or the value in ``--option=``, that is empty or not printable."""
    for k, argument in enumerate(arguments):
        after = f" after {arguments[k - 1]}" if k else ""
        if not argument.strip() or re.fullmatch(r"--[\w-]+=\s*", argument):
            raise ConfigError(f"argument {k + 1}{after} is empty; give it a value, or leave the option out")
        if not argument.isprintable():
            raise ConfigError(
                f"argument {k + 1}{after} is {argument!r}; it must be text without control characters"
            )
