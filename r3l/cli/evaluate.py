"""`r3l evaluate`: plays the test tasks of a run or an environment, with a local or served model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Overrides, Seed, SomeTier, output
from r3l.cli.compare import offline_command
from r3l.cli.model_source import DEADLINE, ModelSource
from r3l.cli.printing import print_result, print_shown
from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from r3l.cli.evaluations import PlannedEvaluation
    from r3l.evaluation.episodes import EpisodeRow


def evaluate(
    target: Annotated[str, typer.Argument(help="Run directory, environment, or YAML file of several.")],
    model: Annotated[
        str | None, typer.Option(help="Stored model, folder or hub id; with --server its name there.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    tier: SomeTier = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Rules to play by; several (NAME,NAME) or all are compared. Default: the paper's."),
    ] = None,
    task_set: Annotated[
        str | None,
        typer.Option("--task-set", "--split", help="Task set to play (NAME/SPLIT). Default: the test set."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("-n", min=1, help="Tasks to play. Default: all, or the protocol's.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option("--repeat", "-r", min=1, help="Attempts at each task. Default: 1, or the tier's."),
    ] = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Episodes at once. Default: 16, or the tier's.")
    ] = None,
    dialog: Annotated[str, typer.Option(help="Form of requests: messages, or tokens (vLLM).")] = "messages",
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or hub id, for --dialog tokens. Default: the model's.")
    ] = None,
    request: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE (JSON) to add to every request, null to leave a field out; repeatable."),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds a server may take for one response.")
    ] = DEADLINE,
    out: Annotated[Path | None, output("Default: results/CELL/seedN.", folder=True)] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables for a model card.")] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's last checkpoint, or any model in an environment. Re-run to resume.

    The model acts without reflection or guidance. If a run plays another task set than its test set,
    results go to RUN_DIR/evaluations. In an environment `--protocol` sets the rules of a published
    evaluation (docs/endpoints.md#protocols), `--tier` the rules of training. Default: the paper's protocol
    (`r3l`) on published data, or tier nano for a model that this project made. A YAML file lists evaluations
    with these options (docs/endpoints.md#verifiers); options given here are the defaults of its lines.

    Example: `r3l evaluate results/nano/alfworld/alfworld-1.5m-plain/r3l/seed0`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --protocol react -n 20`

    Example: `r3l evaluate gsm8k --model Qwen/Qwen2.5-1.5B-Instruct --protocol qwen -n 100`
    """
    source = ModelSource(server, model, dialog, tokenizer, request or [], deadline, batch)
    options: dict[str, Any] = {
        "tier": tier,
        "protocol": protocol,
        "task_set": task_set,
        "n": tasks,
        "repeat": repeat,
        "seed": seed,
    }
    options |= {**asdict(source), "set": overrides or []}
    if target.endswith((".yaml", ".yml")):
        _refuse("a file of evaluations", out=out)
        if server:
            source.check()
        _play_file(Path(target), options, as_json, markdown)
    elif Path(target).is_dir() or "/" in target:
        of_environment: dict[str, Any] = {
            "tier": tier,
            "protocol": protocol,
            "n": tasks,
            "repeat": repeat,
            "seed": seed,
        }
        of_environment |= {"set": overrides, "out": out}
        of_model = {} if server else {"model": model, "batch": batch}
        _refuse("a run, which is played as its manifest says", **of_environment, **of_model)
        source.check()
        _play_run(Path(target), task_set, source, as_json, markdown)
    else:
        source.check()
        _play_environment(target, options, out, as_json, markdown)


def _refuse(form: str, **options: object) -> None:
    """Raise ConfigError for an option with a value that this form of the target cannot use."""
    for name, value in options.items():
        if value:
            option = f"-{name}" if len(name) == 1 else f"--{name}"
            raise ConfigError(f"{option} cannot be combined with {form}; leave it out")


def _play_run(
    run_dir: Path, task_set: str | None, source: ModelSource, as_json: bool, markdown: bool
) -> None:
    """Evaluate a run with its last checkpoint, or with a server that has it."""
    from r3l.api.running import check_run_dir
    from r3l.cli.evaluations import check_published, score_run
    from r3l.evaluation.evaluate import checkpoint_of
    from r3l.runs.manifest import run_of

    check_run_dir(run_dir)
    check_published(run_of(run_dir))
    served = source.served_model(checkpoint_of(run_dir)) if source.server else None
    where, evaluation = score_run(run_dir, task_set, served)
    _print(run_dir, where, evaluation, bool(source.server), as_json, markdown)


