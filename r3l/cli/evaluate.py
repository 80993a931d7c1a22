"""The verb that evaluates runs, models and servers: `r3l evaluate`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import RESULTS, AsJson, Seed, each_once, listed, output, resolve_run
from r3l.cli.compare import offline_command
from r3l.cli.printing import console, pairs, print_result
from r3l.core.errors import ConfigError, check_known
from r3l.files.names import folder_name

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.envs.base.package import BenchmarkOptions
    from r3l.evaluation.agents import ServedAgent

TEST, TEMPERATURE, MAX_TOKENS = "env_settings.test_task_set", "evaluation.temperature", "sampling.max_tokens"
CONCURRENCY = 16  # dialogs at once; our choice
DEADLINE = 600.0  # seconds; 4,096 tokens of a slow server under load take minutes


def evaluate(
    run_dir: Annotated[Path | None, typer.Argument(help="Directory of a finished training run.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment to play; with --set, whose sets (math).")] = None,
    model: Annotated[
        str | None, typer.Option(help="Stored model, folder, hub id; with --server its name there.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    tier: Annotated[str, typer.Option(help="With --env: whose test tasks, prompts and limits.")] = "nano",
    task_set: Annotated[
        str | None, typer.Option(help="Another one than the test task set (a run: RUN_DIR/evaluations).")
    ] = None,
    seed: Seed = 0,
    temperature: Annotated[float | None, typer.Option(min=0, help="Default: the tier's, the protocol's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of one response. Default: as above.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Dialogs at once. Default: 16; of a local model the tier's.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(callback=each_once, help="With --env: KEY=VALUE of the run, as `r3l train --set`."),
    ] = None,
    dialog: Annotated[str, typer.Option(help="What a server is sent: messages, or tokens (vLLM).")] = "messages",
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or hub id, for --dialog tokens. Default: the model's.")
    ] = None,
    request: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE (JSON) in every request, null: without; repeatable.")
    ] = None,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that a server has for one response.")] = DEADLINE,
    sets: Annotated[str | None, typer.Option("--set", help="Question sets, by commas: gsm8k,math500.")] = None,
    protocol: Annotated[str, typer.Option(help="standard (one attempt) or r3l_released (three, oracle).")] = "standard",
    prompt: Annotated[str, typer.Option(help="How standard asks for the answer: boxed or tags.")] = "boxed",
    oracle: Annotated[str, typer.Option(help="Who judges in r3l_released: ours or released.")] = "ours",
    data: Annotated[Path | None, typer.Option(help="Folder of problem sets. Default: $R3L_MATH.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N items of each set.")] = None,
    out: Annotated[
        Path | None, output("Default: results/CELL/seedN, or results/evaluations/ENV/MODEL/...", folder=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the test tasks with a run's last checkpoint, any model, or a server; or put question sets to a model.

    No reflection, no guidance. The same command goes on where it was stopped.

    Example: `r3l evaluate results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0`

    Example: `r3l evaluate --env alfworld --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`

    Example: `r3l evaluate --set gsm8k,math500 --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`
    """
    asked = _Asked(server, model, dialog, tokenizer, request or [], deadline, batch)
    changes = _changes({TEST: task_set, TEMPERATURE: temperature, MAX_TOKENS: max_tokens}) + (override or [])
    if sets is not None and run_dir is None and (model or server):
        from r3l.envs.base.package import BenchmarkOptions

        options = BenchmarkOptions(protocol, prompt, oracle, data)
        questions = _Questions(env or "math", listed(sets, "--set") or [], options, limit, temperature, max_tokens)
        _put_questions(questions, asked, seed, out, as_json)
    elif run_dir is not None and sets is None:
        _refuse_unused(temperature, max_tokens, override, None if server else model, None if server else batch)
        _play_run(run_dir, task_set, asked, as_json)
    elif env is not None and sets is None and (model or server):
        _play(tier, env, seed, changes, asked, out, as_json)
    else:
        raise ConfigError(
            "give the directory of a run (r3l evaluate RUN_DIR), an environment or question sets and what plays or "
            "answers them (r3l evaluate --env alfworld --model PATH, or --set gsm8k --server URL --model NAME)"
        )


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

    def agent(self, tokenizer: str | None = None) -> ServedAgent:
        """The model at the server; without a name the only one there. ``tokenizer``: where none is given."""
        from r3l.endpoint.client import only_model
        from r3l.endpoint.options import EndpointOptions
        from r3l.evaluation.agents import Dialog, ServedAgent

        check_known("dialog", self.dialog, set(Dialog))
        fields = dict(map(_field, self.request))
        options = EndpointOptions(str(self.server), self.model or "", self.batch or CONCURRENCY, self.deadline, fields)
        if self.model is None:
            options = replace(options, model=asyncio.run(only_model(options)))
        return ServedAgent(options, Dialog(self.dialog), self.tokenizer or tokenizer)


