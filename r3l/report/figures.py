"""Figures: every seed as a thin line, their mean as a thick one; one colour a method in all figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.config import EnvConfig, load
from r3l.core.errors import DataError, RunDirectoryError
from r3l.evaluation import statistics
from r3l.report.records import Record, by_method, groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for colour-blind readers; the methods of the first table keep theirs for good.
FIXED = {"zero_shot": "#7F7F7F", "grpo": "#0072B2", "r3l": "#D55E00"}
OTHERS = (  # the rest of that palette, then Paul Tol's muted one: eleven apart from each other and from the fixed three
    *("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A900"),
    *("#332288", "#882255", "#117733", "#88CCEE", "#AA4499"),
)
RETRY_RATES = {  # name: (numerator, denominator, line style)
    "valid reflections": ("reflection/valid", "reflection/count", ":"),
    "successful retries": ("retry/success", "retry/count", "-"),
    "improved retries": ("retry/improved", "retry/count", "--"),
}
Series = tuple[np.ndarray, np.ndarray]


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method: the fixed ones, then the palette by name."""
    rest = sorted(set(methods) - set(FIXED))
    return FIXED | {name: OTHERS[k % len(OTHERS)] for k, name in enumerate(rest)}


def training_curves(records: Sequence[Record], out: Path) -> list[Path]:
    """``out``/training_curves.{pdf,png}: a row an environment.

    In a row: training success by step and by tokens, reflections and retries, final test success.
    """
    benches = _benches(records)
    pyplot, style = _pyplot()
    with pyplot.rc_context(style):
        size = (14, 3.1 * len(benches) + 0.9)
        figure, axes = pyplot.subplots(len(benches), 4, figsize=size, layout="constrained", squeeze=False)
        colour = colours(list(by_method(records)))
        for row, found in zip(axes, benches, strict=True):
            methods = by_method(found)
            _curves(row[0], methods, colour, lambda line: 1.0, "step", 1)
            _curves(row[1], methods, colour, lambda line: line.get("tokens/generated", 0), "generated tokens (k)", 1000)
            _retries(row[2], methods, colour)
            _final(row[3], methods, colour)
            row[0].set_ylabel(f"{_label(found[0])}\n{row[0].get_ylabel()}")
        _title(figure, records)
        handles, labels = axes[0, 3].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
        paths = _save(figure, out / "training_curves")
        pyplot.close(figure)
    return paths


def scores(records: Sequence[Record], out: Path, methods: Sequence[str] = (), name: str = "scores") -> list[Path]:
    """``out``/<name>.{pdf,png}: test success of every method, a row an environment, a panel a task group.

    Bars are 95 % t-intervals over seeds. With one seed they are Wilson intervals over that run's tasks, drawn dashed:
    they say how exactly one run was measured, not how another would end.
    """
    benches = [
        {method: seeds for method, seeds in by_method(found, methods).items() if seeds} for found in _benches(records)
    ]
    columns = max(len(groups([record for seeds in runs.values() for record in seeds])) for runs in benches)
    pyplot, style = _pyplot()
    colour = colours([method for runs in benches for method in runs])
    with pyplot.rc_context(style):
        heights = [len(runs) + 2 for runs in benches]
        figure, axes = pyplot.subplots(
            len(benches),
            columns,
            figsize=(3.2 * columns + 1.5, 0.32 * sum(heights) + 1.0),
            layout="constrained",
            sharex=True,
            sharey="row",
            squeeze=False,
            height_ratios=heights,
        )
        for row, runs in zip(axes, benches, strict=True):
            _score_row(row, runs, colour)
        for panel in axes[-1]:
            panel.set(xlabel="test success (last checkpoint)", xlim=(0, None))
        _title(figure, records)
        several = any(len(seeds) > 1 for runs in benches for seeds in runs.values())
        note = "solid: 95 % t-interval over seeds; " if several else ""
        constant = "; dotted line: best constant answer" if any("constant" in r["panel"] for r in records) else ""
        figure.supxlabel(f"{note}dashed: one seed, 95 % Wilson interval over its test episodes{constant}", fontsize=7)
        paths = _save(figure, out / name)
        pyplot.close(figure)
    return paths


