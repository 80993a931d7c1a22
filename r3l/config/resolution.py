"""Resolving names into a Run: four layers, each merged over the one below.

1. **Tier**, ``configs/tiers/TIER.yaml``: engine, base checkpoint and every number of training, sampling and
evaluation.
2. **Environment**, ``configs/envs/ENV.yaml`` under ``tiers.TIER``: task sets, turns, base checkpoint, the
   engine's options, and under ``set`` its changes to the tier. ``profiles`` add options. A base checkpoint
   of ``configs/models`` that needs other values in the tier (a thinking model trains turns) has them under
   ``set`` too.
3. **Method**, ``configs/methods/METHOD.yaml``: its ``settings``, then those of the ``profile``, of each
   ``where`` entry that holds, of the tier, and the tuned learning rate. A method that ``extends`` another is
   a layer over all of it. A key without a dot is the method's own, one with a dot is the run's
   (``train.sync_interval``). Below the method, if the run has one: the **protocol**,
   ``configs/protocols/ENV/NAME.yaml``, which sets everything that decides an evaluation's score.
4. **--set KEY=VALUE**: the changes of the row (``r3l@alpha=5``), then those of the command line. In both a
   key without a dot is the method's setting if the method declares it (``alpha``), else a key of the run
   (``threads``).

The lowest layer is the defaults that the code declares (r3l.core.option), so that files hold only what
differs. A tuned learning rate holds for the profile ``paper`` and the environment's usual base checkpoint,
for which it was chosen; with another one the tier's rate does. ``explained`` lists every value of a run with
the layer that sets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import isdir
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from r3l.config.environment import EnvConfig, EnvSettings, environment_of
from r3l.config.files import (
    OWN,
    explain,
    find_class,
    flat,
    is_own,
    key_paths,
    load,
    names,
    own_folders,
    validate,
)
from r3l.config.method import (
    RATE,
    Scope,
    Variant,
    check_change,
    load_method,
    method_files,
    method_label,
    profile_of,
    settings_in,
    source_in,
    tuned_rate,
    variant,
)
from r3l.config.model import HUB_ID, ClusterConfig, ModelConfig, as_path, find_model, stored_model
from r3l.config.protocol import load_protocol
from r3l.config.run import Run, feedback_source
from r3l.config.tier import TierConfig, TierSettings
from r3l.config.user_code import user_code
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError, did_you_mean
from r3l.core.option import source_of
from r3l.feedback.feedback import FeedbackSource

if TYPE_CHECKING:
    from r3l.core.method import Method

CHOSEN_BY = "the tier, environment, model, method and seed (--tier, --env, --model, --method, --seed)"
CHOSEN = {"tier", "label", "env", "model", "served", "seed", "profile"}
CHOSEN |= {"method", "method_label", "method_code", "own_code"}
METHOD, ENV = "method_settings.", "env_settings."  # prefixes of keys of a Run
OPTIONS = f"{ENV}options."


class Layer(NamedTuple):
    """Values of a Run, by dotted keys, that one file or the command line sets.

    ``place``: the name of that file or option. ``sources``: one reason for all values, or the ``sources`` of
    the file; there the key without ``prefix`` is looked up in ``section``.
    """

    place: str
    values: dict[str, Any]
    sources: Mapping[str, str] | str
    section: str = ""
    prefix: str = ""

    def source(self, key: str) -> str:
        """The stated reason for the value of a dotted key; '' if there is none."""
        if isinstance(self.sources, str):
            return self.sources
        return source_in(self.sources, self.section + key.removeprefix(self.prefix))


class Explained(NamedTuple):
    """One value of a run, the file or command line that sets it (``place``), and the stated ``source``."""

    key: str
    value: Any
    place: str
    source: str


def resolve(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
    tuned: bool = True,
) -> Run:
    """The run that the files of tier, environment, model and method make, with the user's changes on top.

    ``overrides`` are the ``key=value`` of ``--set``: ``train.steps=3``, ``alpha=5``. ``tuned``: whether tuned
    learning rates are used. Raises ConfigError naming file, key, value and fix.
    """
    row, layers = _layers(tier, env, method, model, overrides, tuned)
    place = f"{tier}/{env}/{row.name}"

    # Merge the layers into nested dictionaries: a value replaces that of a lower layer.
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.values.items():
            *sections, name = key.split(".")
            inside = values
            for section in sections:
                if not isinstance(inside.get(section), dict):
                    inside[section] = {}
                inside = inside[section]
            inside[name] = value

    # Complete the method's settings with its defaults. An error in them is found now, before the model is
    # loaded.
    settings = values.get("method_settings", {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{place}: key 'method_settings' has value {settings!r}; change its keys one by one"
        )
    code = str(method_files(row.method)[-1].code)
    built = method_of(row.name, code, settings)
    values |= {
        "tier": tier,
        "label": load("tiers", tier, TierConfig).label,
        "env": env,
        "method": row.name,
        "method_label": method_label(row),
        "method_code": code,
        "method_settings": dict(built.describe()),
        "profile": profile_of(row),
        "seed": seed,
        "own_code": user_code(env, row.method) if any(map(own_folders, OWN)) else {},
    }
    if isinstance(values.get("protocol"), str):
        values["protocol"] = load_protocol(env, values["protocol"]).identity

    run = validate(Run, values, place)
    package = environment_of(env)
    validate(package.options, run.env_settings.options, f"{env}, env_settings.options")
    _check(run, built)
    named = model or load("envs", env, EnvConfig).in_tier(tier).model
    if not named and is_own("envs", env) and stored_model(run.model):
        raise ConfigError(
            f"environment {env!r} names no base checkpoint for tier {tier}, and the tier's own, {run.model}, was "
            f"taught another environment: its actions would be impossible. Add `model: NAME` under tiers.{tier} "
            f"in {env}.yaml, or give --model"
        )
    return run


def explained(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int = 0,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
) -> list[Explained]:
    """Every value of a run, in the order of Run, with the file or option that sets it.

    Raises as :func:`resolve`.
    """
    run = resolve(tier, env, method, seed, model, overrides)
    _, layers = _layers(tier, env, method, model, overrides)
    values = run.model_dump(mode="json", include={"model", *TierSettings.model_fields, "env_settings"})
    values["env_settings"]["options"] = (
        environment_of(env).options(**run.env_settings.options).model_dump(mode="json")
    )
    values["method_settings"] = run.method_settings
    # The code that declares the defaults, by the beginning of the keys; the last entry has all other keys.
    declared: list[tuple[str, Any]] = [
        (METHOD, find_class("methods", run.method_code).Settings),
        (OPTIONS, environment_of(run.env).options),
        ("", Run),
    ]
    found = []
    for key, value in flat(values).items():
        layer = next((layer for layer in reversed(layers) if key in layer.values), None)
        if layer is not None:
            found.append(Explained(key, value, layer.place, layer.source(key)))
            continue
        prefix, declaring = next(entry for entry in declared if key.startswith(entry[0]))
        *sections, name = key.removeprefix(prefix).split(".")
        for section in sections:
            declaring = declaring.model_fields[section].annotation
        found.append(Explained(key, value, "default", source_of(declaring.model_fields[name])))
    return found


def _layers(
    tier: str,
    env: str,
    method: str | Variant,
    model: str | None,
    overrides: Sequence[str] | None,
    tuned: bool = True,
) -> tuple[Variant, list[Layer]]:
    """The row of a run, and its layers, lowest first; some layers are several files."""
    row, changes = variant(method) if isinstance(method, str) else method, []
    for change in overrides or ():
        if change.startswith("profile="):  # as --method r3l@profile=fair; a second one is an error
            row = variant(row.changed(profile=change.partition("=")[2]).name)
        else:
            changes.append(change)
    in_tier, in_env = load("tiers", tier, TierConfig), load("envs", env, EnvConfig)
    own, profile = in_env.in_tier(tier), profile_of(row)
    usual = own.model or in_tier.model
    base = as_path(model) if model else usual
    above = [
        Layer(row.name, _changes(row, row.changes), "the name of the row"),
        Layer("--set", _changes(row, changes), "the command line"),
    ]

    # 1. The tier, then 2. the environment in it and what the profile adds.
    values = in_tier.model_dump(exclude={"tier", "label", "sources", "tuning"}, exclude_unset=True)
    below = [Layer(f"configs/tiers/{tier}.yaml", flat(values), in_tier.sources)]
    path = f"configs/envs/{env}.yaml"
    values = {"env_settings": own.model_dump(include={*EnvSettings.model_fields}, exclude_unset=True)}
    if own.model:
        values["model"] = own.model
    below.append(Layer(path, flat(values), in_env.sources, f"tiers.{tier}.", ENV))
    below.append(Layer(path, own.set, in_env.sources, f"tiers.{tier}.set."))
    options = {f"{OPTIONS}{key}": value for key, value in in_env.profiles.get(profile, {}).items()}
    below.append(Layer(path, options, in_env.sources, f"profiles.{profile}.", OPTIONS))
    if further := in_env.further_test_task_sets.get(profile):
        test_sets = {f"{ENV}further_test_task_sets": [*own.further_test_task_sets, *further]}
        below.append(Layer(path, test_sets, in_env.sources, f"further_test_task_sets.{profile}."))

    # The base checkpoint, if --model names one, and its changes to the tier.
    if model:
        below.append(Layer("--model", {"model": base}, "the command line"))
    if (name := model or usual) in names("models"):
        config = load("models", name, ModelConfig)
        below.append(Layer(f"configs/models/{name}.yaml", config.set, config.sources, "set."))

    # The protocol that the row or --set names.
    protocol = (above[0].values | above[1].values).get("protocol")
    if protocol is not None:
        found = load_protocol(env, str(protocol))
        path = f"configs/protocols/{found.config.env}/{found.path.name}"
        below.append(Layer(path, flat(found.values), found.config.sources))

    # 3. The method. Some settings hold for one base checkpoint, or only where single turns are training
    # samples.
    samples = next(
        (layer.values["samples"] for layer in reversed([*below, *above]) if "samples" in layer.values), None
    )
    scope = Scope(tier, profile, in_env.environment or env, base, samples or "trajectory")
    for file in method_files(row.method):
        path = f"configs/methods/{file.method}.yaml"
        settings = {
            key if "." in key else f"{METHOD}{key}": pair for key, pair in file.settings_in(scope).items()
        }
        values = {key: value for key, (value, _) in settings.items()}
        below.append(Layer(path, values, {key: source for key, (_, source) in settings.items()}))
    if tuned and profile == "paper" and base == usual and (rate := tuned_rate(row, tier, env)):
        below.append(Layer(f"configs/methods/{rate.file}.yaml", {RATE: rate.rate}, rate.source))
    return row, [*below, *above]


def _changes(row: Variant, changes: Sequence[str]) -> dict[str, Any]:
    """``key=value`` texts by dotted keys of Run; values are YAML's. ``profile`` is not a value of a Run.

    Raises ConfigError for a text that cannot be read, and for a key that is not for a change.
    """
    settings = getattr(find_class("methods", str(method_files(row.method)[-1].code)), "Settings", None)
    own = settings.model_fields if settings else {}
    texts = []
    for change in changes:
        check_change(change)
        key = change.partition("=")[0]
        section = key.partition(".")[0]
        if key == "profile":
            continue
        if section in CHOSEN:
            raise ConfigError(f"key {key!r} is not for a change: it follows from {CHOSEN_BY}")
        if key in own and key in Run.model_fields:
            raise ConfigError(
                f"key {key!r} is ambiguous: a setting of method {row.method!r}, and a key of the run. For the method's "
                f"write {METHOD}{change}; for the run's set {key} in configs/tiers, or rename the method's setting"
            )
        if section not in Run.model_fields and key not in own:
            dotted = [path for path in key_paths(Run) if path.endswith(f".{key}")]
            meant = f" (did you mean {' or '.join(map(repr, dotted))}?)"
            if not dotted:
                meant = did_you_mean(key, [*own, *Run.model_fields])
            raise ConfigError(
                f"unknown key {key!r}{meant}: method {row.method!r} has no such setting, a run no such key"
            )
        texts.append(f"{METHOD}{change}" if key in own else change)
    try:
        return flat(cast(dict[str, Any], OmegaConf.to_container(OmegaConf.from_dotlist(texts))))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(
            f"one of {', '.join(changes)} cannot be read: {' '.join(str(error).split())}"
        ) from error


def _check(run: Run, method: Method) -> None:
    """Raise ConfigError for settings that are allowed separately, but not together."""
    place = f"{run.tier}/{run.env}"
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{place}: samples is 'turn', but a turn of {run.env} is a line of a response, which a "
            "chat template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )
    # vLLM as the sampler of the local engine has limits.
    if run.compute == "vllm" and run.engine == "trinity":
        raise ConfigError(
            f"{place}: compute is 'vllm', but Trinity-RFT has its own vLLM: leave one of them out"
        )
    if run.compute == "vllm" and max(run.sampling.temperature, run.evaluation.temperature) > 2:
        raise ConfigError(f"{place}: compute is 'vllm', but it takes temperatures up to 2")
    # Retries and their guidance are written for the prompts of training, and go on within one dialog.
    if method.trains and (run.protocol is not None or run.env_settings.options.get("history") is not None):
        for_score = "a protocol" if run.protocol is not None else "option history"
        raise ConfigError(
            f"{place}: {for_score} is for r3l evaluate, and method {run.method!r} trains; leave it out"
        )
    if run.sampling.max_tokens >= run.sampling.max_context:
        raise ConfigError(
            f"{place}: sampling.max_tokens, {run.sampling.max_tokens}, must be below sampling.max_context, "
            f"{run.sampling.max_context}"
        )
    # A server may use any name for its models. Loading a name without a slash says whether it exists.
    if (
        run.engine != "server"
        and "/" in run.model
        and not HUB_ID.fullmatch(run.model)
        and not isdir(run.model)
    ):
        raise ConfigError(
            f"there is no model {run.model!r}: it must be a name of configs/models or results/stored/models, a folder, "
            "or an id of the Hugging Face hub such as Qwen/Qwen2.5-1.5B-Instruct"
        )


def dialogue_of(run: Run) -> Dialogue:
    """The text side of a run's environment."""
    return environment_of(run.env).dialogue(run.prompts, run.env_settings.max_turns, run.env_settings.options)


