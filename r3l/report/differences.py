"""Where the paper and its released code differ, and which of the two is in force in the runs of a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.config import EnvConfig, Run, environment_of, load, resolve, variant
from r3l.config.options import CITED, environment_options, method_options
from r3l.report.table import Column, Table, table

REFERENCE = "paper"  # the tier whose settings are those of paper and release; other tiers change some for themselves
PROFILES = ("paper", "released_code")
COLUMNS = ("of", "option", "audit", "paper", "released_code", "here", "in force")
COMMAND = "r3l list differences"


def differences(tier: str, envs: Sequence[str], methods: Sequence[str]) -> list[dict[str, Any]]:
    """One row a setting of a method or environment that profiles ``paper`` and ``released_code`` set differently.

    ``here``: what a run of ``tier`` has; ``in force``: paper, released_code, or neither; ``envs``: where it is so.
    """
    ids = _audit_ids()
    places: dict[tuple[str, ...], list[str]] = {}
    for env in envs:
        for method in methods:
            base = variant(method).method
            whose = REFERENCE if REFERENCE in load("envs", env, EnvConfig).tiers else tier
            paper, released = (_settings(resolve(whose, env, f"{base}@profile={p}", 0)) for p in PROFILES)
            here = _settings(resolve(tier, env, method, 0))
            for (kind, option), value in paper.items():
                other, own = released[kind, option], here.get((kind, option))
                if value != other:
                    of = method if kind == "method" else env
                    places.setdefault((of, option, *map(str, (value, other, own))), []).append(env)
    return [
        {
            **dict(zip(("of", "option", "paper", "released_code", "here"), key, strict=True)),
            "audit": ids.get(key[1], ""),
            "in force": {key[2]: "paper", key[3]: "released_code"}.get(key[4], "neither"),
            "envs": list(dict.fromkeys(found)),
        }
        for key, found in places.items()
    ]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many are in force, in one sentence."""
    count = Counter(row["in force"] for row in rows)
    return (
        f"paper and released code differ in {len(rows)} settings of these methods and environments: {count['paper']} "
        f"are the paper's here, {count['released_code']} the released ones, {count['neither']} neither; they are "
        f"listed by {COMMAND}"
    )


def differences_table(rows: Sequence[dict[str, Any]]) -> Table:
    """As the terminal has it."""
    return table("Where paper and released code differ", list(map(Column, COLUMNS)), rows, summary(rows))


def _settings(run: Run) -> Mapping[tuple[str, str], Any]:
    """The settings of a run that profiles may change, by (method or environment, name)."""
    method = run.method_settings | {f"train.{key}": value for key, value in run.train.model_dump(mode="json").items()}
    environment = environment_of(run.env).options(**run.env_settings.options).model_dump(mode="json")
    return {("method", k): v for k, v in method.items()} | {("environment", k): v for k, v in environment.items()}


def _audit_ids() -> dict[str, str]:
    """Of each option the ids that its meaning names."""
    found: dict[str, dict[str, None]] = {}
    for option in (*method_options(), *environment_options()):
        found.setdefault(option.option, {}).update(dict.fromkeys(re.findall(CITED, option.meaning)))
    return {option: ", ".join(ids) for option, ids in found.items()}