def _score_row(row: Any, runs: dict[str, list[Record]], colour: dict[str, str]) -> None:
    """An environment's row; it may have fewer groups than another."""
    first = next(iter(runs.values()))[0]
    label = _label(first)
    names = groups([record for seeds in runs.values() for record in seeds])
    for panel in row[len(names) :]:
        panel.set_axis_off()
    for panel, group in zip(row, names, strict=False):
        for y, (method, seeds) in enumerate(runs.items()):
            _score(panel, y, seeds, group, colour[method])
        if "constant" in first["panel"]:
            panel.axvline(first["panel"]["constant"]["success"][group], color="0.5", linestyle=":", linewidth=1)
        panel.set_title(f"{label}, {group}", fontsize=9)
        panel.grid(axis="x", alpha=0.3)
    row[0].set_yticks(range(len(runs)), [seeds[0]["method_label"] for seeds in runs.values()])
    row[0].set_ylim(len(runs) - 0.5, -0.5)  # the first method on top


def _score(axes: Axes, y: int, seeds: list[Record], group: str, colour: str) -> None:
    values = [record["groups"][group]["success"] for record in seeds]
    several = len(values) > 1
    found = statistics.t_interval(values) if several else statistics.wilson_interval(seeds[0].successes(group))
    dash = "-" if several else (0, (2, 2))
    axes.plot(np.asarray([found.low, found.high], dtype=float), [y, y], color=colour, linewidth=1.4, linestyle=dash)
    axes.plot(values, [y] * len(values), "o", color=colour, markersize=3, alpha=0.6)
    axes.plot(found.mean, y, "D", color=colour, markersize=5)


def _benches(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each environment, by name. Raises DataError where an environment has two tiers or models."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        found.setdefault(record.bench, []).append(record)
    if len({bench[0] for bench in found}) > 1 or len({bench[1] for bench in found}) < len(found):
        listed = ", ".join("/".join(bench) for bench in sorted(found))
        raise DataError(
            f"a figure shows one tier, and one model an environment; found {listed}; name the evaluation.json files"
        )
    return [found[bench] for bench in sorted(found)]


def _label(record: Record) -> str:
    return load("envs", record["env"], EnvConfig).label


def _pyplot() -> tuple[Any, dict[Any, Any]]:
    import matplotlib

    matplotlib.use("Agg")  # no display
    from matplotlib import pyplot

    return pyplot, {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}


def _title(figure: Figure, records: Sequence[Record]) -> None:
    first = records[0]
    seeds = sorted({record["seed"] for record in records})
    panels = sorted({f"{r['env']} {r['panel']['name']} ({r['panel']['sha256'][:12]})" for r in records})
    figure.suptitle(
        f"tier {first['label']}\nseeds {', '.join(map(str, seeds))}; test panels {', '.join(panels)}", fontsize=9
    )


def _curves(
    axes: Axes,
    methods: dict[str, list[Record]],
    colour: dict[str, str],
    advance: Callable[[dict[str, Any]], float],
    label: str,
    unit: float,
) -> None:
    """Training success of base rollouts against the running sum of ``advance``."""
    for method, seeds in methods.items():
        lines = [_series(record, advance) for record in seeds if record.metrics]
        _seeds_and_mean(axes, [(x / unit, y) for x, y in lines], colour[method], "-", seeds[0]["method_label"])
    axes.set(xlabel=label, ylabel="training success (base rollouts)", ylim=(-0.02, 1.02))
    axes.set_title(f"Training success by {label.partition(' (')[0]}", fontsize=9)


def _series(record: Record, advance: Callable[[dict[str, Any]], float]) -> Series:
    x = np.cumsum([advance(row) for row in record.metrics])
    return x, np.array([row["train/success"] for row in record.metrics])


def _retries(axes: Axes, methods: dict[str, list[Record]], colour: dict[str, str]) -> None:
    """Rates of methods that reflect and retry; nothing is drawn for steps without any."""
    for method, seeds in methods.items():
        for over, under, dash in RETRY_RATES.values():
            lines = []
            for record in seeds:
                rows = [row for row in record.metrics if row.get(under)]
                x = np.array([row["step"] for row in rows], dtype=float)
                lines.append((x, np.array([row.get(over, 0) / row[under] for row in rows])))
            lines = [line for line in lines if len(line[0])]
            _seeds_and_mean(axes, lines, colour[method], dash, None)
    axes.set(xlabel="step", ylabel="share", ylim=(-0.02, 1.02))
    axes.set_title("Reflection and retry", fontsize=9)
    if not axes.lines:
        axes.text(0.5, 0.5, "no method here retries", ha="center", transform=axes.transAxes)
        return
    for name, (_, _, dash) in RETRY_RATES.items():  # colours are methods, as in the other panels
        axes.plot([], [], dash, color="#555555", label=name)
    axes.legend(frameon=False, fontsize=8)


def _seeds_and_mean(axes: Axes, lines: Sequence[Series], colour: str, dash: str, label: str | None) -> None:
    """The mean stops where the shortest seed does; seeds with other x values are averaged by interpolation."""
    if not lines:
        return
    for x, y in lines:
        axes.plot(x, y, dash, color=colour, linewidth=0.7, alpha=0.45 if len(lines) > 1 else 0.0)
    grid = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), max(len(x) for x, _ in lines))
    if len(lines) == 1:
        grid = lines[0][0]
    mean = np.mean([np.interp(grid, x, y) for x, y in lines], axis=0)
    axes.plot(grid, mean, dash, color=colour, linewidth=1.8, label=label)