def build_method(run: Run) -> Method:
    """The Method object of a run. Raises ConfigError if its settings are wrong."""
    return method_of(run.method, run.method_code, run.method_settings)


def method_of(name: str, code: str, settings: Mapping[str, Any]) -> Method:
    """The Method object of ``code`` (module:Class); ``name`` is for errors.

    Raises ConfigError if ``settings`` are wrong.
    """
    factory = find_class("methods", code)
    if not hasattr(factory, "Settings"):
        raise ConfigError(
            f"method {name!r}: its code {code!r} is no method; derive it from r3l.core.method:TrainedMethod"
        )
    try:
        method: Method = factory(settings)
    except ValidationError as error:
        details = "; ".join(explain(factory.Settings, e) for e in error.errors())
        raise ConfigError(f"method {name!r}, settings: {details}") from error
    return method


def feedback_of(row: Variant, tier: str) -> FeedbackSource | None:
    """The author of the feedback that a method or variant learns from; None if it reads none."""
    changes = _changes(row, row.changes)
    settings = settings_in(row.method, Scope(tier, profile_of(row)))
    settings |= {key.removeprefix(METHOD): value for key, value in changes.items() if key.startswith(METHOD)}
    own = {key: value for key, value in settings.items() if "." not in key and key not in Run.model_fields}
    return feedback_source(method_of(row.name, str(load_method(row.method).code), own).describe())


def trains(run: Run) -> bool:
    """Whether there is anything for an engine to train."""
    return build_method(run).trains and run.train.steps > 0


def gpu_cluster(run: Run) -> ClusterConfig | None:
    """The GPUs that training ``run`` takes on the trinity engine; None if it needs none."""
    model = find_model(run.model)
    return model.cluster if model and run.engine == "trinity" and trains(run) else None
