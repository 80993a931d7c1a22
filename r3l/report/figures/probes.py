"""Probes as a figure: what a guided retry gains on a fresh attempt, what hints add, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.report.figures import style
from r3l.report.probes import Content, names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN = "#D55E00"
CRITIC = "#56B4E9"
WRITERS = {"the model's own hint": OWN, "the critic's hint": CRITIC}
GAIN = {"guided_minus_fresh": OWN}  # colours by the key of the measure
HINTS = {"guided_minus_unguided": OWN, "critic_guided_minus_unguided": CRITIC}
SHARES = {  # label, marker and colour
    "success": ("attempts that succeed", "o", style.GREY),
    "reflections_valid": ("reflections that are valid", "s", OWN),
    "oracle_near": ("pivots within a turn of the critic's", "D", "#009E73"),
    "hint_followed": ("hints of the critic that are followed", "^", CRITIC),
}
TITLES = ("Guided minus fresh", "Hint minus no hint", "Shares")


def draw(probes: Sequence[Content], out: Path) -> list[Path]:
    """Draw ``probes`` (at least one): a row per model under its environment, as in `r3l table probe`.

    ``out``: a folder, or the one file to write; returns the files written. Raises ConfigError if it names
    another file type than PDF or PNG, RunDirectoryError if it cannot be written.
    """
    import matplotlib.style
    from matplotlib.lines import Line2D

    # A line of text for each environment, and one for each of its models.
    lines: list[tuple[str, Content | None]] = []
    named = list(zip(names_of(probes), probes, strict=True))
    for label in dict.fromkeys(probe["label"] for probe in probes):
        lines.append((label, None))
        lines += [(name, probe) for name, probe in named if probe["label"] == label]

    with matplotlib.style.context(style.SHEET):
        figure, axes = style.subplots(1, 3, style.PAGE, 1.3 + 0.17 * len(lines), sharey=True)
        differences, hints, shares = axes[0]
        for y, (_, probe) in enumerate(lines):
            if probe is not None:
                _intervals(differences, y, probe["measures"], GAIN)
                _intervals(hints, y, probe["measures"], HINTS)
                for key, (_, marker, colour) in SHARES.items():
                    value = probe["measures"].get(key, {}).get("value")
                    if value is not None:
                        shares.plot(value, y, marker, color=colour, markersize=4)
        for ax, title in zip(axes[0], TITLES, strict=True):
            ax.set_title(title, loc="left", fontweight="bold")
            ax.grid(axis="both")
            ax.set_axisbelow(True)
            ax.tick_params(axis="y", length=0)
        for ax in (differences, hints):
            ax.axvline(0, color=style.GREY, linewidth=0.8)
            ax.set_xlabel("difference in success")
        shares.set(xlim=(-0.03, 1.03), xticks=(0, 0.5, 1), xlabel="share")
        differences.set_yticks(range(len(lines)), [style.drawable(text) for text, _ in lines])
        differences.set_ylim(len(lines) - 0.4, -0.6)
        for (_, probe), tick in zip(lines, differences.get_yticklabels(), strict=True):
            tick.set_fontweight("bold" if probe is None else "normal")

        dot: dict[str, Any] = {"linestyle": "none", "markersize": 4}
        handles = [Line2D([], [], color=c, marker="o", label=label, **dot) for label, c in WRITERS.items()]
        handles += [
            Line2D([], [], color=colour, marker=marker, label=label, **dot)
            for label, marker, colour in SHARES.values()
        ]
        style.legend(figure, handles)
        text = (
            "Left: success of retries under the model's own hint minus that of another attempt. Middle: minus "
            "that of retries from the same turn without the hint. After failures; bars: 95 % intervals over "
            "tasks. The critic is a program that knows the solution. Numbers: r3l table probe."
        )
        style.note(figure, text)
        return style.save(figure, out, "probe")


def _intervals(ax: Axes, y: float, measures: Mapping[str, Any], drawn: Mapping[str, str]) -> None:
    """Draw the measures ``drawn`` of one probe at height ``y``, each with its interval, below each other."""
    for k, (key, colour) in enumerate(drawn.items()):
        measure = measures.get(key)
        if measure is None or measure["value"] is None:
            continue
        place = y + 0.24 * (k - (len(drawn) - 1) / 2)
        if measure["low"] is not None and measure["high"] is not None:
            ax.plot([measure["low"], measure["high"]], [place, place], color=colour, linewidth=1.1)
        ax.plot(measure["value"], place, "o", color=colour, markersize=3.5)
