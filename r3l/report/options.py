"""Methods x options x profiles, read from the configs, and where the paper and its released code differ.

What an option means: r3l.config.options; every value of one run: r3l.config.explained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from r3l.config import (
    PROFILES,
    EnvConfig,
    Run,
    TierConfig,
    environment_of,
    load,
    load_method,
    resolve,
    variant,
)
from r3l.config.files import read_all
from r3l.config.method import Scope, method_of, settings_in
from r3l.config.options import CITED, Option, environment_options, method_options
from r3l.report.table import Column, Table, table

# The tier with the settings of paper and release; other tiers change some of them.
REFERENCE = "paper"
COMPARED = ("paper", "released_code")
COLUMNS = ("of", "option", "audit", "paper", "released_code", "here", "in force")
COMMAND = "r3l list differences"


def methods(tier: str, asked: Collection[str] = ()) -> list[dict[str, Any]]:
    """One record per method: label, code, the most rollouts of a task, and the settings of each profile.

    Settings are complete (defaults included); ``changed`` lists the settings in which a profile differs from
    ``paper``. ``where`` lists settings that hold only in some environments, for some models or for turns,
    unless the tier sets them. A broken file of the user's is left out with a warning. Raises ConfigError for
    an unknown ``tier``, and for a broken file of a method in ``asked``.
    """
    load("tiers", tier, TierConfig)
    return [*read_all("methods", partial(_method, tier), asked).values()]


def _method(tier: str, name: str) -> dict[str, Any]:
    """The record of one method."""
    config = load_method(name)
    # Settings of sections (``train.lr``) are not the method's own; building it adds its defaults.
    stated = {p: settings_in(name, Scope(tier, p)) for p in PROFILES}
    own = {p: {k: v for k, v in settings.items() if "." not in k} for p, settings in stated.items()}
    built = {p: method_of(name, config.code or "", own[p]) for p in PROFILES}
    settings = {profile: dict(method.describe()) for profile, method in built.items()}
    where = []
    for entry in config.where:
        left = {k: v for k, v in entry.settings.items() if k not in config.tiers.get(tier, {})}
        if left and tier in (entry.tiers or [tier]):
            where.append({"condition": entry.condition(), "settings": left, "source": entry.source})
    return {
        "method": name,
        "label": config.label,
        "code": config.code,
        "extends": config.extends,
        "rollouts": {profile: method.max_rollouts for profile, method in built.items()},
        "settings": settings["paper"],
        "changed": {p: changed(settings["paper"], settings[p]) for p in PROFILES[1:]},
        "where": where,
        "sources": config.sources,
    }


def changed(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The settings of ``other`` that differ from ``base`` or are missing there, as ``other`` has them."""
    return {key: value for key, value in other.items() if base.get(key) != value}


def methods_table(rows: Sequence[Mapping[str, Any]], shown: Collection[str] | None = None) -> Table:
    """The table of the ``shown`` methods (default: all) and their settings, one column per profile.

    A method that extends another shows only what differs from it.
    """
    parents = {row["method"]: row["settings"] for row in rows}

    def own(row: Mapping[str, Any]) -> str:
        if not row["extends"]:
            return lines(row["settings"])
        return f"as {row['extends']}, but\n{lines(changed(parents[row['extends']], row['settings']))}"

    def there(row: Mapping[str, Any]) -> str:
        return "\n".join(f"{entry['condition']}:\n{lines(entry['settings'])}" for entry in row["where"])

    def of_profile(name: str) -> Column:
        return Column(name, lambda row: lines(row["changed"][name]))

    columns = [
        Column("method"),
        Column("rollouts", lambda row: " / ".join(str(row["rollouts"][profile]) for profile in PROFILES)),
        Column("settings (profile paper)", own),
        *map(of_profile, map(str, PROFILES[1:])),
        Column("only when", there),
    ]
    note = "rollouts: the most that one task can cost under paper / released_code / fair; "
    note += "options: r3l list options"
    chosen = [row for row in rows if shown is None or row["method"] in shown]
    return table("Methods and options", columns, chosen, note)


def options_overview(declared: Sequence[Option]) -> Table:
    """A row for each section of settings, such as ``train``: how ``--set`` names them, and their names."""
    sections: dict[str, dict[str, None]] = {}
    for option in declared:
        prefix, _, name = option.option.rpartition(".")
        key = f"{prefix}.KEY" if prefix else "KEY, of a method" if option.used_by else "KEY"
        sections.setdefault(key, {})[name] = None
    rows = [{"--set": f"{key}", "settings": ", ".join(found)} for key, found in sections.items()]
    note = "values, defaults and meaning of some: r3l list options alpha train; "
    note += "of a method: r3l list options r3l"
    return table("", [Column("--set"), Column("settings")], rows, note)


