"""Methods x options x profiles, read from the configs and the settings models; nothing is written twice."""

from __future__ import annotations

from typing import Any, get_args

from pydantic.fields import FieldInfo
from rich.table import Table

from r3l.config import PROFILES, TierConfig, build_method, load, load_method, names, resolve

Row = dict[str, Any]


def methods(tier: str, env: str = "alfworld") -> list[Row]:
    """One row a method: label, code, the most rollouts of a task, and the settings of each profile.

    Settings are complete (defaults included); ``changed`` lists those in which a profile differs from ``paper``.
    """
    load("tiers", tier, TierConfig)
    rows = []
    for name in names("methods"):
        config = load_method(name)
        built = {p: build_method(resolve(tier, env, f"{name}@profile={p}", 0)) for p in PROFILES}
        settings = {profile: dict(method.describe()) for profile, method in built.items()}
        rows.append(
            {
                "method": name,
                "label": config.label,
                "code": config.code,
                "extends": config.extends,
                "rollouts": {profile: method.max_rollouts for profile, method in built.items()},
                "settings": settings["paper"],
                "changed": {p: _difference(settings["paper"], settings[p]) for p in PROFILES[1:]},
                "sources": config.sources,
            }
        )
    return rows


def _difference(base: Row, other: Row) -> Row:
    return {key: value for key, value in other.items() if base.get(key) != value}


def render_methods(rows: list[Row]) -> Table:
    """For a terminal."""
    shown = Table(
        title="Methods and options",
        caption="rollouts: the most that one task can cost under paper / released_code / fair; the meaning of a "
        "option: r3l options; where a value comes from: configs/methods",
        show_lines=True,
    )
    for column in ("method", "rollouts", "settings (profile paper)", "released_code", "fair"):
        shown.add_column(column)
    parents = {row["method"]: row["settings"] for row in rows}
    for row in rows:
        own = _difference(parents[row["extends"]], row["settings"]) if row["extends"] else row["settings"]
        head = f"as {row['extends']}, but\n" if row["extends"] else ""
        shown.add_row(
            row["method"],
            " / ".join(str(row["rollouts"][p]) for p in PROFILES),
            head + _lines(own),
            *(_lines(row["changed"][p]) for p in PROFILES[1:]),
        )
    return shown


def _lines(settings: Row) -> str:
    return "\n".join(f"{key}: {_short(value)}" for key, value in settings.items())


def _short(value: Any) -> str:
    return ", ".join(value) or "nothing" if isinstance(value, tuple | list) else str(value)


def options() -> list[Row]:
    """One row an option: its values, one line of meaning with the audit id, and the methods that have it."""
    found: dict[str, tuple[FieldInfo, list[str]]] = {}
    for name in names("methods"):
        settings = getattr(type(build_method(resolve("nano", "alfworld", name, 0))), "Settings", None)
        for key, field in settings.model_fields.items() if settings and not load_method(name).extends else ():
            found.setdefault(key, (field, []))[1].append(name)
    return [
        {
            "option": key,
            "values": _values(field.annotation),
            "meaning": field.description or "",
            "methods": ", ".join(of),
        }
        for key, (field, of) in sorted(found.items())
    ]


def _values(annotation: Any) -> str:
    options = get_args(annotation)
    if options and all(isinstance(option, str) for option in options):
        return " | ".join(options)
    if options:
        return " | ".join(dict.fromkeys(_values(o) if get_args(o) else getattr(o, "__name__", str(o)) for o in options))
    return getattr(annotation, "__name__", str(annotation))
