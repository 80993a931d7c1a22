"""Sizes of figures, colours of methods, legends, captions, and files that are equal for equal data.

A method's colour, line and marker never depend on what else is drawn. Colours are Okabe and Ito's and Paul
Tol's, safe for colour-blind readers; since twelve cannot be told apart by colour alone, a family shares a
line style and each method has a marker. What derives from a method is a tint of it.
"""

from __future__ import annotations

import colorsys
import hashlib
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from r3l.config import variant
from r3l.core.errors import ConfigError
from r3l.files.writing import writable, write_atomic
from r3l.report.figures.data import Shown
from r3l.report.labels import ranges
from r3l.stats.intervals import MIN_SEEDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r3l.stats.intervals import Interval

Drawn = tuple["Figure", Shown, str]  # a figure, the runs that it shows, and what its caption says first
COLUMN = 3.4  # inches: a column of a page
PAGE = 7.0  # inches: the text of a page
CAPTION = 6  # points
LETTERS = 22  # of a caption, an inch
GREY = "#4D4D4D"
LEGEND_ROWS = 3  # for which the heights of figures have room
CROWD = 4  # methods; more hide each other's seeds and bands
SHEET = Path(__file__).with_name("figures.mplstyle")


Dash = str | tuple[float, tuple[float, ...]]
SOLID: Dash = "-"
DASHED: Dash = (0, (4, 1.5))
DOTTED: Dash = (0, (1, 1.2))
DASHDOT: Dash = (0, (5, 1.2, 1, 1.2))


@dataclass(frozen=True)
class Look:
    """The look of a method: ``colour`` as #RRGGBB; ``dash`` and ``marker`` in matplotlib's notation."""

    colour: str
    dash: Dash
    marker: str

    def line(self) -> dict[str, Any]:
        """Keywords of a line without markers."""
        return {"color": self.colour, "linestyle": self.dash}

    def point(self, size: float = 4.5) -> dict[str, Any]:
        """Keywords of a marker without a line; ``size`` in points."""
        return {"color": self.colour, "marker": self.marker, "markersize": size, "linestyle": "none"}


METHODS = {
    # The reference, and methods that learn only from rewards: solid lines; methods that the paper lacks:
    # dotted.
    "zero_shot": Look("#7F7F7F", SOLID, "d"),
    "warm_start": Look("#A6761D", DOTTED, "X"),
    "raft": Look("#000000", SOLID, "s"),
    "opmd": Look("#56B4E9", SOLID, "v"),
    "grpo": Look("#0072B2", SOLID, "o"),
    "dapo": Look("#CC79A7", SOLID, "^"),
    "gspo": Look("#E69F00", SOLID, "P"),
    "rloo": Look("#44AA99", DOTTED, "8"),
    "reinforce_pp": Look("#AA4499", DOTTED, "H"),
    "gigpo": Look("#999933", DOTTED, "x"),
    "hgpo": Look("#6699CC", DOTTED, "2"),
    "tree_grpo": Look("#997700", DOTTED, "3"),
    # Methods that learn from text feedback: dashed lines; RLTF's: dash and dot.
    "reflect_grpo": Look("#B8A900", DASHED, "<"),
    "critique_grpo": Look("#009E73", DASHED, ">"),
    "erl": Look("#994455", DASHED, "4"),
    # Methods with a teacher: dash and dot too.
    "sdpo": Look("#225522", DASHDOT, "o"),
    "sdar": Look("#EE8866", DASHDOT, "s"),
    "ungated_teacher": Look("#BBCC33", DASHDOT, "v"),
    "rlsd": Look("#77AADD", DASHDOT, "^"),
    "agentopsd": Look("#FFAABB", DASHDOT, "d"),
    "rltf_grpo": Look("#661100", DASHDOT, "1"),
    "rltf_sft": Look("#117733", DASHDOT, "h"),
    "rltf_fm": Look("#332288", DASHDOT, "*"),
    "rltf_sd": Look("#882255", DASHDOT, "p"),
    "r3l": Look("#D55E00", SOLID, "D"),
}
ABLATIONS = {  # name: (what it derives from, tint from -1: black to 1: white, line, marker)
    "r3l_no_reflection": ("r3l", -0.62, DASHED, "s"),
    "r3l_no_amplification": ("r3l", 0.44, DASHDOT, "^"),
    "r3l_no_credit": ("r3l", -0.35, DOTTED, "v"),
    "r3l_from_start": ("r3l", 0.25, DASHED, "<"),
    "r3l_no_guidance": ("r3l", -0.50, DASHDOT, "o"),
    "r3l_random_pivot": ("r3l", 0.52, DOTTED, "H"),
    "r3l_oracle_pivot": ("r3l", -0.20, DASHED, "*"),
    "r3l_kl": ("r3l", 0.35, DASHDOT, "P"),
    "r3l_is": ("r3l", 0.14, DOTTED, "h"),
    "grpo_amplified": ("grpo", -0.40, DASHED, "8"),
}
DASHES = (DASHED, DASHDOT, DOTTED)
MARKERS = "sv^<>oP8hp*d"


