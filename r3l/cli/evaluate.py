"""`r3l evaluate`: plays the test tasks of a run or an environment, with a local model or a server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Overrides, Seed, SomeTier, each_once, output, refuse_unused, resolve_run
from r3l.cli.compare import offline_command
from r3l.cli.printing import print_result
from r3l.core.errors import ConfigError, check_known

if TYPE_CHECKING:
    from r3l.config import EnvConfig, Run
    from r3l.evaluation.agents import ServedAgent

TEST_TASK_SET = "env_settings.test_task_set"
CONCURRENCY = 16  # episodes at once; our choice
DEADLINE = 600.0  # seconds; 4,096 tokens of a slow server under load take minutes
SERVER_ONLY = {"dialog", "tokenizer", "request", "deadline"}
OF_AGENT = {"server", "model", "batch", *SERVER_ONLY}
OF_ENVIRONMENT = {"tier", "protocol", "task_set", "tasks", "repeat", "seed", "overrides", "out"}


def evaluate(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help="Run directory, or environment (alfworld, gsm8k, math500).")],
    model: Annotated[
        str | None, typer.Option(help="Stored model, folder or hub id; with --server its name there.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    tier: SomeTier = None,
    protocol: Annotated[str | None, typer.Option(help="Rules to play by: a file of configs/protocols/ENV/.")] = None,
    task_set: Annotated[
        str | None,
        typer.Option("--task-set", "--split", help="Task set to play (NAME/SPLIT). Default: the test set."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("-n", min=1, help="Tasks to play. Default: all, or the protocol's.")
    ] = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Attempts at each task. Default: 1, or the tier's.")] = None,
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
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's last checkpoint, or any model in an environment. Re-run to resume.

    The model acts alone, without reflection or guidance. Results of a run on another task set than its test set go to
    RUN_DIR/evaluations. An environment is played as in `--tier`: by default smol for published question sets (gsm8k,
    math500, minerva, olympiadbench, amc23, aime24, dapo: one attempt at temperature 0), nano for the others. With
    `--protocol` it is played by the rules of a published evaluation (docs/endpoints.md#protocols).

    Example: `r3l evaluate results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`

    Example: `r3l evaluate alfworld --server http://localhost:8000 --protocol react -n 20`

    Example: `r3l evaluate gsm8k --model Qwen/Qwen2.5-1.5B-Instruct --set env_settings.options.ask=boxed`
    """
    asked = _Asked(server, model, dialog, tokenizer, request or [], deadline, batch)
    if not server:
        local = {str(option.name) for option in ctx.command.params} - SERVER_ONLY
        refuse_unused(ctx, "a model of this machine (without --server)", local)
    if Path(target).is_dir() or "/" in target:
        used = {"task_set", *(OF_AGENT if server else ())}
        refuse_unused(ctx, "a run, which is played as its manifest says", used)
        asked.check_there()
        _play_run(Path(target), task_set, asked, as_json)
        return
    refuse_unused(ctx, "an environment", OF_ENVIRONMENT | OF_AGENT)
    asked.check_there()
    from r3l.config import EnvConfig, load  # takes seconds
    from r3l.config.protocol import load_protocol

    config = load("envs", target, EnvConfig)
    if not (model or server):
        raise ConfigError(f"say what plays {target}: --model NAME, --server URL, or both")
    given = {
        "protocol": protocol,
        TEST_TASK_SET: task_set,
        "evaluation.tasks": tasks,
        "evaluation.episodes_per_task": repeat,
    }
    changes = [f"{key}={value}" for key, value in given.items() if value is not None]
    each_once([*changes, *(overrides or ())])
    tier = tier or (load_protocol(target, protocol).config.tier if protocol else _default_tier(config))
    _play(tier, target, seed, [*changes, *(overrides or ())], asked, out, as_json)


def _default_tier(config: EnvConfig) -> str:
    """nano; of an environment that is named after a published set (gsm8k) the tier that plays this set."""
    published = "smol" in config.tiers and config.tiers["smol"].test_task_set == f"{config.env}/test"
    return "smol" if published else "nano"