@dataclass(frozen=True)
class _Questions:
    env: str
    sets: list[str]
    options: BenchmarkOptions
    limit: int | None
    temperature: float | None
    max_tokens: int | None


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

    row = Variant("zero_shot", tuple(changes))
    if asked.server is None:
        from r3l.local.engine import train

        batch = [] if asked.batch is None else [f"evaluation.batch={asked.batch}"]
        run = resolve_run(tier, env, row, seed, asked.model, batch, None)
        where = out or place_of(run)
        run.fingerprint()  # an unknown task set is an error now, before there is a directory
        train(run, where)
        _evaluate_and_print(where, None, None, as_json)
        return
    agent = asked.agent()
    row = row.changed(engine="server")
    run = resolve_run(tier, env, row, seed, model_named(agent.endpoint.model), None, None)
    where = out or place_of(run)
    begin_served_run(run, where, agent)
    _evaluate_and_print(where, None, agent, as_json)


def _evaluate_and_print(run_dir: Path, task_set: str | None, agent: ServedAgent | None, as_json: bool) -> None:
    from r3l.api.running import evaluate_run
    from r3l.runs import stored_archive
    from r3l.runs.manifest import run_of
    from r3l.runs.places import EVALUATION, evaluation_folder

    run = run_of(run_dir)
    evaluation = evaluate_run(run_dir, task_set, agent)
    where = evaluation_folder(run_dir, evaluation["task_set"]["name"], run.env_settings.test_task_set)
    scores = {group: values["success"] for group, values in evaluation["groups"].items()}
    line = f"{evaluation['cell']} seed {evaluation['seed']}: success {pairs(scores)}; in {where}"
    if where == run_dir and agent is None and not as_json:
        line += f"\n{_beside_stored(where / EVALUATION)}; next: {_next(run, run_dir, stored_archive.folder())}"
    print_result(evaluation, as_json, line)


def _beside_stored(evaluation: Path) -> str:
    from r3l.report.comparison.reproduction import sentence
    from r3l.runs.stored_archive import ARCHIVE, folder

    if not folder().is_dir():
        return f"the stored runs are not here (r3l stored fetch {ARCHIVE})"
    return sentence(evaluation, folder())


def _next(run: Run, run_dir: Path, stored: Path) -> str:
    """What compares the run with stored ones, where that would find both, else what shows it."""
    from r3l.api.running import place_of

    if run_dir.resolve() != place_of(run).resolve() or not (stored / run.tier / run.env).is_dir():
        return f"r3l report {run_dir}"
    return offline_command(run.method, run.tier, [run.env])


def _put_questions(questions: _Questions, asked: _Asked, seed: int, out: Path | None, as_json: bool) -> None:
    from r3l.config import environment_of
    from r3l.evaluation import benchmarks
    from r3l.evaluation.models import local_model, served_model
    from r3l.local.checkpoint import find
    from r3l.report.render import to_terminal
    from r3l.report.tables.benchmarks import scores_table

    env = questions.env
    if not asked.server:
        find(str(asked.model))
    with environment_of(env).benchmark(questions.options) as benchmark:
        for name in questions.sets:
            benchmark.items(name)  # a wrong name is an error now, not after the model has loaded
        sampling_temperature = benchmark.temperature if questions.temperature is None else questions.temperature
        length = questions.max_tokens or benchmark.max_tokens
        if asked.server:
            answerer = served_model(asked.agent(), sampling_temperature, length)
        else:
            answerer = local_model(str(asked.model), sampling_temperature, length, asked.batch or CONCURRENCY)
        settings = "-".join(map(str, benchmark.settings.values()))  # standard-boxed
        called = folder_name("model", answerer.name.replace("/", "--"))
        where = out or RESULTS / "evaluations" / env / called / settings / f"seed{seed}"
        scores = benchmarks.evaluate_sets(benchmark, answerer, questions.sets, where, seed, questions.limit)
    if as_json:
        print(json.dumps(scores, sort_keys=True))
    else:
        console().print(to_terminal(scores_table(scores)))
        print(f"every reply and grade: {where / 'items.jsonl'}")


def _refuse_unused(*unused: object) -> None:
    """A finished run is played as its manifest says."""
    if any(value is not None for value in unused):
        raise ConfigError(
            "RUN_DIR is played as its manifest says: leave out --temperature, --max-tokens, --override, and without "
            "--server --model and --batch; or play a model by its path: r3l evaluate --env ENV --model PATH"
        )


def _changes(values: Mapping[str, object]) -> list[str]:
    """As overrides of a run; None changes nothing."""
    return [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in values.items()
        if value is not None
    ]


def _field(text: str) -> tuple[str, Any]:
    """``top_p=0.9`` -> (``top_p``, 0.9); what is no JSON is text."""
    from r3l.config.variant import check_override

    check_override(text)
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
