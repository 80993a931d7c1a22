"""What `r3l evaluate` plays in environments: one evaluation, several of a file, one model by several protocols."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from r3l.api.running import place_of
from r3l.cli.arguments import each_once, resolve_run
from r3l.cli.model_source import DEADLINE, SERVER_ONLY, Asked
from r3l.config import EnvConfig, Run, Strict, Variant, load, stored_model, validate
from r3l.config.protocol import PAPER, load_protocol, protocols
from r3l.config.tier import TierSettings
from r3l.core.errors import ConfigError, R3LError
from r3l.evaluation.agents import ServedAgent, begin_served_run, model_named
from r3l.evaluation.episodes import unusable
from r3l.evaluation.verification import check_signed
from r3l.files.json_files import read_json
from r3l.files.yaml_files import read_yaml
from r3l.runs.run_dir import EVALUATION, recorded_fingerprint
from r3l.runs.run_paths import TRANSCRIPTS

log = logging.getLogger(__name__)
Scored = tuple[Path, dict[str, Any]]  # the folder of an evaluation, and what its evaluation.json holds, with examples
ALL = "all"  # protocols
OF_SFT = "sft.json"  # in the folder of a model that this project made


class Evaluation(Strict):
    """An environment and the options of the command."""

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
        """Overrides beside the protocol."""
        given = {
            "env_settings.test_task_set": self.task_set,
            "evaluation.tasks": self.n,
            "evaluation.episodes_per_task": self.repeat,
        }
        return each_once([*(f"{key}={value}" for key, value in given.items() if value is not None), *self.set]) or []

    def rules(self, env: EnvConfig, model: str) -> tuple[str, list[str]]:
        """Tier and all overrides. By default a model that this project made plays tier nano, which is made for it,
        and any other one the protocol of the paper, or the only one that there is, or the smallest tier on published
        data."""
        known: tuple[str, ...] = ("smol", "paper", "nano")
        tiers = [tier for tier in known if tier in env.tiers] or [*env.tiers]
        protocol, there = self.protocol, protocols(env.env)
        if stored_model(model) or (Path(model) / OF_SFT).is_file():
            tiers = ["nano", *tiers] if "nano" in tiers else tiers
        elif self.tier is None and protocol is None and (PAPER in there or len(there) == 1):
            protocol = PAPER if PAPER in there else there[0]
        if protocol is None:
            return self.tier or tiers[0], self.changes()
        return self.tier or load_protocol(env.env, protocol).config.tier, [f"protocol={protocol}", *self.changes()]


class Planned(NamedTuple):
    """A zero-shot run of a model as it is, on this machine or at a server."""

    run: Run
    run_dir: Path
    agent: ServedAgent | None

    def play(self) -> Scored:
        """Play what is not played yet; a finished evaluation stands as it is."""
        from r3l.local.engine import train

        if self.agent:
            begin_served_run(self.run, self.run_dir, self.agent)
        if done := self._done():
            return done
        if not self.agent:
            train(self.run, self.run_dir)
        return scored(self.run_dir, None, self.agent)

    def _done(self) -> Scored | None:
        """What an earlier command has finished. Raises DataError where it was changed since."""
        file = self.run_dir / EVALUATION
        if not file.is_file() or recorded_fingerprint(self.run_dir) != self.run.fingerprint():
            return None
        check_signed(self.run_dir)
        log.warning("%s was played before; delete it, or name another --out, to play it again", self.run_dir)
        return _with_examples(self.run_dir, read_json(file))


def planned(asked: Evaluation, out: Path | None = None) -> Planned:
    """Everything that is wrong with an evaluation is an error here, before there is a directory."""
    from r3l.local.checkpoint import check_template
    from r3l.runs.check_chat_template import try_dialogs

    env = load("envs", asked.env, EnvConfig)
    if not (asked.model or asked.server):
        raise ConfigError(f"say what plays {asked.env}: --model NAME, --server URL, or both")
    of_server = [key for key in SERVER_ONLY if getattr(asked, key) != Evaluation.model_fields[key].default]
    if of_server and not asked.server:
        raise ConfigError(f"only a server takes {', '.join(sorted(of_server))}; name one, or leave that out")
    if asked.server:
        agent = Asked(*(getattr(asked, key) for key in Asked.__dataclass_fields__)).agent()
        model, further, batch = model_named(agent.endpoint.model), {"engine": "server"}, []
    else:
        agent, model, further = None, str(asked.model), {}
        batch = [] if asked.batch is None else [f"evaluation.batch={asked.batch}"]
    tier, changes = asked.rules(env, model)
    of_machine = [change for change in changes if _of_machine(change.partition("=")[0])]
    named = tuple(change for change in changes if change not in of_machine)
    method = Variant("zero_shot", named).changed(**further).name
    run = resolve_run(tier, env.env, method, asked.seed, model, [*batch, *of_machine])
    if agent:
        run = run.model_copy(update={"served": agent.digits})
        if renderer := agent.renderer(run):
            try_dialogs(run, renderer)  # a chat template that cannot be used
    run.fingerprint()  # an unknown task set
    run_dir = out or place_of(run)
    if not (agent or run_dir.is_dir()):
        check_template(run)
    return Planned(run, run_dir, agent)


def _of_machine(key: str) -> bool:
    """Whether a key says how a machine computes (threads, workers, device, ...), which no name of a row has."""
    return key in TierSettings.model_fields and key not in ("engine", "prompts", "samples", "compute")


def of_file(path: Path, options: Mapping[str, Any]) -> list[Planned]:
    """The evaluations of a YAML file (docs/endpoints.md); ``options`` hold where a line sets none."""
    lines = read_yaml(path)
    if set(lines) != {"evaluations"} or not isinstance(lines["evaluations"], list) or not lines["evaluations"]:
        raise ConfigError(f"{path}: its only key must be 'evaluations', a list such as [{{env: gsm8k, n: 100}}]")
    plans = []
    for k, line in enumerate(lines["evaluations"]):
        place = f"{path}, evaluations.{k}"
        if not isinstance(line, dict):
            raise ConfigError(f"{place} has value {line!r}; write options, such as {{env: gsm8k, n: 100}}")
        asked = validate(Evaluation, {**options, **line}, place)
        try:
            plans.append(planned(asked))
        except R3LError as error:
            raise ConfigError(f"{place}: {error}") from error
    return plans


def several_protocols(asked: Evaluation) -> list[str]:
    """Their names, where it is asked for all or for more than one (NAME,NAME)."""
    if asked.protocol != ALL:
        several = list(dict.fromkeys((asked.protocol or "").split(",")))
        return several if len(several) > 1 else []
    names = protocols(load("envs", asked.env, EnvConfig).env)
    if not names:
        raise ConfigError(f"environment {asked.env!r} has no protocols; leave out --protocol")
    return names


def by_protocol(asked: Evaluation, names: Sequence[str], out: Path | None) -> list[Planned]:
    """The same by each of these protocols."""
    return [planned(asked.model_copy(update={"protocol": name}), out and out / name) for name in names]


def scored(run_dir: Path, task_set: str | None, agent: ServedAgent | None) -> Scored:
    from r3l.api.running import evaluate_run
    from r3l.runs.manifest import run_of
    from r3l.runs.run_paths import evaluation_folder

    run = run_of(run_dir)
    evaluation = evaluate_run(run_dir, task_set, agent)
    where = evaluation_folder(run_dir, evaluation["task_set"]["name"], run.env_settings.test_task_set)
    return _with_examples(where, evaluation)


def _with_examples(where: Path, evaluation: dict[str, Any]) -> Scored:
    """With responses that could not be used, for whoever asks why."""
    examples = unusable(where / TRANSCRIPTS)
    return where, evaluation | ({"examples": examples} if examples else {})
