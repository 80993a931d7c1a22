"""From names and overrides to a Run, and from a Run to its Method and Dialogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from r3l.config.environment import EnvConfig, environment_of
from r3l.config.feedback import feedback_source
from r3l.config.files import explain, find_class, load, validate
from r3l.config.method import MethodConfig, load_method, method_label
from r3l.config.model import ClusterConfig, check_model, find_model
from r3l.config.own_code import own_code
from r3l.config.profile import TUNED, ProfileName, names_profile, profile_of
from r3l.config.run import Run
from r3l.config.tier import TierConfig
from r3l.config.tuning import RATE, at_rate, check_current, first_run, has_tuning, is_current, stored_tuning, untuned
from r3l.config.variant import Variant, check_override, variant
from r3l.config.where import Place
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource

if TYPE_CHECKING:
    from r3l.core.method import Method

CHOSEN_BY = "the tier, environment, method, profile and seed (--tier, --env, --method, --profile, --seed)"
CHOSEN = {"tier", "label", "env", "method", "method_label", "method_code", "own_code", "profile", "seed"}


def resolve(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
) -> Run:
    """Combine the declared defaults, the four files, the variant and ``key=value`` overrides.

    Overrides have dotted keys of Run, e.g. ``train.steps=3``. Order of precedence: tier, environment, model, method
    (settings, profile, where, tier), variant, overrides. Where neither rate nor profile is stated, the learning rate is
    the nearest tuned one (r3l.config.tuning) that is stored.
    """
    row = variant(method) if isinstance(method, str) else method
    if profile_of(row) == TUNED:
        return _tuned(tier, env, row, seed, model, overrides)
    run = _resolved(tier, env, row, seed, model, overrides)
    if names_profile(row) or not _takes_rate(run, row, overrides):
        return run
    found = _nearest_tuning(run, row, model)
    return run if found is None else _with_rate(run, *found)


def _resolved(tier: str, env: str, row: Variant, seed: int, model: str | None, overrides: Sequence[str] | None) -> Run:
    """A run with the learning rate of its configuration."""
    in_tier, in_env = load("tiers", tier, TierConfig), load("envs", env, EnvConfig)
    changes = _nested({}, [*row.overrides(), *(overrides or ())])
    for key in CHOSEN & changes.keys():
        raise ConfigError(f"key {key!r} is not for an override: it follows from {CHOSEN_BY}")
    values = _of_files(in_tier, in_env, profile_of(row), model) | {"env": env, "seed": seed}
    changed = _merged(values, changes)
    place = Place(tier, profile_of(row), in_env.environment or env, changed["model"], changed["samples"])
    values = _merged(_with_method(values, row, place), changes)
    run = validate(Run, values, f"{tier}/{env}/{row.name}")
    environment_of(env).check(run.env_settings.options)
    complete = build_method(run).describe()  # bad settings are an error now, not after the model has loaded
    code = own_code(env, row.method)
    run = run.model_copy(update={"method_settings": dict(complete), "own_code": code})
    _check_samples(run)
    _check_sampler(run)
    if run.engine != "server":  # a server calls its models as it likes
        check_model(run.model)
    return run


def _takes_rate(run: Run, row: Variant, overrides: Sequence[str] | None) -> bool:
    """Whether a run trains with a rate that neither its row nor an override states."""
    return trains(run) and not any(change.startswith(f"{RATE}=") for change in [*row.changes, *(overrides or ())])


def _tuned(tier: str, env: str, row: Variant, seed: int, model: str | None, overrides: Sequence[str] | None) -> Run:
    """A run under profile `tuned`: with the rate of its own tuning, unless it states one or trains nothing. Raises
    ConfigError without a tuning of today's configuration."""
    plain = untuned(row)
    run = _resolved(tier, env, plain, seed, model, overrides)
    run = run.model_copy(update={"method": row.name, "method_label": method_label(row), "profile": TUNED})
    if not _takes_rate(run, plain, overrides):
        return run
    tuning, source = stored_tuning(tier, env, plain)
    check_current(tuning, source, _first_tried(tier, env, plain, tuning, model))
    return _with_rate(run, tuning["chosen"], source)


def _nearest_tuning(run: Run, row: Variant, model: str | None) -> tuple[float, str] | None:
    """The rate that is stored for a row, else for its method, else for what that extends, and its file. None where
    there is none, or it was made with another start model or configuration."""
    rows: list[Variant] = [row]
    method: str | None = row.method
    while method:
        rows.append(Variant(method))
        method = load("methods", method, MethodConfig).extends
    for candidate in rows:
        if has_tuning(run.tier, run.env, candidate):
            tuning, source = stored_tuning(run.tier, run.env, candidate)
            if first_run(tuning)["model"] != Path(run.model).name:
                return None
            current = is_current(tuning, _first_tried(run.tier, run.env, candidate, tuning, model))
            return (tuning["chosen"], source) if current else None
    return None


