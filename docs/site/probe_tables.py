"""The table of probed language models of docs/tiers.md, from stored probes."""

from __future__ import annotations

from collections.abc import Sequence

from docs.site.pipe_table import Rows, pipe_table
from r3l.report.labels import base_and_recipe, model_label
from r3l.report.probes import Content

MEASURES = {  # by key of a probe's measures
    "success": "base success",
    "guided_minus_fresh": "guided minus fresh",
    "guided_minus_unguided": "own hint minus none",
    "critic_guided_minus_unguided": "critic's hint minus none",
}


def published_probes(probes: Sequence[Content]) -> str:
    """The table of ``probes`` of published models, in their order, a row each; tier nano has only our own."""
    rows: Rows = {}
    for probe in probes:
        if probe["tier"] == "nano":
            continue
        base, recipe = base_and_recipe(probe["model"]["name"])
        lines = probe.get("reflection_schema") == "lines" and "lines" not in probe["label"]
        row = ", ".join(
            [
                model_label(base),
                probe["label"] + (", reflections in lines" if lines else ""),
                *([f"`{recipe}`"] if recipe else []),
                f"{probe['tasks']} {'test tasks' if probe.get('test') else 'tasks'}",
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
