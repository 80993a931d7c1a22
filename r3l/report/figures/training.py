"""Figures over training: learning curves, exploration, training dynamics, pivots. A row an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import DataError
from r3l.report.figures import series, style
from r3l.report.figures.data import Bench, Shown
from r3l.report.figures.series import mean_of, rate_of
from r3l.report.figures.style import look
from r3l.report.updates import WINDOW, training_of, window_sums
from r3l.stats.intervals import MIN_SEEDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r3l.report.figures.style import Drawn

Keep = Callable[[Any], bool]  # of a row of r3l.report.frame
Cell = tuple["Axes", Bench, "Quantity"]
WIDE = 4  # columns; more are turned into rows


@dataclass(frozen=True)
class Quantity:
    """One quantity of a figure: its axis label, its value in a window of updates, and the horizontal axis.

    ``against`` labels the horizontal axis, ``advance`` gives how far each update moves along it. ``share``:
    the vertical axis begins at 0; ``log``: it is logarithmic if all values are above 0.
    """

    label: str
    value: series.Value
    against: str = "updates"
    advance: series.Advance = series.updates
    share: bool = False  # the axis begins at 0
    log: bool = False


def success(metrics: series.Columns, window: int) -> series.Floats:
    """Success of base rollouts over the ``window`` updates up to each one, shape (U,); NaN without any.

    As r3l.runs.step_metrics.base_success of their counts, for thousands of runs at once.
    """
    names = ("rollouts", "retry/count", "stop/success", "retry/success")
    rollouts, retries, solved, solved_retries = (window_sums(metrics.counts(name), window) for name in names)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rollouts == retries, np.nan, (solved - solved_retries) / (rollouts - retries))


LEARNING = (
    Quantity("training success", success, share=True),
    Quantity("training success", success, "generated tokens (thousands)", series.tokens, True),
    Quantity("training success", success, "time (minutes)", series.minutes, True),
)
EXPLORATION = (
    Quantity("reward gain", rate_of("retry_gain")),
    Quantity("improved retries", rate_of("retry_improved"), share=True),
    Quantity("retries per base", rate_of("retry_trigger"), share=True),
)
DYNAMICS = (
    Quantity("reward", mean_of("train/reward")),
    Quantity("KL (nats/token)", mean_of("kl_to_start"), log=True),
    Quantity("gradient norm", mean_of("grad_norm")),
    Quantity("entropy (nats/token)", mean_of("entropy")),
    Quantity("loss", mean_of("loss")),
    Quantity("clip fraction", mean_of("clip_fraction"), share=True),
)
PIVOT = (
    Quantity("pivot (turn)", rate_of("pivot_turn")),
    Quantity("pivot (share)", rate_of("pivot_position"), share=True),
    Quantity("oracle agreement", rate_of("pivot_oracle_agreement"), share=True),
)


def learning_curves(shown: Shown) -> Drawn:
    """Figure of learning curves: success of base rollouts against updates, generated tokens and time.

    Raises DataError if no run was trained.
    """
    return _draw(shown, LEARNING, "Success of base rollouts in training", lambda run: True, "")


def exploration(shown: Shown) -> Drawn:
    """Figure of retries in training, each compared with the base rollout that it retries.

    Mean gain in reward over it, share of retries that improve on it, and retries per base rollout. Leaves out
    runs without retries; raises DataError if none is left.
    """
    text = "Retries in training: mean gain in reward over their base, share of gains, number a base rollout"
    return _draw(shown, EXPLORATION, text, _any("retry/count"), "without retries")


def dynamics(shown: Shown) -> Drawn:
    """Figure of reward, KL to the base checkpoint, gradient norm, entropy, loss and clip fraction.

    One subplot per environment and quantity, one line per method, over the updates of training. Raises
    DataError if no run was trained.
    """
    return _draw(shown, DYNAMICS, "Training dynamics; KL: to the base checkpoint", lambda run: True, "")


def pivot(shown: Shown) -> Drawn:
    """Figure of the pivot, the turn at which retries begin, and how often it is exactly the oracle's.

    Its mean turn, and its mean share of the base rollout. The oracle is the environment's critic. Leaves out
    runs without retries and without pivots to compare; raises DataError if none is left.
    """
    text = (
        "Where a retry begins (turns kept of its base), and how often the reflection names the oracle's turn"
    )
    return _draw(shown, PIVOT, text, _any("pivot/turns", "pivot/with_oracle"), "without a pivot of their own")


def _any(*keys: str) -> Keep:
    """A test of a run: it counted one of ``keys`` at some update."""
    return lambda run: any(training_of(run.path).columns.counts(key).any() for key in keys)


def _draw(shown: Shown, columns: Sequence[Quantity], text: str, keep: Keep, lacking: str) -> Drawn:
    """Draw trained runs that ``keep`` accepts; raises DataError if there are none.

    Returns the figure, the runs in it and its caption. ``lacking``: reason why ``keep`` rejects the others.
    """
    trained = shown.only(lambda run: run.steps > 0)
    drawn = trained.only(keep)
    labels = drawn.labels()
    if not labels:
        why = f"all of them are {lacking}" if trained.benches else "none of them was trained"
        raise DataError(f"nothing to draw of {', '.join(shown.labels().values())}: {why}; add runs of r3l")
    figure, cells = _cells(drawn.benches, columns)
    missing: dict[str, dict[str, None]] = {}

    # Metrics of a run are read once, for all of its quantities.
    curves: dict[str, dict[Quantity, dict[str, list[series.Curve]]]] = {}
    for bench in drawn.benches:
        of_bench = {column: {method: list[series.Curve]() for method in bench.runs} for column in columns}
        for method, seeds in bench.runs.items():
            for metrics in (training_of(path).columns for path in seeds.path):
                quantities = dict.fromkeys(column.value for column in columns)
                values = {value: value(metrics, WINDOW) for value in quantities}
                for column in columns:
                    curve = series.curve(metrics, values[column.value], column.advance)
                    if curve is not None:
                        of_bench[column][method].append(curve)
        curves[bench.env] = of_bench

    # Each quantity of every method; one that only some methods recorded is named in the caption.
    for ax, bench, column in cells:
        of_methods = curves[bench.env][column]
        if not any(of_methods.values()):
            place: dict[str, Any] = {"ha": "center", "va": "center", "transform": ax.transAxes}
            ax.text(0.5, 0.5, "not recorded", color=style.GREY, **place)
            ax.set(xticks=[], yticks=[])
            continue
        for number, (method, defined) in enumerate(of_methods.items()):
            if defined:
                _method(ax, method, defined, number, _crowded(bench))
            else:
                missing.setdefault(column.label, {})[labels[method]] = None
        ax.grid(True)
        _limits(ax, column)
    style.method_legend(figure, labels)
    left_out = [label for method, label in trained.labels().items() if method not in labels]
    notes = [f"{lacking.capitalize()}: {'; '.join(left_out)}"] if left_out else []
    notes += [f"Not recorded: {label} of {'; '.join(methods)}" for label, methods in missing.items()]
    return figure, drawn, ". ".join([text, _lines(drawn), *notes]) + "."


def _lines(shown: Shown) -> str:
    """The caption's sentence on lines and bands."""
    several = any(len(seeds) >= MIN_SEEDS for bench in shown.benches for seeds in bench.runs.values())
    band = (
        f"band: 95 % t-interval over seeds, from {MIN_SEEDS} on"
        if several
        else f"no band under {MIN_SEEDS} seeds"
    )
    crowd = (
        f", both left out where there are over {style.CROWD} methods"
        if any(map(_crowded, shown.benches))
        else ""
    )
    return (
        f"Thin lines: seeds; thick: means over seeds after equal updates; {band}{crowd}; "
        f"all are running means over {WINDOW} updates"
    )


