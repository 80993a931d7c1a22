"""`r3l evaluate`: plays the test tasks of a run or an environment, with a local model or a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Overrides, Seed, SomeTier, output, refuse_unused
from r3l.cli.compare import offline_command
from r3l.cli.model_source import DEADLINE, SERVER_ONLY, Asked
from r3l.cli.printing import print_result, print_shown

if TYPE_CHECKING:
    from r3l.cli.evaluations import Planned, Scored
    from r3l.config import Run

OF_AGENT = {"server", "model", "batch", *SERVER_ONLY}
OF_ENVIRONMENT = {"tier", "protocol", "task_set", "tasks", "repeat", "seed", "overrides", "out", "markdown"}


def evaluate(
    ctx: typer.Context,
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
        int | None, typer.Option("--repeat", "-r", min=1, help="Attempts at each task. Default: 1, or the tier's.")
    ] = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Episodes at once. Default: 16, or the tier's.")] = None,
    dialog: Annotated[str, typer.Option(help="What the server is sent: messages, or tokens (vLLM).")] = "messages",
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or hub id, for --dialog tokens. Default: the model's.")
    ] = None,
    request: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE (JSON) to add to every request, null to leave a field out; repeatable."),
    ] = None,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds a server may take for one response.")] = DEADLINE,
    out: Annotated[Path | None, output("Default: results/CELL/seedN.", folder=True)] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables for a model card.")] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's last checkpoint, or any model in an environment. Re-run to resume.

    The model acts alone, without reflection or guidance. Results of a run on another task set than its test set go to
    RUN_DIR/evaluations. An environment is played by `--protocol`, the rules of a published evaluation
    (docs/endpoints.md#protocols), or as in `--tier`. Without either a model plays the paper's protocol (`r3l`) on
    published data, and one that this project made tier nano. A file lists evaluations by these options
    (docs/endpoints.md#verifiers); those given here hold where a line sets none.

    Example: `r3l evaluate results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --protocol react -n 20`

    Example: `r3l evaluate gsm8k --model Qwen/Qwen2.5-1.5B-Instruct --protocol qwen -n 100`
    """
    asked = Asked(server, model, dialog, tokenizer, request or [], deadline, batch)
    options = {**asdict(asked), "tier": tier, "protocol": protocol, "task_set": task_set, "n": tasks, "repeat": repeat}
    options |= {"seed": seed, "set": overrides or []}
    if target.endswith((".yaml", ".yml")):
        refuse_unused(ctx, "a file of evaluations", (OF_ENVIRONMENT | OF_AGENT) - {"out"})
        asked.check_there()
        _play_several(Path(target), options, as_json, markdown)
        return
    if not server:
        local = {str(option.name) for option in ctx.command.params} - SERVER_ONLY
        refuse_unused(ctx, "a model of this machine (without --server)", local)
    if Path(target).is_dir() or "/" in target:
        used = {"task_set", "markdown", *(OF_AGENT if server else ())}
        refuse_unused(ctx, "a run, which is played as its manifest says", used)
        asked.check_there()
        where, evaluation = _play_run(Path(target), task_set, asked)
        _print(Path(target), where, evaluation, agent=bool(server), as_json=as_json, markdown=markdown)
        return
    refuse_unused(ctx, "an environment", OF_ENVIRONMENT | OF_AGENT)
    asked.check_there()
    from r3l.cli import evaluations  # takes seconds

    entry = evaluations.Evaluation(env=target, **options)
    if names := evaluations.several_protocols(entry):
        _play_all(evaluations.by_protocol(entry, names, out), out, as_json, markdown)
        return
    plan = evaluations.planned(entry, out)
    _print(plan.run_dir, *plan.play(), agent=bool(server), as_json=as_json, markdown=markdown)


def _play_run(run_dir: Path, task_set: str | None, asked: Asked) -> Scored:
    """Evaluate a run with its last checkpoint, or with a server that has it."""
    from r3l.api.running import check_run_dir
    from r3l.cli.evaluations import scored
    from r3l.evaluation.evaluate import checkpoint_of

    check_run_dir(run_dir)
    agent = asked.agent(checkpoint_of(run_dir)) if asked.server else None
    return scored(run_dir, task_set, agent)


