"""The figures by name. A new one is a function in a module of this package, and its line in FIGURES.

A figure is made offline from the files that runs leave, as PDF and PNG; equal data give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from r3l.report.figures import bars, scores, sensitivity, style, training
from r3l.report.figures.data import Shown, select
from r3l.workflow.plan import TableConfig, tables


@dataclass(frozen=True)
class Kind:
    """A figure: the function that draws it, and the name of the table whose runs it shows by default."""

    function: Callable[[Shown], style.Drawn]
    table: str = "table1"


_of_scores = [name for name, table in tables().items() if table.kind == "scores"]
FIGURES = {
    "learning_curves": Kind(training.learning_curves),
    "exploration": Kind(training.exploration),
    "dynamics": Kind(training.dynamics),
    "pivot": Kind(training.pivot),
    "ablations": Kind(scores.differences, "table2"),
    "cost": Kind(bars.cost),
    "profile": Kind(scores.profile),
    "stops": Kind(bars.stops),
    **{name: Kind(sensitivity.sensitivity, name) for name in sensitivity.SETTINGS},
    **{name: Kind(scores.scores, name) for name in _of_scores if name not in sensitivity.SETTINGS},
}


def draw(name: str, runs: pd.DataFrame, out: Path, table: TableConfig | None = None) -> list[Path]:
    """Draw a figure into the folder ``out``, or as the one file ``out``; returns the files written.

    ``table`` gives the order of the methods, and the baseline of differences; by default it is the figure's
    own. ``name``: a key of FIGURES, else KeyError is raised. Raises DataError if the runs have nothing to
    show in it, ConfigError if ``out`` names another file type than PDF or PNG, RunDirectoryError if ``out``
    cannot be written.
    """
    import matplotlib.style

    kind = FIGURES[name]
    shown = select(runs, table or tables()[kind.table])
    with matplotlib.style.context(style.SHEET):
        figure, drawn, text = kind.function(shown)
        style.caption(figure, drawn, text)
        return style.save(figure, out, name)
