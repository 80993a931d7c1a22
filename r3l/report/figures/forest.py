"""The claims as a forest plot: a row a claim, a column an environment, an effect with its interval."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.core.errors import DataError
from r3l.report.claim_rows import ClaimVerdict
from r3l.report.claims import Claims, Family
from r3l.report.claims_table import sentence
from r3l.report.figures import style
from r3l.stats.comparison import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    Verdict.AHEAD: "#0072B2",
    Verdict.BEHIND: "#D55E00",
    Verdict.EQUIVALENT: "#009E73",
    Verdict.INCONCLUSIVE: "#7F7F7F",
}
FEW = "#000000"  # the values of one or two seeds
TITLE = 18  # characters in a line of a column's title
LONGEST = 150  # characters of a row's name
MARKERS = {"seeds": "o", "tasks": "s"}


def draw(rows: Sequence[ClaimVerdict], claims_file: Claims, out: Path) -> list[Path]:
    """Draw the claims into the folder ``out``, or as the one file ``out``; returns the files written.

    ``rows``: verdicts. ``claims_file``: its margin of equivalence is shaded. Registered and exploratory
    claims are left out: `r3l figure held_out` shows these. Effects in another unit than shares are not on the
    axis; their rows say so. Raises DataError if there is no effect, ConfigError if ``out``
    names another file type than PDF or PNG, RunDirectoryError if it cannot be written.
    """
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = [row for row in rows if row.claim.family is Family.PAPER]
    claims = list({row.claim.id: row.claim for row in rows}.values())
    place = {claim.id: y for y, claim in enumerate(claims)}
    # An environment with effects for many claims has a column; the few effects of others share a panel below.
    effects = Counter(row.label for row in rows if _on_axis(row))
    labels = [label for label in dict.fromkeys(row.label for row in rows) if effects[label] > len(claims) / 4]
    labels = labels or list(effects)[:1]
    if not labels:
        raise DataError(
            "no run or probe tests one of the paper's claims; `r3l table claims` prints the command of each"
        )
    further = [row for row in rows if _on_axis(row) and row.label not in labels]
    # The axis is as wide as the widest interval, to the same length on either side of 0.
    extents = [claims_file.margin]
    for row in rows:
        if _on_axis(row):
            ends = row.points or (row.comparison.effect.bounds() if row.comparison else ())
            extents += map(abs, ends)
    reach = max(extents) * 1.05
    lines = max(len(claims), 1), len(further) + 2

    with matplotlib.style.context(style.SHEET):
        size = (4 + 2 * len(labels), 0.9 + 0.17 * (lines[0] + (lines[1] if further else 0)))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(2 if further else 1, len(labels), height_ratios=lines if further else None)
        columns = [figure.add_subplot(grid[0, k]) for k in range(len(labels))]
        for ax, label in zip(columns, labels, strict=True):
            _panel(ax, textwrap.fill(label, TITLE), len(claims), reach, claims_file)
            for row in rows:
                if row.label == label:
                    _effect(ax, place[row.claim.id], row)
        columns[0].set_yticks(range(len(claims)), [style.drawable(sentence(claim)) for claim in claims])
        if further:
            below = figure.add_subplot(grid[1, :])
            _panel(below, "Other environments and models", len(further), reach, claims_file)
            for y, row in enumerate(further):
                _effect(below, y, row)
            named = [style.drawable(f"{sentence(row.claim)}: {row.label}") for row in further]
            below.set_yticks(range(len(further)), [textwrap.shorten(name, LONGEST) for name in named])
        dot: dict[str, Any] = {"linestyle": "none", "markersize": 4}
        handles = [
            Line2D([], [], color=colour, marker="o", label=word, **dot) for word, colour in COLOURS.items()
        ]
        handles += [Line2D([], [], color=style.GREY, marker="s", label="over tasks, one fixed model", **dot)]
        handles += [Line2D([], [], color=FEW, marker="|", label="one or two seeds: their values", **dot)]
        style.legend(figure, handles)
        text = (
            "Effects with 95 % intervals (not corrected), over training seeds on the same test tasks, or "
            "over tasks. Verdicts: Benjamini-Hochberg over the claims of the paper; green: equivalence "
            f"margin of {claims_file.margin:g}. Numbers, published ones and commands: r3l table claims."
        )
        style.note(figure, text)
        return style.save(figure, out, "claims")


def _panel(ax: Axes, title: str, count: int, reach: float, claims_file: Claims) -> None:
    """Prepare an axis for ``count`` rows, of effects up to ``reach`` on either side."""
    ax.axvspan(-claims_file.margin, claims_file.margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(0, color=style.GREY, linewidth=0.6)
    ax.set_title(title, loc="left", fontweight="bold")
    ax.set(xlim=(-reach, reach), xlabel="effect", ylim=(count - 0.4, -0.6))
    ax.set_yticks(range(count), [""] * count)
    ax.grid(axis="y")
    ax.set_axisbelow(True)


def _on_axis(row: ClaimVerdict) -> bool:
    """True if ``row`` has an effect in shares, the unit of the axis."""
    return bool(row.count) and row.claim.has_margin and bool(row.points or row.comparison)


def _effect(ax: Axes, y: int, row: ClaimVerdict) -> None:
    if not row.count or not row.claim.has_margin:
        said = f"{row.verdict}, other unit" if row.count else row.verdict
        ax.text(0, y, said, ha="center", va="center", fontsize=5, color=style.GREY, backgroundcolor="white")
    elif row.points:
        ax.plot(row.points, [y] * len(row.points), "|", color=FEW, markersize=6)
    elif row.comparison is not None:
        effect = row.comparison.effect
        colour = COLOURS[Verdict(row.verdict)]
        ax.plot(effect.bounds(), [y, y], color=colour, linewidth=1.1)
        ax.plot(effect.mean, y, MARKERS[row.over], color=colour, markersize=3.5)
