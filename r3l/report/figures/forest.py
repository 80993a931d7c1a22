"""The claims as a forest plot: a row a claim, a column an environment, an effect with its interval."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.report.claim_verdicts import ClaimVerdict
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
REACH = 0.65  # of the axis, on either side
MARKERS = {"seeds": "o", "tasks": "s"}


def draw(rows: Sequence[ClaimVerdict], of: Claims, out: Path) -> list[Path]:
    """Draw the claims into the folder ``out``, or as the one file ``out``; returns what was written.

    Registered and exploratory claims are left out: r3l figure held_out is about these. Effects in another unit than
    shares have no place on the axis: their rows say so. Raises RunDirectoryError where ``out`` cannot be written.
    """
    import matplotlib.style
    from matplotlib.lines import Line2D

    rows = [row for row in rows if row.claim.family is Family.PAPER]
    claims = list({row.claim.id: row.claim for row in rows}.values())
    place = {claim.id: y for y, claim in enumerate(claims)}
    labels = list(dict.fromkeys(row.label for row in rows))
    with matplotlib.style.context(style.SHEET):
        figure, axes = style.subplots(
            1, len(labels), 4 + 1.5 * len(labels), 0.9 + 0.17 * len(claims), sharey=True
        )
        for ax, label in zip(axes[0], labels, strict=True):
            ax.axvspan(-of.margin, of.margin, color="#009E73", alpha=0.15, linewidth=0)
            ax.axvline(0, color=style.GREY, linewidth=0.6)
            for row in rows:
                if row.label == label:
                    _effect(ax, place[row.claim.id], row)
            ax.set_title(textwrap.fill(label, TITLE), loc="left", fontweight="bold")
            ax.set(xlim=(-REACH, REACH), xlabel="effect", ylim=(len(claims) - 0.4, -0.6))
            ax.grid(axis="y")
            ax.set_axisbelow(True)
        axes[0, 0].set_yticks(range(len(claims)), [style.drawable(sentence(claim)) for claim in claims])
        dot: dict[str, Any] = {"linestyle": "none", "markersize": 4}
        handles = [
            Line2D([], [], color=colour, marker="o", label=word, **dot) for word, colour in COLOURS.items()
        ]
        handles += [Line2D([], [], color=style.GREY, marker="s", label="over tasks, one fixed model", **dot)]
        handles += [Line2D([], [], color=FEW, marker="|", label="one or two seeds: their values", **dot)]
        style.legend(figure, handles)
        text = (
            "Effects with 95 % intervals (not corrected), over training seeds on the same test tasks, or over tasks. "
            f"Verdicts: Benjamini-Hochberg over the claims of the paper; green: equivalence margin of {of.margin:g}. "
            "Numbers, published ones and commands: r3l table claims."
        )
        figure.supxlabel(text, x=0.01, ha="left", fontsize=style.CAPTION, color=style.GREY)
        return style.save(figure, out, "claims")


def _effect(ax: Axes, y: int, row: ClaimVerdict) -> None:
    if not row.count or not row.claim.has_margin:
        said = f"{row.verdict}, other unit" if row.count else row.verdict
        ax.text(0, y, said, ha="center", va="center", fontsize=5, color=style.GREY, backgroundcolor="white")
    elif row.points:
        ax.plot(row.points, [y] * len(row.points), "|", color=FEW, markersize=6)
    elif row.comparison is not None:
        effect, colour = row.comparison.effect, COLOURS[Verdict(row.verdict)]
        ax.plot(effect.bounds(), [y, y], color=colour, linewidth=1.1)
        ax.plot(effect.mean, y, MARKERS[row.over], color=colour, markersize=3.5)
