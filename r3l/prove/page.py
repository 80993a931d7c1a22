"""The report of the kit as a short page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 600  # characters of what a part has shown


def markdown(report: Mapping[str, Any], what: Mapping[str, str]) -> str:
    """One table: each part, what became of it, its seconds and what was seen."""
    versions = ", ".join(f"{name} {report['versions'][name]}" for name in ("python", "torch", "transformers"))
    lines = [
        f"# What `r3l prove gpu{' --dry' if report['form'] == 'dry' else ''}` has shown",
        "",
        f"On {_device(report)}; {versions}; {report['seconds'] / 60:.1f} of {report['minutes']:g} minutes. "
        "All figures: proof.json.",
        "",
        "| part | status | seconds | seen |",
        "|---|---|---|---|",
    ]
    for name, part in report["parts"].items():
        seen = " ".join(str(part["seen"]).split()).replace("|", "\\|")[:SHOWN]
        lines.append(f"| {name}: {what[name]} | {part['status']} | {part['seconds']:.0f} | {seen} |")
    return "\n".join(lines) + "\n"


def _device(report: Mapping[str, Any]) -> str:
    card = report["parts"].get("card", {}).get("figures", {})
    return str(card.get("name") or report["hardware"].get("cpu") or report["hardware"].get("machine"))