def _play_environment(
    env: str, options: dict[str, Any], out: Path | None, as_json: bool, markdown: bool
) -> None:
    """Evaluate a model in an environment; by several protocols, also compare their scores."""
    from r3l.cli import evaluations
    from r3l.report.protocol_scores import compared, draw
    from r3l.report.table import to_markdown

    entry = evaluations.EvaluationRequest(env=env, **options)
    names = evaluations.several_protocols(entry)
    if not names:
        plan = evaluations.plan_evaluation(entry, out)
        _print(plan.run_dir, *plan.play(), bool(entry.server), as_json, markdown)
        return
    # Everything wrong with any of them is an error before the first is played.
    plans = [
        evaluations.plan_evaluation(entry.model_copy(update={"protocol": name}), out and out / name)
        for name in names
    ]
    played = _played(plans)
    model_folder = plans[-1].run_dir.parents[1]  # of TIER/ENV/MODEL/METHOD/seedN
    picture = draw(played, (out or model_folder) / "protocols.png")
    table = to_markdown(compared(played))
    content = {"protocols": {e["protocol"]["name"]: e for e, _ in played}, "picture": str(picture)}
    print_result(content, as_json, table if markdown else f"{table}\nin {picture}")


def _play_file(path: Path, options: dict[str, Any], as_json: bool, markdown: bool) -> None:
    """Play the evaluations of a file in turn, then print a table of them."""
    from r3l.cli.evaluations import read_file
    from r3l.report.protocol_scores import several
    from r3l.report.table import to_markdown

    plans = read_file(path, options)
    played = _played(plans)
    table = several(played, [plan.run_dir for plan in plans])
    content = {"evaluations": [evaluation for evaluation, _ in played]}
    if markdown:
        print_result(content, as_json, to_markdown(table))
    else:
        print_shown(content, as_json, table)


def _played(plans: Sequence[PlannedEvaluation]) -> list[tuple[Mapping[str, Any], list[EpisodeRow]]]:
    """The evaluations and their episodes, played in turn under one progress of all episodes."""
    from r3l.evaluation.episodes import EpisodeRow
    from r3l.files.json_files import read_jsonl
    from r3l.processes.progress import one_progress
    from r3l.runs.run_dir import EPISODES

    left = [plan for plan in plans if not plan.is_played()]
    with one_progress(f"{len(left)} evaluations, episodes", sum(plan.episodes() for plan in left)):
        results = [plan.play() for plan in plans]
    return [(evaluation, read_jsonl(where / EPISODES, EpisodeRow)) for where, evaluation in results]


def _print(
    run_dir: Path, where: Path, evaluation: Mapping[str, Any], served: bool, as_json: bool, markdown: bool
) -> None:
    """Print an evaluation whose files are in ``where``: ``run_dir`` itself, or a folder below it."""
    from r3l.api.running import default_run_dir
    from r3l.config import variant
    from r3l.evaluation import stored_runs
    from r3l.evaluation.episodes import EpisodeRow
    from r3l.evaluation.summary import summary
    from r3l.files.json_files import read_jsonl
    from r3l.report import protocol_scores
    from r3l.report.reproduction import reproduction, sentence
    from r3l.runs.manifest import run_of
    from r3l.runs.run_dir import EPISODES, EVALUATION
    from r3l.runs.run_paths import TRANSCRIPTS

    run = run_of(run_dir)
    episodes = read_jsonl(where / EPISODES, EpisodeRow)
    if markdown:
        print_result(evaluation, as_json, protocol_scores.markdown(evaluation, episodes))
        return
    several = len(protocol_scores.passes(episodes)) > 1
    interval = protocol_scores.interval_over_tasks(episodes) if several else None
    lines = [summary(evaluation, run, interval), *protocol_scores.lines(evaluation, episodes)]
    lines.append(f"in {where}, every turn in {TRANSCRIPTS}")
    # A run of the workflow's grid may have stored runs to be compared with.
    if where == run_dir and not served and not as_json and "protocol" not in evaluation:
        stored = stored_runs.folder()
        if stored.is_dir():
            (row,) = reproduction([where / EVALUATION], stored)
            lines.append(sentence(row))
        else:
            lines.append("the stored runs are not here (r3l stored fetch)")
        # The next command compares the run with stored ones if it finds both, else it shows the run.
        partial = any(change.startswith("evaluation.") for change in variant(run.method).changes)
        at_home = run_dir.resolve() == default_run_dir(run).resolve()
        if not partial and at_home and (stored / run.tier / run.env).is_dir():
            lines.append(f"next: {offline_command(run.method, run.tier, [run.env])}")
        else:
            lines.append(f"next: r3l report {shlex.quote(str(run_dir))}")
    print_result(evaluation, as_json, "\n".join(lines))