@dataclass(frozen=True)
class _Asked:
    """What plays or answers: a model of this machine, or one at a server, and how that is asked."""

    server: str | None
    model: str | None
    dialog: str
    tokenizer: str | None
    request: list[str]
    deadline: float
    batch: int | None

    def check_there(self) -> None:
        """Refuse a server that is not there before anything is imported that takes seconds."""
        from r3l.endpoint.options import EndpointOptions

        if self.server:
            EndpointOptions(self.server, "").check_there()

    def agent(self, tokenizer: str | None = None) -> ServedAgent:
        """The model at the server; without a name the only one there. ``tokenizer``: where none is given."""
        from r3l.endpoint.client import about_model, only_model
        from r3l.endpoint.options import EndpointOptions
        from r3l.evaluation.agents import Dialog, ServedAgent

        check_known("dialog", self.dialog, set(Dialog))
        fields = dict(map(_field, self.request))
        options = EndpointOptions(str(self.server), self.model or "", self.batch or CONCURRENCY, self.deadline, fields)
        if self.model is None:
            options = replace(options, model=asyncio.run(only_model(options)))
        about = asyncio.run(about_model(options))
        return ServedAgent(options, Dialog(self.dialog), self.tokenizer or tokenizer, about)


def _play_run(run_dir: Path, task_set: str | None, asked: _Asked, as_json: bool) -> None:
    """Evaluate a run with its last checkpoint, or with a server that has it."""
    from r3l.api.running import check_run_dir
    from r3l.evaluation.evaluate import checkpoint_of

    check_run_dir(run_dir)
    agent = asked.agent(checkpoint_of(run_dir)) if asked.server else None
    _evaluate_and_print(run_dir, task_set, agent, as_json)


def _play(tier: str, env: str, seed: int, changes: list[str], asked: _Asked, out: Path | None, as_json: bool) -> None:
    """Play the test tasks with a model as it is: a zero-shot run, of this machine or of a server."""
    from r3l.api.running import place_of
    from r3l.config import Variant
    from r3l.evaluation.agents import begin_served_run, model_named
    from r3l.runs.dialogs import try_dialogs

    row = Variant("zero_shot", tuple(changes))
    if asked.server is None:
        from r3l.local.engine import train

        batch = [] if asked.batch is None else [f"evaluation.batch={asked.batch}"]
        run = resolve_run(tier, env, row.name, seed, asked.model, batch)
        where = out or place_of(run)
        run.fingerprint()  # an unknown task set is an error now, before there is a directory
        train(run, where)
        _evaluate_and_print(where, None, None, as_json)
        return
    agent = asked.agent()
    run = resolve_run(tier, env, row.changed(engine="server").name, seed, model_named(agent.endpoint.model))
    run = run.model_copy(update={"served": agent.digits})
    where = out or place_of(run)
    if renderer := agent.renderer(run):
        try_dialogs(run, renderer)  # a chat template that cannot be used is an error now, before there is a directory
    begin_served_run(run, where, agent)
    _evaluate_and_print(where, None, agent, as_json)


def _evaluate_and_print(run_dir: Path, task_set: str | None, agent: ServedAgent | None, as_json: bool) -> None:
    from r3l.api.running import evaluate_run
    from r3l.evaluation import stored_runs
    from r3l.evaluation.circumstances import summary
    from r3l.runs.manifest import run_of
    from r3l.runs.places import EVALUATION, evaluation_folder

    run = run_of(run_dir)
    evaluation = evaluate_run(run_dir, task_set, agent)
    where = evaluation_folder(run_dir, evaluation["task_set"]["name"], run.env_settings.test_task_set)
    line = f"{summary(evaluation, run.env_settings.max_turns)}\nin {where}"
    if where == run_dir and agent is None and not as_json:
        line += f"; {_beside_stored(where / EVALUATION)}; next: {_next(run, run_dir, stored_runs.folder())}"
    print_result(evaluation, as_json, line)


def _beside_stored(evaluation: Path) -> str:
    from r3l.evaluation.stored_runs import ARCHIVE, folder
    from r3l.report.reproduction import sentence

    if not folder().is_dir():
        return f"the stored runs are not here (r3l stored fetch {ARCHIVE})"
    return sentence(evaluation, folder())


def _next(run: Run, run_dir: Path, stored: Path) -> str:
    """The command that compares the run with stored ones, where it would find both; else the one that shows it."""
    from r3l.api.running import place_of

    if run_dir.resolve() != place_of(run).resolve() or not (stored / run.tier / run.env).is_dir():
        return f"r3l report {run_dir}"
    return offline_command(run.method, run.tier, [run.env])


def _field(text: str) -> tuple[str, Any]:
    """``top_p=0.9`` -> (``top_p``, 0.9); what is not JSON is text."""
    from r3l.config.variant import check_override

    check_override(text)
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