def _first_tried(tier: str, env: str, row: Variant, tuning: Mapping[str, Any], model: str | None) -> Run:
    """The first run of a tuning as it would be made today."""
    config, rate = load("tiers", tier, TierConfig).tuning, tuning["rates"][0]["lr"]
    tried = row if config is None else at_rate(row, f"{rate:.3g}", config)
    return _resolved(tier, env, tried, first_run(tuning)["seed"], model, None)


def _with_rate(run: Run, rate: float, source: str) -> Run:
    train = run.train.model_copy(update={"lr": rate})
    return run.model_copy(update={"train": train, "profile": TUNED, "rate_source": source})


def _of_files(tier: TierConfig, env: EnvConfig, profile: ProfileName, model: str | None) -> dict[str, Any]:
    """What tier, environment and model say of a run, under a profile."""
    if tier.tier not in env.tiers:
        raise ConfigError(
            f"environment {env.env!r} has no tier {tier.tier!r}; add it under `tiers` in configs/envs/{env.env}.yaml"
        )
    in_tier = env.tiers[tier.tier]
    model_name = model or in_tier.model or tier.model
    model_config = find_model(model_name)
    values = tier.model_dump(exclude={"sources", "tuning"}) | {
        "model": model_name,
        "profile": profile,
        "env_settings": in_tier.model_dump(exclude={"set"}),
    }
    values["env_settings"]["options"] |= env.profiles.get(profile, {})
    values["env_settings"]["further_test_task_sets"] += env.further_test_task_sets.get(profile, [])
    return _merged(values, _nested(in_tier.set | (model_config.set if model_config else {}), []))


def _with_method(values: Mapping[str, Any], row: Variant, place: Place) -> dict[str, Any]:
    """``values`` with what the method says, before its variant and overrides."""
    method = load_method(row.method)
    settings = method.settings_in(place)
    of_run = {key: value for key, value in settings.items() if "." in key}
    own = {
        "method": row.name,
        "method_label": method_label(row),
        "engine": row.value("engine", values["engine"]),
        "method_code": method.code,
        "method_settings": {key: value for key, value in settings.items() if key not in of_run},
    }
    return _merged(_merged(values, own), _nested(of_run, []))


def _nested(changes: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Values by dotted key, then ``key=value`` texts, as one nested dictionary."""
    if not changes and not overrides:
        return {}
    for override in overrides:
        check_override(override)
    config = OmegaConf.create()
    try:
        for key, value in changes.items():
            OmegaConf.update(config, key, value)
        config.merge_with_dotlist(list(overrides))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"one of {', '.join(overrides)} cannot be read: {' '.join(str(error).split())}") from error
    return cast(dict[str, Any], OmegaConf.to_container(config))


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes`` in it, dictionary by dictionary."""
    return {**values} | {
        key: _merged(values[key], value) if isinstance(value, dict) and isinstance(values.get(key), dict) else value
        for key, value in changes.items()
    }


def dialogue_of(run: Run) -> Dialogue:
    """The text side of a run's environment."""
    return environment_of(run.env).dialogue(run.prompts, run.env_settings.max_turns, run.env_settings.options)


def _check_samples(run: Run) -> None:
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{run.tier}/{run.env}: samples is 'turn', but a turn of {run.env} is a line of a response, which a "
            "chat template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )


def _check_sampler(run: Run) -> None:
    """vLLM beside the local engine leaves no choice of some things."""
    if run.sampling.engine == "torch":
        return
    reasons = {
        "Trinity-RFT brings a vLLM of its own: leave one of them out": run.engine == "trinity",
        "it takes temperatures up to 2": max(run.sampling.temperature, run.evaluation.temperature) > 2,
    }
    for reason, concerns in reasons.items():
        if concerns:
            raise ConfigError(f"{run.tier}/{run.env}: sampling.engine is {run.sampling.engine!r}, but {reason}")


def build_method(run: Run) -> Method:
    """The Method object of a run. Raises ConfigError when its settings are wrong."""
    return _built(run.method, run.method_code, run.method_settings)


def method_of(config: MethodConfig, settings: Mapping[str, Any]) -> Method:
    """The Method object of a file of configs/methods. Dotted keys of ``settings`` are a run's and are left out."""
    return _built(config.method, config.code or "", {k: v for k, v in settings.items() if "." not in k})


def feedback_of(row: Variant, tier: str) -> FeedbackSource | None:
    """Who is to write the feedback that a method or variant learns with; None where it reads none."""
    config = load_method(row.method)
    changes = _nested({}, row.overrides()).get("method_settings", {})
    settings = config.settings_in(Place(tier, profile_of(row))) | changes
    return feedback_source(method_of(config, settings).describe())


def _built(name: str, code: str, settings: Mapping[str, Any]) -> Method:
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


def trains(run: Run) -> bool:
    """Whether there is anything for an engine to train."""
    return build_method(run).trains and run.train.steps > 0


def gpu_cluster(run: Run) -> ClusterConfig | None:
    """The GPUs that training ``run`` takes on the trinity engine; None where it needs none."""
    model = find_model(run.model)
    return model.cluster if model and run.engine == "trinity" and trains(run) else None
