"""Resolving the names of tier, environment, model and method into a Run; where its values come from.

The files and the command line give layers of values (r3l.config.layers), each merged over the one below. The
lowest layer is the defaults that the code declares (r3l.core.option), so that files hold only what differs.
``explained`` lists every value of a run with the layer that sets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import isdir
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from r3l.config.environment import EnvConfig, environment_of
from r3l.config.files import (
    OWN,
    explain,
    find_class,
    flat,
    is_own,
    load,
    own_folders,
    validate,
)
from r3l.config.layers import METHOD, OPTIONS, changed_values, layers_of
from r3l.config.method import (
    Scope,
    Variant,
    load_method,
    method_files,
    method_label,
    profile_of,
    settings_in,
)
from r3l.config.model import HUB_ID, ClusterConfig, find_model, stored_model
from r3l.config.protocol import load_protocol
from r3l.config.run import Run, feedback_source
from r3l.config.tier import TierConfig, TierSettings
from r3l.config.user_code import user_code
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError
from r3l.core.option import source_of
from r3l.feedback.feedback import FeedbackSource

if TYPE_CHECKING:
    from r3l.core.method import Method


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
    row, layers = layers_of(tier, env, method, model, overrides, tuned)
    place = f"{tier}/{env}/{row.name}"  # for errors

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

    # Check types and ranges, then what only the combination of settings shows.
    run = validate(Run, values, place)
    validate(environment_of(env).options, run.env_settings.options, f"{env}, env_settings.options")
    _check_combination(run, built)
    named = model or load("envs", env, EnvConfig).in_tier(tier).model
    if not named and is_own("envs", env) and stored_model(run.model):
        raise ConfigError(
            f"environment {env!r} names no base checkpoint for tier {tier}, and the tier's own, "
            f"{run.model}, was taught another environment: its actions would be impossible. Add `model: "
            f"NAME` under tiers.{tier} in {env}.yaml, or give --model"
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
    _, layers = layers_of(tier, env, method, model, overrides)
    # All values, with the defaults of the environment's options and of the method's settings.
    values = run.model_dump(mode="json", include={"model", *TierSettings.model_fields, "env_settings"})
    options = environment_of(env).options(**run.env_settings.options)
    values["env_settings"]["options"] = options.model_dump(mode="json")
    values["method_settings"] = run.method_settings
    # The code that declares the defaults, by the beginning of the keys; the last entry has all other keys.
    declared: list[tuple[str, Any]] = [
        (METHOD, find_class("methods", run.method_code).Settings),
        (OPTIONS, environment_of(run.env).options),
        ("", Run),
    ]
    # The highest layer that has a key sets its value, else the default does.
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


def _check_combination(run: Run, method: Method) -> None:
    """Raise ConfigError for settings that are allowed separately, but not together."""
    place = f"{run.tier}/{run.env}"
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{place}: samples is 'turn', but a turn of {run.env} is a line of a response, which a chat "
            "template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
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
            f"there is no model {run.model!r}: it must be a name of configs/models or "
            "results/stored/models, a folder, or an id of the Hugging Face hub such as "
            "Qwen/Qwen2.5-1.5B-Instruct"
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
    changes = changed_values(row, row.changes)
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
