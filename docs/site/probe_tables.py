"""The table of probed language models of docs/tiers.md, from stored probes."""

from __future__ import annotations

from collections.abc import Sequence

from docs.site.pipe_table import Rows, pipe_table
from r3l.config import names
from r3l.report.labels import model_label
from r3l.report.probes import Content

MEASURES = {  # by key of a probe's measures
    "success": "base success",
    "guided_minus_fresh": "guided minus fresh",
    "guided_minus_unguided": "own hint minus none",
    "critic_guided_minus_unguided": "critic's hint minus none",
}


def published_probes(probes: Sequence[Content]) -> str:
    """The table of those ``probes`` that are of tier smol, in their order, a row each."""
    rows: Rows = {}
    for probe in probes:
        if probe["tier"] != "smol":
            continue
        name = probe["model"]["name"]
        taught = max((recipe for recipe in names("sft") if name.endswith(f"-{recipe}")), key=len, default="")
        lines = probe.get("reflection_schema") == "lines" and "lines" not in probe["label"]
        row = ", ".join(
            [
                model_label(name.removesuffix(f"-{taught}")),
                probe["label"] + (", reflections in lines" if lines else ""),
                *([f"`{taught}`"] if taught else []),
                f"{probe['tasks']} tasks",
            ]
        )
        rows[row] = {column: _measure(probe, key) for key, column in MEASURES.items()}
    return pipe_table(rows)


def _measure(probe: Content, key: str) -> str:
    """The value of a measure, a difference with its sign and its 95 % interval; empty without one."""
    measure = probe["measures"].get(key)
    if measure is None or measure["value"] is None:
        return ""
    if key == "success":
        return f"{measure['value']:.2f}"
    return f"{measure['value']:+.2f} ({measure['low']:+.2f} to {measure['high']:+.2f})"
