"""From names to a Run: four layers, each written over the one before.

1. **Tier**, ``configs/tiers/TIER.yaml``: engine, base checkpoint and every number of training, sampling and evaluation.
2. **Environment**, ``configs/envs/ENV.yaml`` under ``tiers.TIER``: task sets, turns, base checkpoint, the engine's
   options, and under ``set`` what it changes in the tier. ``profiles`` add options. A base checkpoint of
   ``configs/models`` that needs other values in the tier (a thinking model trains turns) has them under ``set`` too.
3. **Method**, ``configs/methods/METHOD.yaml``: its ``settings``, then those of the ``profile``, of each ``where`` entry
   that holds, of the tier, and the tuned learning rate. A method that ``extends`` another is written over it whole. A
   key without a dot is the method's own, one with a dot is the run's (``train.sync_interval``).
   Before the method, where one is asked for: the **protocol**, ``configs/protocols/ENV/NAME.yaml``, which sets all that
   decides an evaluation's score.
4. **--set KEY=VALUE**: what the row changes (``r3l@alpha=5``), then what the command line does.

Below all of them stand the defaults that the code declares (r3l.core.option), so that files hold only what differs. A
tuned learning rate holds for the profile ``paper`` and the environment's own base checkpoint, on which it was chosen;
with another one the tier's rate does. ``explained`` lists every value of a run with the layer that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from r3l.config.environment import EnvConfig, EnvSettings, environment_of
from r3l.config.files import explain, find_class, load, validate
from r3l.config.method import (
    RATE,
    Place,
    ProfileName,
    load_method,
    method_files,
    method_label,
    profile_of,
    settings_in,
    source_in,
    tuned_rate,
)
from r3l.config.model import ClusterConfig, as_path, check_model, find_model
from r3l.config.protocol import load_protocol
from r3l.config.run import Run, feedback_source, flat
from r3l.config.tier import TierConfig, TierSettings
from r3l.config.user_code import user_code
from r3l.config.variant import OF_RUN, Variant, check_override, variant
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError
from r3l.core.option import source_of
from r3l.feedback.feedback import FeedbackSource

if TYPE_CHECKING:
    from r3l.core.method import Method

CHOSEN_BY = "the tier, environment, model, method and seed (--tier, --env, --model, --method, --seed)"
CHOSEN = {"tier", "label", "env", "model", "method", "method_label", "method_code", "own_code", "seed"}
METHOD, ENV = "method_settings.", "env_settings."  # how the keys of a Run begin that are a method's, an environment's
OPTIONS = f"{ENV}options."


class Layer(NamedTuple):
    """``values`` by dotted keys of Run, which ``place`` sets; ``source`` of a key: why it has that value there."""

    place: str
    values: dict[str, Any]
    source: Callable[[str], str]


class Explained(NamedTuple):
    """One value of a run; ``place``: the file or command line that sets it; ``source``: what that states of it."""

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
    """The run of the four layers. ``overrides`` are ``key=value`` with dotted keys of Run, e.g. ``train.steps=3``.

    ``tuned``: whether tuned learning rates are used. Raises ConfigError naming file, key, value and fix.
    """
    row, changes = _row(method, overrides)
    return _run(tier, env, row, seed, _layers(tier, env, row, model, changes, tuned))


def explained(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int = 0,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
) -> list[Explained]:
    """Every value of a run, in the order of Run, with the place that it comes from."""
    row, changes = _row(method, overrides)
    layers = _layers(tier, env, row, model, changes, tuned=True)
    run = _run(tier, env, row, seed, layers)
    values = run.model_dump(mode="json", include={"model", *TierSettings.model_fields, "env_settings"})
    values["env_settings"]["options"] = environment_of(env).options(**run.env_settings.options).model_dump(mode="json")
    values["method_settings"] = run.method_settings
    return [_explained(run, key, value, layers) for key, value in flat(values).items()]


def _explained(run: Run, key: str, value: Any, layers: Sequence[Layer]) -> Explained:
    for layer in reversed(layers):
        if key in layer.values:
            return Explained(key, value, layer.place, layer.source(key))
    return Explained(key, value, "default", _source_of_default(run, key))


def _source_of_default(run: Run, key: str) -> str:
    """What the code that declares a default states of it."""
    declared: list[tuple[str, Any]] = [
        (METHOD, find_class("methods", run.method_code).Settings),
        (OPTIONS, environment_of(run.env).options),
        ("", Run),
    ]
    prefix, model = next((prefix, model) for prefix, model in declared if key.startswith(prefix))
    *sections, name = key.removeprefix(prefix).split(".")
    for section in sections:
        model = model.model_fields[section].annotation
    return source_of(model.model_fields[name])


def _row(method: str | Variant, overrides: Sequence[str] | None) -> tuple[Variant, list[str]]:
    """The row and the other changes: ``--set profile=fair`` is ``--method r3l@profile=fair``."""
    row = variant(method) if isinstance(method, str) else method
    profiles = [change for change in overrides or () if change.startswith("profile=")]
    for change in profiles:
        row = variant(row.changed(profile=change.partition("=")[2]).name)
    return row, [change for change in overrides or () if change not in profiles]


def _layers(tier: str, env: str, row: Variant, model: str | None, changes: Sequence[str], tuned: bool) -> list[Layer]:
    """The layers of a run, lowest first; some layers are several files."""
    in_tier, in_env = load("tiers", tier, TierConfig), load("envs", env, EnvConfig)
    profile, usual = profile_of(row), in_env.in_tier(tier).model or in_tier.model
    above = [
        Layer(row.name, _read(row.overrides()), lambda _: "the name of the row"),
        Layer("--set", _read(changes), lambda _: "the command line"),
    ]
    for key in CHOSEN & {key.partition(".")[0] for layer in above for key in layer.values}:
        raise ConfigError(f"key {key!r} is not for an override: it follows from {CHOSEN_BY}")
    below = [_of_tier(in_tier), *_of_environment(in_env, tier, profile), *_of_model(model, usual)]
    below += _of_protocol(env, _merged(above).get("protocol"))
    values = _merged([*below, *above])
    place = Place(tier, profile, in_env.environment or env, values["model"], values.get("samples", "trajectory"))
    method = [*_of_method(row, place)]
    if tuned and profile == "paper" and values["model"] == usual:
        method += _of_tuning(row, tier, env)
    return [*below, *method, *above]


def _of_tier(tier: TierConfig) -> Layer:
    values = tier.model_dump(exclude={"tier", "label", "sources", "tuning"}, exclude_unset=True)
    return Layer(f"configs/tiers/{tier.tier}.yaml", flat(values), lambda key: source_in(tier.sources, key))


def _of_environment(env: EnvConfig, tier: str, profile: ProfileName) -> Iterator[Layer]:
    """What the file says of the tier, then what a profile adds."""
    path, own = f"configs/envs/{env.env}.yaml", env.tiers[tier]
    settings = own.model_dump(include={*EnvSettings.model_fields}, exclude_unset=True)
    values = flat({"env_settings": settings}) | own.set | ({"model": own.model} if own.model else {})

    def source(key: str) -> str:
        at = "" if key == "model" else "set."
        return source_in(env.sources, f"tiers.{tier}.{key.removeprefix(ENV) if key.startswith(ENV) else at + key}")

    yield Layer(path, values, source)
    added = {f"{OPTIONS}{key}": value for key, value in env.profiles.get(profile, {}).items()}
    yield Layer(path, added, lambda key: source_in(env.sources, f"profiles.{profile}.{key.removeprefix(OPTIONS)}"))
    if further := env.further_test_task_sets.get(profile):
        sets = {f"{ENV}further_test_task_sets": [*own.further_test_task_sets, *further]}
        yield Layer(path, sets, lambda _: source_in(env.sources, f"further_test_task_sets.{profile}"))


def _of_model(model: str | None, usual: str) -> Iterator[Layer]:
    """The base checkpoint where another than the usual one is asked for, and what it changes in the tier."""
    if model:
        yield Layer("--model", {"model": as_path(model)}, lambda _: "the command line")
    if config := find_model(model or usual):
        sources = config.sources
        yield Layer(f"configs/models/{config.model}.yaml", config.set, lambda key: source_in(sources, f"set.{key}"))


def _of_protocol(env: str, name: str | None) -> Iterator[Layer]:
    """The rules that an evaluation is played by."""
    if name is not None:
        found = load_protocol(env, str(name))
        place = f"configs/protocols/{found.config.env}/{found.path.name}"
        yield Layer(place, flat(found.values), partial(source_in, found.config.sources))


def _of_method(row: Variant, place: Place) -> Iterator[Layer]:
    for file in method_files(row.method):
        stated = {key if "." in key else f"{METHOD}{key}": pair for key, pair in file.settings_in(place).items()}
        values = {key: value for key, (value, _) in stated.items()}
        sources = {key: source for key, (_, source) in stated.items()}
        yield Layer(f"configs/methods/{file.method}.yaml", values, sources.__getitem__)


def _of_tuning(row: Variant, tier: str, env: str) -> Iterator[Layer]:
    """The learning rate that `r3l tune` chose, where there is one."""
    if found := tuned_rate(row, tier, env):
        yield Layer(f"configs/methods/{found.file}.yaml", {RATE: found.rate}, lambda _: found.source)


def _run(tier: str, env: str, row: Variant, seed: int, layers: Sequence[Layer]) -> Run:
    """The layers merged, validated, and completed with the method's defaults."""
    named = {
        "tier": tier,
        "label": load("tiers", tier, TierConfig).label,
        "env": env,
        "method": row.name,
        "method_label": method_label(row),
        "method_code": load_method(row.method).code,
        "profile": profile_of(row),
        "seed": seed,
    }
    run = validate(Run, {"method_settings": {}} | _nested(_merged(layers)) | named, f"{tier}/{env}/{row.name}")
    environment_of(env).check(run.env_settings.options)
    complete = build_method(run).describe()  # bad settings are an error now, not after the model has loaded
    run = run.model_copy(update={"method_settings": dict(complete), "own_code": user_code(env, row.method)})
    if run.protocol is not None:
        run = run.model_copy(update={"protocol": load_protocol(env, run.protocol).identity})
    _check_samples(run)
    _check_compute(run)
    _check_protocol(run)
    if run.engine != "server":  # a server calls its models as it likes
        check_model(run.model)
    return run