def look(method: str) -> Look:
    """The look of a method, from the registry; a variant (``r3l@alpha=5``) has a tint of its method's.

    A variant with another author of feedback keeps its method's line and marker, since several methods have
    the same variants. A method that is not in the registry gets hue, line and marker from a hash of its name.
    """
    name, changes = variant(method)
    plain = METHODS.get(name)
    if name in ABLATIONS:
        base, amount, dash, marker = ABLATIONS[name]
        plain = Look(tint(METHODS[base].colour, amount), dash, marker)
    elif plain is None:
        hue, dash, marker = _hashed(name)
        plain = Look(_hex(colorsys.hls_to_rgb(hue, 0.42, 0.6)), dash, marker)
    if not changes:
        return plain
    place, dash, marker = _hashed(",".join(changes))
    colour = tint(plain.colour, (0.2 + 0.4 * place) * (1 if dash == DASHDOT else -1))
    only_feedback = all(change.startswith("feedback=") for change in changes)
    return Look(colour, plain.dash, plain.marker) if only_feedback else Look(colour, dash, marker)


def _hashed(text: str) -> tuple[float, Dash, str]:
    """A number in [0, 1), a line and a marker."""
    digest = hashlib.sha256(text.encode()).digest()
    return (
        int.from_bytes(digest[:4], "big") / 2**32,
        DASHES[digest[4] % len(DASHES)],
        MARKERS[digest[5] % len(MARKERS)],
    )


def tint(colour: str, amount: float) -> str:
    """``colour`` (#RRGGBB) mixed with white (``amount`` > 0) or black (< 0); ``amount``: share, -1 to 1."""
    target = 1.0 if amount > 0 else 0.0
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return _hex([part + (target - part) * abs(amount) for part in parts])


def _hex(rgb: Any) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


def subplots(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of ``width`` x ``height`` inches and its array of axes, always of two dimensions.

    ``options``: further arguments of matplotlib's ``Figure.subplots``.
    """
    from matplotlib.figure import Figure  # a separate canvas: no display, no state shared between figures

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def method_legend(figure: Figure, labels: Mapping[str, str]) -> None:
    """Draw a legend of the methods above the subplots; ``labels``: printed name by method, in order."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **(look(method).point(4) | look(method).line()), label=drawable(label), linewidth=1.4)
        for method, label in labels.items()
    ]
    legend(figure, handles)


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Draw a legend above the subplots, in as few rows as the width allows.

    The figure's height has room for LEGEND_ROWS of them; it grows by each further one.
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    widths = [_width(str(handle.get_label()), size) + 0.065 * size for handle in handles]  # inches
    # Handles fill one column after the other, and a column is as wide as its longest label.
    for rows in range(1, len(handles) + 1):
        columns = -(-len(handles) // rows)
        if sum(map(max, np.array_split(widths, columns))) < 0.97 * figure.get_figwidth():
            break
    further = max(0, rows - LEGEND_ROWS)
    figure.set_figheight(figure.get_figheight() + further * 1.5 * size / 72)
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6, columnspacing=1.2
    )


