"""Where a run's values come from: file or option and its source; and the command that makes the run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from r3l.config.environment import environment_of
from r3l.config.files import differing, find_class, flat, is_section
from r3l.config.method import Variant
from r3l.config.resolution import CHOSEN, METHOD, OPTIONS, layers_of, resolve
from r3l.config.run import Run, hashed
from r3l.config.tier import TierSettings
from r3l.core.errors import ConfigError
from r3l.core.option import source_of


class Explained(NamedTuple):
    """One value of a run by its dotted key, and where it comes from.

    ``place``: the configuration file, option (``--set``) or row that sets it, or ``default``. ``source``: the
    reason given there (a paper's section, our choice); '' if there is none.
    """

    key: str
    value: Any
    place: str
    source: str


def explained(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int = 0,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
) -> list[Explained]:
    """Every value of the run that :func:`resolve` makes of the same arguments, and what sets each of them.

    They are in the order of Run, followed by the method's settings; defaults are included. Raises ConfigError
    for an unknown name, key or value.
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
    # The highest layer that has a key, or a mapping with it, sets its value, else the default does.
    found = []
    for key, value in flat(values).items():
        parts = key.split(".")
        holders = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        setters = ((layer, name) for layer in reversed(layers) for name in holders if name in layer.values)
        layer, name = next(setters, (None, key))
        if layer is not None:
            found.append(Explained(key, value, layer.place, layer.source(name)))
            continue
        # Go down the sections to the field that declares the key; below a mapping there are no fields.
        prefix, section = next(entry for entry in declared if key.startswith(entry[0]))
        for part in key.removeprefix(prefix).split("."):
            field = section.model_fields[part]
            section = field.annotation
            if not is_section(section):
                break
        found.append(Explained(key, value, "default", source_of(field)))
    return found


def train_command(run: Run) -> str:
    """The text of the `r3l train` command that makes ``run`` again, with its settings; it names no directory.

    ``--set`` has each setting that decides the result and that the present files give another value. If one
    of these files is not here, the command only names tier, environment, method, seed and model.
    """
    words = ["r3l", "train", "--tier", run.tier, "--env", run.env, "--method", run.method]
    words += ["--seed", str(run.seed)]
    changes: list[str] = []
    model: str | None = run.model
    with suppress(ConfigError):
        usual = resolve(run.tier, run.env, run.method, run.seed)
        if usual.model == run.model:
            model = None
        # The name of the row has the protocol, or --set names it; its values are then not changes.
        protocol: list[str] = []
        if run.protocol and not usual.protocol:
            protocol = [f"protocol={run.protocol.rpartition('-')[0]}"]
            changes += ["--set", *protocol]
        if model or protocol:
            usual = resolve(run.tier, run.env, run.method, run.seed, model, protocol)
        here, now = (one.model_dump(mode="json") for one in (run, usual))
        # A section that decides nothing in one of them, such as lora of rank 0, may decide in the other.
        decisive = flat(hashed(here)).keys() | flat(hashed(now)).keys()
        values = flat(here)
        for key in differing(here, now):
            if key in decisive and key in values and key.partition(".")[0] not in {*CHOSEN, "protocol"}:
                text = values[key] if isinstance(values[key], str) else json.dumps(values[key])
                changes += ["--set", f"{key}={text}"]
    return shlex.join([*words, *(["--model", model] if model else []), *changes])