def _final(axes: Axes, methods: dict[str, list[Record]], colour: dict[str, str]) -> None:
    """Bars of the last checkpoint's test success by group, every seed a dot, with the 95 % interval."""
    names = groups([record for seeds in methods.values() for record in seeds])
    width = 0.8 / len(methods)
    for k, (method, seeds) in enumerate(methods.items()):
        for position, group in enumerate(names):
            values = [record["groups"][group]["success"] for record in seeds]
            found = statistics.t_interval(values)
            x = position + (k - (len(methods) - 1) / 2) * width
            label = seeds[0]["method_label"] if position == 0 else None
            axes.bar(x, found.mean, width * 0.92, color=colour[method], label=label, alpha=0.85)
            if found.low is not None and found.high is not None:
                axes.errorbar(
                    x, found.mean, [[found.mean - found.low], [found.high - found.mean]],
                    color="black", capsize=2, linewidth=0.9,
                )  # fmt: skip
                axes.plot([x] * len(values), values, "o", color="black", markersize=2, alpha=0.6)
            if len(methods) <= 4:  # more would overlap
                axes.text(x, 0.01, f"{found.mean:.2f}", ha="center", va="bottom", fontsize=7)
    axes.set(xticks=range(len(names)), ylabel="test success (last checkpoint)", ylim=(0, 1.02))
    axes.set_xticklabels(names)
    counts = sorted({len(seeds) for seeds in methods.values()})
    note = "95 % t-intervals over seeds" if max(counts) > 1 else "one seed: no interval"
    axes.set_title(f"Test success ({note})", fontsize=9)


def _save(figure: Figure, stem: Path) -> list[Path]:
    """PDF and PNG without dates, so that the same results give the same bytes."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
        figure.savefig(stem.with_suffix(".png"), dpi=160)
    except OSError as error:
        raise RunDirectoryError(f"{stem} cannot be written ({error.strerror}); choose another with --out") from error
    return [stem.with_suffix(".pdf"), stem.with_suffix(".png")]
