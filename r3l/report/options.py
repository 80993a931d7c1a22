"""Methods x options x profiles, read from the configs; what an option means: r3l.config.options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r3l.config import PROFILES, TierConfig, load, load_method, names
from r3l.config.method import Place, settings_in
from r3l.config.resolution import method_of
from r3l.report.table import Column, Table, table


def methods(tier: str) -> list[dict[str, Any]]:
    """One row a method: label, code, the most rollouts of a task, and the settings of each profile.

    Settings are complete (defaults included); ``changed`` lists those in which a profile differs from ``paper``,
    ``where`` what holds in some environments, for some models or for turns only, and no tier sets otherwise.
    """
    load("tiers", tier, TierConfig)
    rows = []
    for name in names("methods"):
        config = load_method(name)
        stated = {p: settings_in(name, Place(tier, p)) for p in PROFILES}
        own = {p: {k: v for k, v in settings.items() if "." not in k} for p, settings in stated.items()}
        built = {p: method_of(name, config.code or "", own[p]) for p in PROFILES}
        settings = {profile: dict(method.describe()) for profile, method in built.items()}
        rows.append(
            {
                "method": name,
                "label": config.label,
                "code": config.code,
                "extends": config.extends,
                "rollouts": {profile: method.max_rollouts for profile, method in built.items()},
                "settings": settings["paper"],
                "changed": {p: changed(settings["paper"], settings[p]) for p in PROFILES[1:]},
                "where": [
                    {"condition": entry.condition(), "settings": left, "source": entry.source}
                    for entry in config.where
                    if tier in (entry.tiers or [tier])
                    and (left := {k: v for k, v in entry.settings.items() if k not in config.tiers.get(tier, {})})
                ],
                "sources": config.sources,
            }
        )
    return rows


def changed(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What ``other`` has otherwise than ``base``, or besides."""
    return {key: value for key, value in other.items() if base.get(key) != value}


def methods_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A column a profile; of a method that extends another, what differs from it."""
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
        Column("there alone", there),
    ]
    note = "rollouts: the most that one task can cost under paper / released_code / fair; options: r3l list options"
    return table("Methods and options", columns, rows, note)


def lines(settings: Mapping[str, Any]) -> str:
    """A line a setting."""
    return "\n".join(f"{key}: {_plain(value)}" for key, value in settings.items())


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, tuple | list) else str(value)
