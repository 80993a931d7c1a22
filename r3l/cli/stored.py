"""Verifying and archiving finished runs, and episodes of other programs: `r3l verify`, `r3l stored`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Results, StoredRuns, each_once, output
from r3l.cli.printing import print_result
from r3l.core.errors import DataError
from r3l.files.paths import KEPT


def verify(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run directories, results of probes, or folders. Default: the stored runs."),
    ] = None,
    stored: StoredRuns = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse runs made from a tree with uncommitted changes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check finished runs: recompute every number from the raw lines, and compare the digest of every file.

    Numbers and files that differ are named, and the exit code is then 2. Your own runs are also compared with
    the stored runs, episode by episode. Shows which runs were made from uncommitted code, and under which
    text of docs/preregistration.md.

    Example: `r3l verify`

    Example: `r3l verify results`

    Example: `r3l verify results/stored/probe`
    """
    from r3l.evaluation import stored_runs
    from r3l.evaluation.stored_runs import origins
    from r3l.evaluation.verification import verify_all
    from r3l.files.json_files import read_json
    from r3l.report.reproduction import lines, reproduction
    from r3l.runs.run_dir import EVALUATION
    from r3l.runs.run_paths import find_runs

    where = stored or stored_runs.folder()
    checked: list[Path] = []
    probes: list[Path] = []
    for place in runs or [stored or stored_runs.stored_runs()]:
        if not place.exists():
            raise DataError(f"{place} does not exist; name the folder of a run, or one that holds runs")
        if place.is_file() and place.suffix == ".json" and "measures" in read_json(place, dict):
            probes.append(place)
        elif place.is_file():
            raise DataError(
                f"{place} is neither a run directory nor the result of a probe (a JSON file); name the "
                "folder of the run, as results/nano/math/math-1.5m/grpo/seed0"
            )
        elif place.is_dir() and not (place / "manifest.json").is_file():
            of_probes = stored_runs.probes_in(place)
            probes += of_probes
            checked += [found.parent for found in find_runs(place, may_be_none=bool(of_probes))]
        else:
            checked.append(place)
    probes_checked, without_digest = stored_runs.verify_probes(probes)
    verify_all(checked)

    # The user's own runs are compared with the stored ones, if they are here.
    own = []
    if where.is_dir():
        own = [run for run in checked if not run.resolve().is_relative_to(where.resolve())]
    compared = reproduction([run / EVALUATION for run in own], where) if own else []
    found = origins(checked)
    text = []
    if checked:
        text.append(f"{len(checked)} runs: every number follows from the raw lines, and no file has changed")
    if probes_checked:
        text.append(f"{probes_checked} probes: no attempts have changed")
    if without_digest:
        text.append(f"{without_digest} probes cannot be checked: r3l 0.1.0, which made them, wrote no digest")
    text += found.lines()
    content = {"verified": len(checked), "probes": probes_checked, **found.as_json(), "compared": compared}
    print_result(content, as_json, "\n".join([*text, *lines(compared)]))
    if strict and found.dirty:
        raise DataError(
            f"{len(found.dirty)} of {len(checked)} runs were made from a tree with uncommitted changes; make "
            "them again from a clean clone"
        )


def episodes(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSONL or CSV, one line per episode: task, success; optional turns, "
            "stop_reason, batch, worker, seed."
        ),
    ],
    env: Annotated[str | None, typer.Option(help="Environment whose tasks were played.")] = None,
    task_set: Annotated[
        str | None, typer.Option("--task-set", "--split", help="NAME/SPLIT of the tasks that were meant.")
    ] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Turn limit of these episodes.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="NAME=COLUMN if the file names it otherwise; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check episodes that another program played: each task equally often? Does the order matter?

    Names tasks that are unknown, missing or played more or less often than most, and bounds the score over
    the complete task set. Where tasks were repeated, tests whether outcomes of the same task depend on the
    position in the file, the batch, the worker or the seed. Exit code 2 if the tasks were not played equally
    often.

    Example: `r3l verify episodes alfworld.jsonl --env alfworld --task-set valid_seen --column task=gamefile`
    """
    from r3l.config import environment_of
    from r3l.core.errors import ConfigError
    from r3l.evaluation.episode_files import check_episodes, read_episodes

    # Options that are wrong are errors before the file is read.
    columns = {}
    for pair in each_once(column) or []:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--column {pair!r} is not NAME=COLUMN, such as task=gamefile")
        columns[name] = value
    if bool(task_set) != bool(env):
        raise ConfigError(
            "--env and --task-set name the tasks together: add the other one, or leave both out"
        )

    # Check against the tasks of the task set, or without one those in the file.
    played = read_episodes(file, columns)
    ids = [task.id for task in environment_of(env).tasks(task_set)] if env and task_set else None
    checked = check_episodes(played, ids, max_turns)
    print_result(checked.as_json(), as_json, "\n".join(checked.lines()))
    if checked.wrong:
        raise DataError(
            f"{file}: its tasks were not played equally often, so its mean is no score of the task set"
        )


def add(
    results: Results = RESULTS,
    out: Annotated[Path | None, output("Default: results/stored of this project.", folder=True)] = None,
    replace: Annotated[
        bool, typer.Option(help="Delete stored runs of the same names that have other settings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Archive finished runs, tunings and probes: verified, compressed, without checkpoints.

    This project's results/stored accepts no run from a tree with uncommitted changes.

    Example: `r3l stored add --results results`
    """
    from r3l.evaluation import storing
    from r3l.runs.run_paths import find_runs

    target = out or KEPT
    # Runs go first: they may be refused, and nothing is written then.
    runs = find_runs(results, may_be_none=True)
    written = storing.store([path.parent for path in runs], target, replace=replace)
    tunings = storing.store_tunings(results, target)
    probes = storing.store_probes(results, target)
    if not (runs or tunings or probes):
        find_runs(results)  # says what is missing
    content = {"stored": [str(path) for path in written], "tunings": [str(path) for path in tunings]}
    content["probes"] = [str(path) for path in probes]
    also = f", {len(tunings)} tunings" if tunings else ""
    also += f", {len(probes)} probes" if probes else ""
    print_result(content, as_json, f"{len(written)} runs{also} stored in {target}")


def fetch(
    source: Annotated[
        str | None,
        typer.Argument(
            help="r3l-stored-VERSION.zip: a file or a URL. Default: the one released with this wheel."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Unpack the stored runs into $R3L_CACHE/stored, where `compare` and `verify` find them.

    Only an installed package needs this: a checkout has them in results/stored.

    Example: `r3l stored fetch`

    Example: `r3l stored fetch r3l-stored-0.1.0.zip`
    """
    from r3l.evaluation import stored_runs
    from r3l.runs.run_paths import find_runs

    folder = stored_runs.fetch(source)
    runs = len(find_runs(folder))
    print_result({"folder": str(folder), "runs": runs}, as_json, f"{runs} stored runs in {folder}")