def _width(text: str, size: float) -> float:
    """Width of ``text`` in inches, in a font of ``size`` points."""
    font = _font()
    font.set_size(size, 720)  # dots an inch; few of them would round each letter's width
    font.set_text(text)
    width, _ = font.get_width_height()  # in 64ths of a dot
    return float(width / 64 / 720)


def method_rows(row: Sequence[Axes], labels: Mapping[str, str]) -> None:
    """Label the y axis that a row of subplots shares with methods, one per line and the first on top.

    Each label has the method's marker next to it.
    """
    from matplotlib.transforms import offset_copy

    for ax in row:
        ax.tick_params(axis="y", length=0)
    first = row[0]
    first.set_yticks(range(len(labels)), [drawable(label) for label in labels.values()])
    for tick in first.get_yticklabels():
        tick.set_parse_math(False)
    first.set_ylim(len(labels) - 0.4, -0.6)
    first.tick_params(axis="y", pad=11)
    beside = offset_copy(first.get_yaxis_transform(), first.get_figure(root=True), x=-6, units="points")
    for y, method in enumerate(labels):
        first.plot(0, y, transform=beside, clip_on=False, **look(method).point(3.5))


def dash(seeds: int) -> Any:
    """Line style of an interval: solid, or dashed for one seed, since its interval is over tasks."""
    return "-" if seeds > 1 else (0, (2, 1.5))


def interval(ax: Axes, y: float, method: str, bar: Interval, seeds: Sequence[float]) -> None:
    """Draw one method's score at height ``y``: mean, interval, and a tick per seed if there are several.

    ``method`` gives colour and marker; ``bar``: mean and bounds (None: no line); ``seeds``: the score of
    each. With one seed the interval is dashed.
    """
    seen = look(method)
    if bar.low is not None and bar.high is not None:
        ax.plot([bar.low, bar.high], [y, y], color=seen.colour, linewidth=1.1, linestyle=dash(len(seeds)))
    if len(seeds) > 1:
        ax.plot(seeds, [y] * len(seeds), "|", color=seen.colour, markersize=5, markeredgewidth=0.8)
    ax.plot(bar.mean, y, **seen.point(4.5))


def interval_note(shown: Shown, one_seed: str) -> str:
    """The caption's sentence on the bars of :func:`interval`; ``one_seed`` says what a dashed one is."""
    counts = {len(of_method) for bench in shown.benches for of_method in bench.runs.values()}
    notes = ["Markers: means"]
    if max(counts) > 1:
        notes.append(
            "ticks: seeds; bars: 95 % t-intervals over seeds"
            + (f", from {MIN_SEEDS} on" if 2 in counts else "")
        )
    if 1 in counts:
        notes.append(f"dashed bars: one seed, 95 % {one_seed}, which says nothing about other seeds")
    return "; ".join(notes) + "."


def one_seed_interval(shown: Shown) -> str:
    """The interval of one seed's score (r3l.stats.intervals.task_interval) in words."""
    one_attempt = (shown.runs.episodes == shown.runs.tasks.map(len)).all()
    return "Wilson interval over its test episodes" if one_attempt else "interval over its test tasks"


def caption(figure: Figure, shown: Shown, text: str) -> None:
    """Draw ``text``, then tier, seeds and task sets, below the subplots, wrapped to the figure's width."""
    distinct = shown.runs[["env", "task_set", "task_set_sha256"]].drop_duplicates()
    task_sets = {f"{run.env} {run.task_set} ({run.task_set_sha256[:12]})" for run in distinct.itertuples()}
    whole = f"{text} Tier {shown.runs.iloc[0].tier_label}; {seeds(shown)}; "
    whole += f"test task sets {', '.join(sorted(task_sets))}."
    figure.align_labels()
    note(figure, whole, linespacing=1.25)


