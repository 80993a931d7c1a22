"""Evaluations of `r3l evaluate` in environments: their options, their runs, and playing them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from r3l.api.running import default_run_dir
from r3l.cli.arguments import each_once
from r3l.cli.model_source import DEADLINE, ModelSource
from r3l.config import EnvConfig, Run, Strict, Variant, environment_of, load, resolve, stored_model, validate
from r3l.config.protocol import PAPER, load_protocol, protocols
from r3l.config.tier import TierSettings
from r3l.core.errors import ConfigError, R3LError
from r3l.evaluation.curve import check_curve
from r3l.evaluation.episodes import Evaluation, unusable
from r3l.evaluation.protocols import select_tasks
from r3l.evaluation.served_model import (
    Dialog,
    ServedModel,
    begin_served_run,
    check_served_owner,
    model_named,
)
from r3l.evaluation.verification import check_signed
from r3l.files.json_files import read_json
from r3l.files.yaml_files import read_yaml
from r3l.runs.result import finished_result
from r3l.runs.run_dir import EVALUATION, check_owner, is_evaluated, recorded_fingerprint
from r3l.runs.run_paths import TRANSCRIPTS

log = logging.getLogger(__name__)
# The folder of an evaluation, and its evaluation.json with examples.
ScoredEvaluation = tuple[Path, Mapping[str, Any]]
ALL = "all"  # protocols of the environment
OF_SFT = "sft.json"  # is in the folder of a model that this project made


class EvaluationRequest(Strict):
    """The options of one evaluation, as `r3l evaluate` or a line of a file gives them; None: not given.

    ``n``: number of tasks. ``repeat``: episodes of each. ``set``: changes of settings, ``key=value``.
    ``batch``, ``dialog``, ``tokenizer``, ``request`` and ``deadline`` say how a model is called, mostly one
    behind ``server``: :class:`r3l.cli.model_source.ModelSource`.
    """

    env: str
    model: str | None = None
    server: str | None = None
    tier: str | None = None
    protocol: str | None = None
    task_set: str | None = None
    n: int | None = Field(None, ge=1)
    repeat: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    set: list[str] = []
    batch: int | None = Field(None, ge=1)
    dialog: str = "messages"
    tokenizer: str | None = None
    request: list[str] = []
    deadline: float = Field(DEADLINE, ge=1)

    def changes(self) -> list[str]:
        """The ``key=value`` changes of the run that task set, numbers and ``set`` make, without the protocol.

        Raises ConfigError if a key is set twice.
        """
        given = {
            "env_settings.test_task_set": self.task_set,
            "evaluation.tasks": self.n,
            "evaluation.episodes_per_task": self.repeat,
        }
        changes = [f"{key}={value}" for key, value in given.items() if value is not None]
        return each_once([*changes, *self.set]) or []

    def rules(self, env: EnvConfig, model: str) -> tuple[str, list[str]]:
        """The tier of the run, and all of its changes, ``protocol=NAME`` first if it plays by one.

        By default a model that this project made plays tier nano, for which it was made. Any other model
        plays by the paper's protocol, or by the environment's only one; without protocols, the smallest tier
        with published data.
        """
        # Tiers with published data first. A model that this project made knows the data of tier nano.
        known_tiers: tuple[str, ...] = ("smol", "paper", "nano")
        made_here = stored_model(model) is not None or (Path(model) / OF_SFT).is_file()
        if made_here:
            known_tiers = ("nano", "smol", "paper")
        tiers = [tier for tier in known_tiers if tier in env.tiers] or [*env.tiers]

        # The protocol: the one given, else the default of any other model.
        protocol = self.protocol
        if protocol is None and self.tier is None and not made_here:
            known_protocols = protocols(env.env)
            if PAPER in known_protocols:
                protocol = PAPER
            elif len(known_protocols) == 1:
                protocol = known_protocols[0]
        if protocol is None:
            return self.tier or tiers[0], self.changes()
        tier = self.tier or load_protocol(env.env, protocol).config.tier
        return tier, [f"protocol={protocol}", *self.changes()]


class PlannedEvaluation(NamedTuple):
    """An evaluation that is planned: a run of method ``zero_shot``, which trains nothing, and its directory.

    ``served``: the model behind a server; None: a local one.
    """

    run: Run
    run_dir: Path
    served: ServedModel | None

    @property
    def content(self) -> tuple[str, Mapping[str, str]]:
        """The run's fingerprint and the served model's identity: equal ones mean the same evaluation."""
        return self.run.fingerprint(), self.served.identity if self.served else {}

    def play(self) -> ScoredEvaluation:
        """Play the episodes that are missing, and write evaluation.json in the directory.

        A finished evaluation is returned as it is. Raises DataError if one of its files has changed since.
        """
        from r3l.local.engine import train

        if self.served:
            begin_served_run(self.run, self.run_dir, self.served)
        if self.is_played():
            check_signed(self.run_dir)
            log.warning(
                "%s was played before; delete it, or name another --out, to play it again", self.run_dir
            )
            return _with_examples(self.run_dir, read_json(self.run_dir / EVALUATION, Evaluation))
        if not self.served:
            train(self.run, self.run_dir)
        return score_run(self.run_dir, None, self.served)

    def check(self) -> None:
        """Raise the error that :meth:`play` would raise before its first episode; writes nothing.

        For example, another run is in the directory, packages or tasks are missing, or the chat template
        cannot be used.
        """
        from r3l.local.checkpoint import check_template

        if self.served:
            check_served_owner(self.run, self.run_dir, self.served)
        if self.is_played():
            return
        package = environment_of(self.run.env)
        package.check_installed()
        tasks = package.tasks(self.run.env_settings.test_task_set)
        select_tasks(self.run, tasks)
        if not self.served:
            if finished_result(self.run, self.run_dir) is None:  # else its evaluation resumes
                check_owner(self.run_dir, self.run)
            check_template(self.run)

    def episodes(self) -> int:
        """Number of episodes of the complete evaluation: tasks times episodes of each."""
        tasks = environment_of(self.run.env).tasks(self.run.env_settings.test_task_set)
        return len(select_tasks(self.run, tasks)) * self.run.evaluation.episodes_per_task

    def is_played(self) -> bool:
        """Whether its directory has a finished evaluation of a run with the same fingerprint."""
        return is_evaluated(self.run_dir) and recorded_fingerprint(self.run_dir) == self.run.fingerprint()


def plan_evaluation(entry: EvaluationRequest, out: Path | None = None) -> PlannedEvaluation:
    """Resolve and check an evaluation; its directory is ``out``, or by default the run's own under results/.

    Raises an R3LError for any mistake in it, before a directory is made: ConfigError for unknown
    names, a server that does not answer or a chat template that cannot be used, DataError for missing tasks.
    """
    from r3l.runs.check_chat_template import try_dialogs

    env = load("envs", entry.env, EnvConfig)
    if not (entry.model or entry.server):
        raise ConfigError(f"name the model that plays {entry.env}: --model NAME, --server URL, or both")
    source = ModelSource(**{field: getattr(entry, field) for field in ModelSource.__dataclass_fields__})
    source.check()
    served = source.served_model() if entry.server else None
    model = model_named(served.endpoint.model) if served else str(entry.model)
    tier, changes = entry.rules(env, model)

    # Changes that decide the score are part of the row's name; how the machine computes (threads, workers)
    # is not.
    of_machine = TierSettings.model_fields.keys() - {"engine", "prompts", "samples", "compute"}
    named = [change for change in changes if change.partition("=")[0] not in of_machine]
    others = [change for change in changes if change not in named]
    if served:
        named.append("engine=server")
    elif entry.batch is not None:  # of a server, the number of requests at the same time
        others.insert(0, f"evaluation.batch={entry.batch}")
    run = resolve(tier, env.env, Variant("zero_shot", tuple(named)).name, entry.seed, model, others)
    if served:
        run = run.model_copy(update={"served": served.short_hash})

    # Check what can be wrong before anything is played.
    renderer = served.renderer(run) if served else None
    if served and renderer:
        try_dialogs(run, renderer, served.dialog is Dialog.MESSAGES)  # finds an unusable chat template
    run.fingerprint()  # finds an unknown task set
    check_curve(run)
    check_published(run)
    plan = PlannedEvaluation(run, out or default_run_dir(run), served)
    plan.check()
    return plan


def check_published(run: Run) -> None:
    """Raise DataError if the published scores under the run's protocol cannot be read.

    They are printed below the run's own score; this is called before anything is played. Nothing happens for
    a run without a protocol.
    """
    if run.protocol is not None:
        from r3l.report.protocol_scores import cited_scores

        cited_scores(run.env, run.protocol)


def read_file(path: Path, options: Mapping[str, Any]) -> list[PlannedEvaluation]:
    """Plan the evaluations of a YAML file (docs/endpoints.md); ``options`` are the defaults of its lines.

    Of ``set`` and ``request``, lists of ``key=value``, each key has its own default.

    Raises ConfigError, with the line, for the first that cannot be played, and for two that would write
    different evaluations into one folder.
    """
    content = read_yaml(path)
    lines = content.get("evaluations")
    if set(content) != {"evaluations"} or not isinstance(lines, list) or not lines:
        raise ConfigError(
            f"{path}: its only key must be 'evaluations', a list such as [{{env: gsm8k, n: 100}}]"
        )
    plans: list[PlannedEvaluation] = []
    for k, line in enumerate(lines):
        place = f"{path}, evaluations.{k}"
        if not isinstance(line, dict):
            raise ConfigError(f"{place} has value {line!r}; write options, such as {{env: gsm8k, n: 100}}")
        entry = validate(EvaluationRequest, {**options, **line}, place)
        merged = {key: _added(getattr(entry, key), options[key]) for key in ("set", "request")}
        entry = entry.model_copy(update=merged)
        try:
            plan = plan_evaluation(entry)
        except R3LError as error:
            raise ConfigError(f"{place}: {error}") from error

        # Requests to a server are not part of its folder's name.
        for before, other in enumerate(plans):
            if other.run_dir == plan.run_dir and other.content != plan.content:
                raise ConfigError(
                    f"{place} would be written into the folder of evaluations.{before}, {plan.run_dir}, with "
                    "other requests or settings; evaluate it in a separate command, with --out"
                )
        plans.append(plan)
    return plans


def _added(changes: list[str], defaults: list[str]) -> list[str]:
    """``changes`` (``key=value``), after those of ``defaults`` whose key they do not set."""
    keys = {change.partition("=")[0] for change in changes}
    return [*(default for default in defaults if default.partition("=")[0] not in keys), *changes]


def several_protocols(entry: EvaluationRequest) -> list[str]:
    """The protocols to compare, each once: the names in ``NAME,NAME``, or for ``all`` the environment's.

    [] if the request has one protocol or none. Raises ConfigError for ``all`` if the environment has none.
    """
    if entry.protocol == ALL:
        names = protocols(load("envs", entry.env, EnvConfig).env)
        if not names:
            raise ConfigError(f"environment {entry.env!r} has no protocols; leave out --protocol")
        return names
    names = list(dict.fromkeys((entry.protocol or "").split(",")))
    return names if len(names) > 1 else []


def score_run(run_dir: Path, task_set: str | None, served: ServedModel | None) -> ScoredEvaluation:
    """Evaluate a run in its directory, with a server's model if ``served`` is given; plays what is missing.

    ``task_set``: None for the run's own test task set. Returns the folder of the evaluation's files (the
    run's, or one below it for another task set), and the content of evaluation.json with examples.
    """
    from r3l.api.running import evaluate_run
    from r3l.runs.manifest import run_of
    from r3l.runs.run_paths import evaluation_folder

    run = run_of(run_dir)
    evaluation = evaluate_run(run_dir, task_set, served)
    where = evaluation_folder(run_dir, evaluation["task_set"]["name"], run.env_settings.test_task_set)
    return _with_examples(where, evaluation)


def _with_examples(where: Path, evaluation: Mapping[str, Any]) -> ScoredEvaluation:
    """Add examples of responses that could not be used, for readers who ask why."""
    examples = unusable(where / TRANSCRIPTS)
    return where, {**evaluation, "examples": examples} if examples else evaluation