def options_details(chosen: Sequence[Option]) -> Table:
    """A row for each setting: name, values and default, meaning and source, and the methods that have it.

    Default and source are lines below values and meaning, so that 80 characters have room for all.
    """

    def values(option: Option) -> str:
        return f"{option.values}\ndefault: {option.default}" if option.default else option.values

    def meaning(option: Option) -> str:
        return f"{option.meaning}\nsource: {option.source}" if option.source else option.meaning

    columns = [
        Column("option", no_wrap=True),
        Column("values", values),
        Column("meaning", meaning),
        Column("used by", lambda option: option.used_by, drop=1),
    ]
    return table("", columns, chosen)


def method_families(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each method with its own code; methods that only change its settings are its variants."""
    parents = {row["method"]: row["extends"] for row in rows}

    def family(name: str) -> str:
        while parents.get(name):
            name = parents[name]
        return name

    def variants(row: Mapping[str, Any]) -> str:
        return ", ".join(name for name in parents if name != row["method"] and family(name) == row["method"])

    columns = [
        Column("method"),
        Column("label"),
        Column("rollouts", lambda row: str(row["rollouts"]["paper"]), right=True),
        Column("variants", variants),
    ]
    first = [row for row in rows if not row["extends"]]
    note = "rollouts: the most that one task can cost; settings of some: r3l list methods r3l grpo"
    return table("Methods", columns, first, note)


def lines(settings: Mapping[str, Any]) -> str:
    """The settings as text, one per line; lists without brackets."""
    texts = []
    for key, value in settings.items():
        several = isinstance(value, tuple | list)
        texts.append(f"{key}: {', '.join(map(str, value)) or 'nothing' if several else value}")
    return "\n".join(texts)


def differences(tier: str, envs: Sequence[str], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Settings of methods and environments that differ between profiles ``paper`` and ``released_code``.

    One row each, by the keys ``of`` (method or environment), ``option``, ``paper``, ``released_code`` (both
    values), ``here`` (the value in a run of ``tier``), all as texts; ``audit``: ids in docs/audit.md; ``in
    force``: the profile that has the value ``here``, or ``neither``; ``envs``: where the row holds. Raises
    ConfigError for an unknown environment or method.
    """
    # The ids of the audit that each option's meaning cites.
    ids: dict[str, dict[str, None]] = {}
    for option in (*method_options(), *environment_options()):
        of_option = ids.setdefault(option.option.rpartition(".")[2], {})
        of_option |= dict.fromkeys(re.findall(CITED, option.meaning))
    places: dict[tuple[str, ...], list[str]] = {}
    for env in envs:
        for method in methods:
            base = variant(method).method
            whose = REFERENCE if REFERENCE in load("envs", env, EnvConfig).tiers else tier
            paper, released = (_settings(resolve(whose, env, f"{base}@profile={p}", 0)) for p in COMPARED)
            here = _settings(resolve(tier, env, method, 0))
            for (kind, name), value in paper.items():
                other = released[kind, name]
                own = here.get((kind, name))
                if value != other:
                    owner = method if kind == "method" else env
                    places.setdefault((owner, name, *map(str, (value, other, own))), []).append(env)
    return [
        {
            **dict(zip(("of", "option", "paper", "released_code", "here"), key, strict=True)),
            "audit": ", ".join(ids.get(key[1], ())),
            "in force": {key[2]: "paper", key[3]: "released_code"}.get(key[4], "neither"),
            "envs": list(dict.fromkeys(found)),
        }
        for key, found in places.items()
    ]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence: in how many of the differences ``rows`` each profile's value holds here."""
    count = Counter(row["in force"] for row in rows)
    return (
        f"paper and released code differ in {len(rows)} settings of these methods and environments: "
        f"{count['paper']} are the paper's here, {count['released_code']} the released ones, "
        f"{count['neither']} neither; they are listed by {COMMAND}"
    )


def differences_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The table of :func:`differences`, one line each."""
    return table(
        "Where paper and released code differ",
        [Column(name, drop=int(name == "audit")) for name in COLUMNS],
        rows,
        summary(rows),
    )


def _settings(run: Run) -> Mapping[tuple[str, str], Any]:
    """The settings of a run that profiles may change, by (method or environment, name)."""
    method = run.method_settings | {
        f"train.{key}": value for key, value in run.train.model_dump(mode="json").items()
    }
    environment = environment_of(run.env).options(**run.env_settings.options).model_dump(mode="json")
    return {("method", k): v for k, v in method.items()} | {
        ("environment", k): v for k, v in environment.items()
    }
