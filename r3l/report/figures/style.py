"""The house style: sizes of a printed page, legends and captions outside the subplots, files that repeat."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import ConfigError
from r3l.files.writing import writable
from r3l.report.figures.data import Shown
from r3l.report.figures.palette import ABLATIONS, METHODS, look
from r3l.report.labels import ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r3l.evaluation.statistics import Interval

Drawn = tuple["Figure", Shown, str]  # a figure, the runs that it shows, and what its caption says first
COLUMN, PAGE = 3.4, 7.0  # inches: a column, and the text of a page
POINTS = 72  # of an inch
DPI = 180  # of a PNG
CAPTION = 6  # points
GREY = "#4D4D4D"
CROWD = 4  # methods; more hide each other's seeds and bands
RC: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "legend.fontsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid.axis": "both",
    "grid.linewidth": 0.4,
    "grid.alpha": 0.35,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.04,  # inches
    "figure.constrained_layout.h_pad": 0.04,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": DPI,
}


def subplots(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of ``width`` x ``height`` inches and its array of axes, always of two dimensions."""
    from matplotlib.figure import Figure  # a canvas of its own: no display, no state shared between figures

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def grid(count: int, across: int, cell_height: float, margin: float) -> tuple[Figure, Any]:
    """A figure with ``count`` subplots, ``across`` side by side, that share their y axis; its array of axes.

    ``cell_height`` of a row and ``margin`` for legend and caption, in inches; places that are left over are empty.
    """
    down = math.ceil(count / across)
    width = max(1.9 * across + 0.6, COLUMN)
    figure, axes = subplots(down, across, width, cell_height * down + margin, sharey=True)
    for ax in axes.flat[count:]:
        ax.remove()
    return figure, axes


def method_legend(figure: Figure, labels: Mapping[str, str]) -> None:
    """Above the subplots: what each method looks like."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **(look(method).point(4) | look(method).line()), label=label, linewidth=1.4)
        for method, label in labels.items()
    ]
    legend(figure, handles)


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Above the subplots, in as few rows as the width allows."""
    widths = [0.055 * len(str(handle.get_label())) + 0.45 for handle in handles]  # inches
    rows = math.ceil(sum(widths) / (0.92 * figure.get_figwidth()))
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6, columnspacing=1.2)


def method_rows(row: Sequence[Axes], labels: Mapping[str, str]) -> None:
    """Methods as the rows of subplots with one y axis, the first on top, each label beside the method's marker."""
    from matplotlib.transforms import offset_copy

    for ax in row:
        ax.tick_params(axis="y", length=0)
    first = row[0]
    first.set_yticks(range(len(labels)), list(labels.values()))
    first.set_ylim(len(labels) - 0.4, -0.6)
    first.tick_params(axis="y", pad=11)
    beside = offset_copy(first.get_yaxis_transform(), first.get_figure(root=True), x=-6, units="points")
    for y, method in enumerate(labels):
        first.plot(0, y, transform=beside, clip_on=False, **look(method).point(3.5))


def dash(seeds: int) -> Any:
    """The line of an interval: dashed for one seed, whose interval is over tasks."""
    return "-" if seeds > 1 else (0, (2, 1.5))


def interval(ax: Axes, y: float, method: str, bar: Interval, seeds: Sequence[float]) -> None:
    """A row of a plot of scores: the mean, every seed where there are several, the interval (dashed for one seed)."""
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
        notes.append("ticks: seeds; bars: 95 % t-intervals over seeds")
    if 1 in counts:
        notes.append(f"dashed bars: one seed, 95 % {one_seed}, which says nothing about other seeds")
    return "; ".join(notes) + "."


def caption(figure: Figure, shown: Shown, text: str) -> None:
    """Below the subplots: what is drawn, then tier, seeds and subplots, wrapped to the figure's width."""
    whole = f"{text} Tier {next(shown.records())['label']}; {seeds(shown)}; test task sets {_test_task_sets(shown)}."
    unbroken = whole.replace(" %", "\u00a0%")
    wrapped = _filled(unbroken, 0.98 * POINTS * figure.get_figwidth())
    figure.align_labels()
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=CAPTION, color=GREY, linespacing=1.25)


def _filled(text: str, width: float) -> str:
    """Lines of at most ``width`` points in a PNG, whose letters are set to whole pixels, and in a PDF."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font, lines = FontProperties(size=CAPTION), [""]
    pixels: Any = RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call] # matplotlib's is untyped
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        in_png = pixels.get_text_width_height_descent(longer, font, ismath=False)[0] * POINTS / DPI
        in_pdf = text_to_path.get_text_width_height_descent(longer, font, ismath=False)[0]
        if max(in_png, in_pdf) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def seeds(shown: Shown) -> str:
    """The seeds that are drawn, and how many of them a method has where that differs."""
    numbers = sorted({record["seed"] for record in shown.records()})
    counts = sorted({len(of_method) for bench in shown.benches for of_method in bench.runs.values()})
    listed = f"seed{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
    return listed if len(counts) == 1 else f"{listed} ({counts[0]} to {counts[-1]} a method and environment)"


def _test_task_sets(shown: Shown) -> str:
    return ", ".join(
        sorted({f"{r['env']} {r['task_set']['name']} ({r['task_set']['sha256'][:12]})" for r in shown.records()})
    )


def save(figure: Figure, out: Path, name: str = "") -> list[Path]:
    """PDF and PNG, or the one that ``out`` names by its suffix; without dates, so that equal data give equal bytes.

    ``out`` is else the folder of files called ``name``, or without one their path but for the suffix. Raises
    ConfigError for a picture of another kind, RunDirectoryError where they cannot be written.
    """
    if out.suffix[1:] in figure.canvas.get_supported_filetypes() and out.suffix not in WRITERS:
        raise ConfigError(f"{out} cannot be drawn: a figure is a {' or '.join(WRITERS)} file; give one, or no suffix")
    stem = out / name if name else out
    paths = [out] if out.suffix in WRITERS else [stem.with_name(stem.name + suffix) for suffix in WRITERS]
    with writable(paths[0]):
        for path in paths:
            WRITERS[path.suffix](figure, path)
    return paths


def _pdf(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"CreationDate": None})


def _png(figure: Figure, path: Path) -> None:
    """With 256 colours, a third of the bytes: those of all methods, unchanged, and the most frequent others."""
    from PIL import Image, ImageColor

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    pixels = np.asarray(Image.open(drawn).convert("RGB"))
    colours, where, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    fixed = [ImageColor.getrgb(look(method).colour) for method in (*METHODS, *ABLATIONS)]
    frequent = colours[np.argsort(-counts, kind="stable")[: 256 - len(fixed)]]
    palette = np.concatenate([np.array(fixed, dtype=np.uint8), frequent])
    apart = ((colours[:, None].astype(np.int32) - palette) ** 2).sum(axis=2)
    picture = Image.fromarray(apart.argmin(axis=1).astype(np.uint8)[where].reshape(pixels.shape[:2]), mode="P")
    picture.putpalette(palette.tobytes())
    picture.save(path, optimize=True)


WRITERS = {".pdf": _pdf, ".png": _png}
