"""Where a run's values come from: file or option and its source; and the command that makes the run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from r3l.config.environment import environment_of
from r3l.config.files import differing, find_class, flat
from r3l.config.method import Variant, variant
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
            inner = declaring.model_fields[section].annotation
            if not hasattr(inner, "model_fields"):  # a mapping, whose keys have the source of all of it
                name = section
                break
            declaring = inner
        found.append(Explained(key, value, "default", source_of(declaring.model_fields[name])))
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
        # A protocol (NAME-DIGITS) that the row's name does not have came by --set; other values follow from it.
        by_name = [change.partition("=")[0] for change in variant(run.method).changes]
        protocol = (
            [f"protocol={run.protocol.rpartition('-')[0]}"]
            if run.protocol and "protocol" not in by_name
            else []
        )
        changes += [word for change in protocol for word in ("--set", change)]
        usual = resolve(run.tier, run.env, run.method, run.seed, overrides=protocol)
        if usual.model == run.model:
            model = None
        else:
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
