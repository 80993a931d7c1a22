"""From names and overrides to a Run, and from a Run to its Method and Dialogue."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import yaml
from pydantic import ValidationError

from r3l.config.files import explain, folders, hint, load, validate
from r3l.config.kinds import PROFILES, ClusterConfig, EnvConfig, TierConfig, find_model, load_method
from r3l.config.run import Run
from r3l.core.environment import Dialogue, find_package
from r3l.core.errors import ConfigError
from r3l.core.method import Method


def variant(name: str) -> tuple[str, list[str]]:
    """``r3l@alpha=5,profile=fair`` -> (``r3l``, [``alpha=5``, ``profile=fair``])."""
    method, _, changes = name.partition("@")
    return method, [change for change in changes.split(",") if change]


def resolve(
    tier: str, env: str, method: str, seed: int, model: str | None = None, overrides: list[str] | None = None
) -> Run:
    """Combine the four files, the variant in ``method`` (see :func:`variant`) and ``key=value`` overrides.

    Overrides have dotted keys of Run, e.g. ``train.steps=3``. A variant's keys are the method's settings, ``profile``,
    ``engine``, or dotted keys of Run. Order of precedence: tier, environment, model, method (settings, profile, tier),
    variant, overrides.
    """
    t = load("tiers", tier, TierConfig)
    e = load("envs", env, EnvConfig)
    name, changes = variant(method)
    m = load_method(name)
    if tier not in e.tiers:
        raise ConfigError(f"environment {env!r} has no tier {tier!r}; add it under `tiers` in configs/envs/{env}.yaml")
    chosen = dict(_pair(change) for change in changes)
    profile = chosen.pop("profile", "paper")
    if profile not in PROFILES:
        raise ConfigError(f"method {method!r}: there is no profile {profile!r}; known: {', '.join(PROFILES)}")
    engine = chosen.pop("engine", t.engine)
    settings = m.settings_in(profile, tier) | chosen
    env_settings = e.tiers[tier].model_dump()
    env_settings["options"] |= e.profiles.get(profile, {})
    chosen_model = model or e.tiers[tier].model or t.model
    described = find_model(chosen_model)
    dotted = env_settings.pop("set") | (described.set if described else {})
    dotted |= {key: value for key, value in settings.items() if "." in key}
    content = t.model_dump(exclude={"sources"}) | {
        "env": env,
        "method": method,
        "method_label": m.label + (f" ({', '.join(changes)})" if changes else ""),
        "profile": profile,
        "engine": engine,
        "model": chosen_model,
        "seed": seed,
        "env_settings": env_settings,
        "method_code": m.code,
        "method_settings": {key: value for key, value in settings.items() if "." not in key},
    }
    for override in [*(f"{key}={json.dumps(value)}" for key, value in dotted.items()), *(overrides or [])]:
        _apply(content, override)
    run = validate(Run, content, f"{tier}/{env}/{method}")
    find_package(env).check(run.env_settings.options)
    build_method(run)  # bad settings are an error now, not after the model has loaded
    _check_samples(run)
    return run


def dialogue_of(run: Run) -> Dialogue:
    """The text side of a run's environment."""
    settings = {"style": run.prompts, "max_turns": run.env_settings.max_turns, "options": run.env_settings.options}
    return find_package(run.env).dialogue(settings)


def _check_samples(run: Run) -> None:
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{run.tier}/{run.env}: samples is 'turn', but a turn of {run.env} is a line of a response, which a "
            "chat template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )


def _pair(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"override {override!r} must look like key=value, e.g. train.steps=3")
    return key, yaml.safe_load(text)


def _apply(content: dict[str, Any], override: str) -> None:
    key, value = _pair(override)
    *path, last = key.split(".")
    target: Any = content
    for part in path:
        if not isinstance(target, dict) or part not in target:
            raise ConfigError(f"override {override!r}: unknown key {part!r}{hint(part, list(target))}")
        target = target[part]
    free_form = path in (["method_settings"], ["env_settings", "options"])
    if not isinstance(target, dict) or (last not in target and not free_form):
        raise ConfigError(f"override {override!r}: unknown key {last!r}{hint(last, list(target))}")
    target[last] = value


def build_method(run: Run) -> Method:
    """The Method object of a run. Raises ConfigError when its settings are wrong."""
    module, _, name = run.method_code.partition(":")
    sys.path += [str(folder) for folder in folders("methods")[1:] if str(folder) not in sys.path]
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"method {run.method!r}: code {run.method_code!r} cannot be found: {error}") from error
    try:
        method: Method = factory(run.method_settings)
    except ValidationError as error:
        details = "; ".join(explain(factory.Settings, e) for e in error.errors())
        raise ConfigError(f"configs/methods/{run.method}.yaml, settings: {details}") from error
    return method


def trains(run: Run) -> bool:
    """Whether there is anything for an engine to train."""
    return build_method(run).trains and run.train.steps > 0


def gpu_cluster(run: Run) -> ClusterConfig | None:
    """The GPUs that training ``run`` takes on the trinity engine; None where it needs none."""
    found = find_model(run.model)
    return found.cluster if found and run.engine == "trinity" and trains(run) else None