def note(figure: Figure, text: str, **options: Any) -> None:
    """Draw ``text`` below the subplots, wrapped to the figure's width.

    ``options``: keyword arguments of matplotlib's text.
    """
    wrapped = textwrap.fill(text.replace(" %", "\u00a0%"), round(LETTERS * figure.get_figwidth()))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=CAPTION, color=GREY, **options)


def seeds(shown: Shown) -> str:
    """The seeds in the figure as text, ``seeds 0 to 4``, and their numbers if these differ by method."""
    numbers = sorted(set(map(int, shown.runs.seed)))
    counts = sorted({len(of_method) for bench in shown.benches for of_method in bench.runs.values()})
    listed = f"seed{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
    return listed if len(counts) == 1 else f"{listed} ({counts[0]} to {counts[-1]} a method and environment)"


def save(figure: Figure, out: Path, name: str = "") -> list[Path]:
    """Write the figure as PDF and PNG, without dates, so that equal data give equal bytes.

    ``out``: a file, which is the only one written; or the folder of NAME.pdf and NAME.png; or, without
    ``name``, their path without suffix. Returns the paths written; folders are made. Raises ConfigError for
    another file type, RunDirectoryError if writing fails.
    """
    from matplotlib.axis import Tick
    from matplotlib.text import Text

    if out.suffix[1:] in figure.canvas.get_supported_filetypes() and out.suffix not in WRITERS:
        raise ConfigError(
            f"{out} cannot be drawn: a figure is a {' or '.join(WRITERS)} file; give one, or no suffix"
        )
    # All text is literal, not mathematics, except tick labels (logarithmic axes need them).
    ticks = {text for tick in figure.findobj(Tick) for text in tick.findobj(Text)}
    for text in set(figure.findobj(Text)) - ticks:
        text.set_parse_math(False)
        text.set_text(drawable(text.get_text()))

    stem = out / name if name else out
    paths = [out] if out.suffix in WRITERS else [stem.with_name(stem.name + suffix) for suffix in WRITERS]
    with writable(paths[0]):
        for path in paths:  # a file is drawn in memory: matplotlib fails in its own ways on a full disk
            write_atomic(path, WRITERS[path.suffix](figure))
    return paths


def drawable(text: str) -> str:
    """``text`` in a form that matplotlib can draw.

    Characters that the font lacks become code points. A leading underscore gets a space before it, since
    legends leave out labels that begin with one.
    """
    lacking = {
        ord(c): f"<U+{ord(c):04X}>"
        for c in set(text)
        if not c.isspace() and not _font().get_char_index(ord(c))
    }
    return (" " if text.startswith("_") else "") + text.translate(lacking)


@cache
def _font() -> Any:
    from matplotlib import font_manager

    return font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))


def _pdf(figure: Figure) -> bytes:
    """A PDF without a date."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="pdf", metadata={"CreationDate": None})
    return drawn.getvalue()


def _png(figure: Figure) -> bytes:
    """A PNG of 256 colours, a third of the bytes: the colours of all methods, and the most frequent
    others."""
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, ImageColor

    # Drawn once: savefig draws everything twice, first for the layout, and packs pixels that are unpacked
    # here.
    if rcParams["savefig.dpi"] != "figure":
        figure.set_dpi(rcParams["savefig.dpi"])
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    fixed = [ImageColor.getrgb(look(method).colour) for method in (*METHODS, *ABLATIONS)]
    counted = cast(list[tuple[int, tuple[int, int, int]]], picture.getcolors(picture.width * picture.height))
    seen = sorted(counted, key=lambda pair: (-pair[0], pair[1]))
    chosen = [*fixed, *(colour for _, colour in seen)][:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in chosen for part in colour])
    small = io.BytesIO()
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()


WRITERS = {".pdf": _pdf, ".png": _png}