def _play_all(plans: Sequence[Planned], out: Path | None, as_json: bool, markdown: bool) -> None:
    """Play by each protocol in turn, then compare its scores in a table and a picture."""
    from r3l.report.by_protocol import compared, draw
    from r3l.report.render import to_markdown

    played = list(map(_with_episodes, (plan.play() for plan in plans)))
    folder = out or plans[-1].run_dir.parents[1]  # of the model: TIER/ENV/MODEL/METHOD/seedN
    picture = draw(played, folder / "protocols.png")
    table = to_markdown(compared(played))
    content = {"protocols": {e["protocol"]["name"]: e for e, _ in played}, "picture": str(picture)}
    print_result(content, as_json, table if markdown else f"{table}\nin {picture}")


def _play_several(path: Path, options: dict[str, Any], as_json: bool, markdown: bool) -> None:
    """Play the evaluations of a file in turn, then print a table of them."""
    from r3l.cli.evaluations import of_file
    from r3l.report.protocol_scores import several
    from r3l.report.render import to_markdown, to_terminal

    plans = of_file(path, options)
    played = list(map(_with_episodes, (plan.play() for plan in plans)))
    table = several(played, [plan.run_dir for plan in plans])
    content = {"evaluations": [evaluation for evaluation, _ in played]}
    if markdown:
        print_result(content, as_json, to_markdown(table))
    else:
        print_shown(content, as_json, to_terminal(table))


def _with_episodes(played: Scored) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from r3l.evaluation.verification import EPISODES
    from r3l.files.json_files import read_jsonl

    where, evaluation = played
    return evaluation, read_jsonl(where / EPISODES)


def _print(run_dir: Path, where: Path, evaluation: dict[str, Any], agent: bool, as_json: bool, markdown: bool) -> None:
    from r3l.evaluation import stored_runs
    from r3l.evaluation.summary import summary
    from r3l.evaluation.verification import EPISODES
    from r3l.files.json_files import read_jsonl
    from r3l.report import protocol_scores
    from r3l.runs.manifest import run_of
    from r3l.runs.run_dir import EVALUATION
    from r3l.runs.run_paths import TRANSCRIPTS

    run, episodes = run_of(run_dir), read_jsonl(where / EPISODES)
    if markdown:
        print_result(evaluation, as_json, protocol_scores.markdown(evaluation, episodes))
        return
    several = len(protocol_scores.passes(episodes)) > 1
    interval = protocol_scores.interval_over_tasks(episodes) if several else None
    page = [summary(evaluation, run, interval), *protocol_scores.lines(evaluation, episodes)]
    line = "\n".join(page) + f"\nin {where}, every turn in {TRANSCRIPTS}"
    if where == run_dir and not agent and not as_json and "protocol" not in evaluation:
        line += f"\n{_beside_stored(where / EVALUATION)}\nnext: {_next(run, run_dir, stored_runs.folder())}"
    print_result(evaluation, as_json, line)


def _beside_stored(evaluation: Path) -> str:
    from r3l.evaluation.stored_runs import folder
    from r3l.report.reproduction import reproduction, sentence

    if not folder().is_dir():
        return "the stored runs are not here (r3l stored fetch)"
    (row,) = reproduction([evaluation], folder())
    return sentence(row)


def _next(run: Run, run_dir: Path, stored: Path) -> str:
    """The command that compares the run with stored ones, where it would find both; else the one that shows it."""
    from r3l.api.running import place_of
    from r3l.config import variant

    partly = any(change.startswith("evaluation.") for change in variant(run.method).changes)
    if partly or run_dir.resolve() != place_of(run).resolve() or not (stored / run.tier / run.env).is_dir():
        return f"r3l report {run_dir}"
    return offline_command(run.method, run.tier, [run.env])