def _crowded(bench: Bench) -> bool:
    return len(bench.runs) > style.CROWD


def _cells(benches: Sequence[Bench], columns: Sequence[Quantity]) -> tuple[Figure, list[Cell]]:
    """Lay out the subplots: which environment and quantity each shows.

    One row per environment; with many quantities, one row per quantity; for a single environment, rows of
    three.
    """
    cells = [[(bench, column) for column in columns] for bench in benches]
    if len(benches) == 1:
        cells = [cells[0][k : k + 3] for k in range(0, len(columns), 3)]
    elif len(columns) > WIDE:
        cells = [list(row) for row in zip(*cells, strict=True)]
    by_row = len(benches) == 1 or len(columns) <= WIDE
    rows = len(cells)
    across = len(cells[0])
    height = 1.9 if by_row and any(map(_crowded, benches)) else 1.35
    figure, axes = style.subplots(rows, across, max(style.PAGE, 1.75 * across), height * rows + 0.9)
    drawn = []
    for i, row in enumerate(cells):
        for k, (bench, column) in enumerate(row):
            if (k == 0 and (i == 0 or len(benches) > 1)) if by_row else i == 0:
                axes[i, k].set_title(bench.label, loc="left", fontweight="bold")
            axes[i, k].set_ylabel(column.label if by_row or k == 0 else "")
            axes[i, k].set_xlabel(column.against if i == rows - 1 else "")
            drawn.append((axes[i, k], bench, column))
    return figure, drawn


def _limits(ax: Axes, column: Quantity) -> None:
    """The range of the lines: a wide band may leave the axis, a line does not."""
    heights = np.concatenate([line.get_ydata() for line in ax.lines])
    if column.log and heights.min() > 0:
        low = np.floor(np.log10(heights.min()))
        high = np.ceil(np.log10(heights.max()))
        ax.set(yscale="log", ylim=(10.0**low, 10.0 ** max(high, low + 1)))  # complete decades: labelled ticks
        return
    low, high = (0.0, heights.max()) if column.share else (heights.min(), heights.max())
    margin = 0.05 * (high - low) or 0.05
    if low < 0 < high:
        ax.axhline(0, color=style.GREY, linewidth=0.6)
    ax.set_ylim(low - margin * (0.1 if high == 0 else 1), high + margin)


def _method(ax: Axes, method: str, curves: Sequence[series.Curve], place: int, crowded: bool) -> None:
    """Draw a method's seeds, mean and band; of a ``crowded`` subplot only the mean, thinner."""
    seen = look(method)
    band = series.band(curves)
    if not crowded and len(curves) > 1:
        for curve in curves:
            ax.plot(curve.x, curve.y, color=seen.colour, linewidth=0.5, alpha=0.5)
    if not crowded and band.low is not None and band.high is not None:
        ax.fill_between(band.x, band.low, band.high, color=seen.colour, alpha=0.15, linewidth=0)
    apart = max(1, len(band.x) // 4)  # markers tell lines apart; each method has them at other updates
    marks: dict[str, Any] = {
        "marker": seen.marker,
        "markersize": 3,
        "markevery": (place * apart // 6 % apart, apart),
    }
    ax.plot(band.x, band.mean, linewidth=0.9 if crowded else 1.2, **seen.line(), **marks)