def _read(changes: Sequence[str]) -> dict[str, Any]:
    """``key=value`` texts by their keys; values are YAML's. Raises ConfigError."""
    if not changes:
        return {}
    for change in changes:
        check_override(change)
    try:
        config = OmegaConf.from_dotlist(list(changes))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"one of {', '.join(changes)} cannot be read: {' '.join(str(error).split())}") from error
    return flat(cast(dict[str, Any], OmegaConf.to_container(config)))


def _merged(layers: Iterable[Layer]) -> dict[str, Any]:
    """The values by dotted keys, later layers over earlier ones; a value takes the place of what is within it."""
    merged: dict[str, Any] = {}
    for key, value in ((key, value) for layer in layers for key, value in layer.values.items()):
        for other in [other for other in merged if f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.")]:
            del merged[other]
        merged[key] = value
    return merged


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted keys as nested dictionaries."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        inside = nested
        for section in sections:
            inside = inside.setdefault(section, {})
        inside[name] = value
    return nested


def dialogue_of(run: Run) -> Dialogue:
    return environment_of(run.env).dialogue(run.prompts, run.env_settings.max_turns, run.env_settings.options)


def _check_samples(run: Run) -> None:
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{run.tier}/{run.env}: samples is 'turn', but a turn of {run.env} is a line of a response, which a "
            "chat template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )


def _check_protocol(run: Run) -> None:
    """Retries and their guidance are written for the prompts of training, and go on within one dialog."""
    for_score = "a protocol" if run.protocol is not None else "option history"
    if build_method(run).trains and (run.protocol is not None or run.env_settings.options.get("history") is not None):
        raise ConfigError(
            f"{run.tier}/{run.env}: {for_score} is for r3l evaluate, and method {run.method!r} trains; leave it out"
        )


def _check_compute(run: Run) -> None:
    """vLLM beside the local engine leaves no choice of some things."""
    reasons = {
        "Trinity-RFT brings a vLLM of its own: leave one of them out": run.engine == "trinity",
        "it takes temperatures up to 2": max(run.sampling.temperature, run.evaluation.temperature) > 2,
    }
    for reason, concerns in reasons.items():
        if run.compute == "vllm" and concerns:
            raise ConfigError(f"{run.tier}/{run.env}: compute is 'vllm', but {reason}")


def build_method(run: Run) -> Method:
    """The Method object of a run. Raises ConfigError when its settings are wrong."""
    return method_of(run.method, run.method_code, run.method_settings)


def method_of(name: str, code: str, settings: Mapping[str, Any]) -> Method:
    """The Method object of ``code``; ``name`` is for errors. Raises ConfigError when ``settings`` are wrong."""
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


def settings_of(row: Variant, place: Place) -> dict[str, Any]:
    """All settings of a row's method in a place, defaults included."""
    changes = {key.removeprefix(METHOD): value for key, value in _read(row.overrides()).items()}
    stated = {key: value for key, value in (settings_in(row.method, place) | changes).items() if "." not in key}
    own = {key: value for key, value in stated.items() if key not in OF_RUN}
    return dict(method_of(row.name, load_method(row.method).code or "", own).describe())


def feedback_of(row: Variant, tier: str) -> FeedbackSource | None:
    """Who is to write the feedback that a method or variant learns from; None where it reads none."""
    return feedback_source(settings_of(row, Place(tier, profile_of(row))))


def trains(run: Run) -> bool:
    """Whether there is anything for an engine to train."""
    return build_method(run).trains and run.train.steps > 0


def gpu_cluster(run: Run) -> ClusterConfig | None:
    """The GPUs that training ``run`` takes on the trinity engine; None where it needs none."""
    model = find_model(run.model)
    return model.cluster if model and run.engine == "trinity" and trains(run) else None
