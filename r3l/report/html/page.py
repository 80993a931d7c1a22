"""The HTML report: one file that needs no network, with tables, figures, configurations, budgets and
trajectories.

Everything comes from the files that runs leave; no number is computed here that r3l.report does not compute
elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r3l.core.errors import DataError
from r3l.files.json_files import stored_variants
from r3l.report import claims, tables, trajectories
from r3l.report.budget import budget_rows, budget_table
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims_table import claims_table
from r3l.report.figures import draw
from r3l.report.figures.teachers import draw as draw_teachers
from r3l.report.frame import BENCH, CONSTANT_ANSWER, all_tasks
from r3l.report.full_table import full_table
from r3l.report.html import tables as html_tables
from r3l.report.labels import env_label, ranges
from r3l.report.probes import Content
from r3l.report.table import Cell, Table, write_text
from r3l.report.teachers import teacher_rows, teacher_table
from r3l.runs.trajectory_log import FILE
from r3l.workflow import plan

# Characters of trajectories in the file; our choice: a report of thousands of runs stays below 5 MB.
EMBEDDED = 1_500_000
BASELINE = "zero_shot"  # of runs that no table is about
SECOND = "grpo"  # the second baseline, after the base checkpoint
CELL = [*BENCH, "method"]


def to_html(table: Table, cells: Mapping[str, Any] = MappingProxyType({})) -> Markup:
    """A table as HTML, with its title and notes; section titles become a first column that can be filtered.

    Its text is escaped. ``cells``: the runs of the report by TIER/ENV/MODEL/METHOD. A cell whose ``runs`` is
    one of these keys links to them.
    """
    filters = {column.name: column.filter for column in table.columns if column.filter is not None}
    names = table.names
    rows = list(table.cells())
    if table.titled:
        titles = [section.title for section in table.sections for _ in section.rows]
        names = [table.by, *names]
        rows = [[Cell(title), *cells] for title, cells in zip(titles, rows, strict=True)]
        filters = {table.by: ""} | filters
    return Markup(
        TEMPLATES.get_template("table.html.jinja").render(
            table=table, names=names, rows=rows, filters=filters, cells=cells
        )
    )


TEMPLATES = Environment(
    loader=PackageLoader("r3l.report.html"),
    autoescape=True,  # what runs say is text, never markup
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["to_html"] = to_html
TEMPLATES.filters["zip"] = zip
TEMPLATES.filters["ranges"] = ranges


def write(
    runs: pd.DataFrame,
    figures: Sequence[Path],
    seeds_planned: int,
    out: Path,
    probes: Sequence[Content] = (),
    comparison: Table | None = None,
) -> Path:
    """Write the report of ``runs`` to the HTML file ``out``, which is replaced; returns its path.

    It has their scores, curves and trajectories, then what they say about the paper's claims, then budgets
    and settings. ``runs``: rows of r3l.report.frame. ``seeds_planned``: a cell of a table with fewer says so.
    ``figures``: PNG files to show; without any, the runs' learning curves are drawn. ``probes``: for claims
    about fixed models. ``comparison``: a table of `r3l compare`, which goes first. Raises RunDirectoryError
    if ``out`` cannot be written, DataError for a figure that cannot be read.
    """
    of_runs = all_tasks(runs)
    scored = score_tables(runs, seeds_planned)
    shown, without_room = viewer(of_runs)

    # Without figures the learning curves of all trained runs are drawn, one figure per tier and model.
    pictures = [(path.stem, _base64(path)) for path in figures]
    if not pictures:
        with TemporaryDirectory() as folder:
            for (tier, model), of_model in runs[runs.steps > 0].groupby(["tier", "model"]):
                path = Path(folder, f"learning curves {tier} {model}.png".replace("/", "-"))
                draw("learning_curves", of_model, path)
                pictures.append((path.stem, _base64(path)))

    # The paper's claims that these runs or probes test.
    claims_file = claims.load_claims()
    tested = [] if comparison else [row for row in claim_verdicts(runs, probes, claims_file) if row.count]
    page = TEMPLATES.get_template("report.html.jinja").render(
        style=_own("report.css"),
        script=_own("report.js"),
        about=about(of_runs, scored),
        tables=[*([comparison] if comparison else []), *(full_table(*rows) for rows in scored)],
        figures=pictures,
        viewer=shown,
        without_room=without_room,
        claims=[claims_table(tested, claims_file)] if tested else [],
        teachers=_teachers(runs, [] if comparison else probes),
        budget=budget_table(budget_rows(runs), every_column=True),
        endings=html_tables.endings(of_runs),
        settings=html_tables.settings(of_runs),
        options=html_tables.all_options(),
        cells={"/".join(cell): seeds for cell, seeds in of_runs.groupby(CELL, sort=False)},
        runs=_details(of_runs, {run["id"] for run in shown}),
    )
    write_text(page, out)
    return out


def _own(name: str) -> Markup:
    """Text of a file in the folder ``templates``, put into the page unescaped."""
    return Markup(Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8"))


def _teachers(runs: pd.DataFrame, probes: Sequence[Content]) -> tuple[Table, str] | None:
    """The panel of teachers: its table, and its figure as PNG in base64; None without a teacher."""
    rows = teacher_rows(runs, probes)
    if not rows:
        return None
    with TemporaryDirectory() as folder:
        (path,) = draw_teachers(rows, Path(folder) / "teachers.png")
        return teacher_table(rows), _base64(path)


def score_tables(runs: pd.DataFrame, seeds_planned: int) -> list[tuple[pd.DataFrame, pd.DataFrame | None]]:
    """Rows of every score table of which half of the methods, and at least two, have run; the paper's first.

    Each is a pair: the rows compared with the table's baseline, and the same rows compared with SECOND (None
    unless the baseline is BASELINE). Runs that are in none of these tables follow in a further table.
    """
    config = plan.load()
    everything = tables.Selection()
    specs = []
    for spec in (spec for spec in plan.tables().values() if spec.kind == "scores"):
        of_table, methods = tables.selected(runs, spec, config, everything)
        planned = config.rows(spec)
        if 2 * len(set(of_table.method) & {*planned}) >= max(len(planned), 4):
            specs.append((spec, of_table, methods))
    specs.sort(key=lambda item: (not item[0].table.startswith("table"), item[0].table))

    # Runs that no table shows are in a further table.
    shown = {path for _, of_table, _ in specs for path in of_table.path}
    others = runs[~runs.path.isin(shown)]
    if len(others):
        methods = sorted(set(others.method), key=lambda method: (method != BASELINE, method))
        content = {
            "table": "other",
            "title": "Other runs",
            "baseline": BASELINE,
            "methods": methods,
            "sources": {},
        }
        specs.append((plan.TableConfig.model_validate(content), others, methods))

    built = []
    for spec, of_table, methods in specs:
        second = None
        if spec.baseline == BASELINE and SECOND in methods:
            to_second = spec.model_copy(update={"baseline": SECOND})
            second = tables.table_rows(to_second, of_table, methods, seeds_planned, config.tier)
        built.append((tables.table_rows(spec, of_table, methods, seeds_planned, config.tier), second))
    return built


def about(runs: pd.DataFrame, scored: Sequence[tuple[pd.DataFrame, Any]]) -> dict[str, Any]:
    """The content of the introduction: tiers, seeds, task sets, warnings, comparability with the paper.

    ``runs``: one row per run. ``scored``: result of :func:`score_tables`. Keys: the variables of the
    template.
    """
    rows = [row for table, _ in scored for row in table.itertuples() if row.method != CONSTANT_ANSWER]
    manifests = list(runs.manifest)
    tested = set()
    columns = ["env", "model", "task_set_tasks", "task_set", "task_set_sha256", "warning"]
    distinct = runs[columns].drop_duplicates()
    for run in distinct.itertuples():
        task_set = f"{run.task_set_tasks} tasks of {run.task_set} ({run.task_set_sha256[:12]})"
        tested.add((env_label(run.env), run.model, task_set))
    return {
        "labels": sorted(set(runs.tier_label)),
        "runs": len(runs),
        "seeds": ranges(sorted(set(map(int, runs.seed)))),
        "episodes": int(runs.episodes.sum()),
        "benches": sorted(tested),
        "warnings": sorted({f"{run.env}: {run.warning}" for run in distinct.itertuples() if run.warning}),
        "not_comparable": sorted({row.verdict_reason for row in rows if row.verdict == "not comparable"}),
        "comparable": sum(row.verdict in ("within interval", "outside") for row in rows),
        "versions": sorted({", ".join(f"{k} {v}" for k, v in m["versions"].items()) for m in manifests}),
        "hardware": sorted({", ".join(f"{k} {v}" for k, v in m["hardware"].items()) for m in manifests}),
        "commits": sorted({str(m["commit"]) for m in manifests}),
    }


def viewer(runs: pd.DataFrame) -> tuple[list[dict[str, Any]], int]:
    """Packed trajectories of the runs that kept them, and the number of runs without room in EMBEDDED.

    ``runs``: one row per run. Of each run shown: ``id``, ``label`` and ``data`` (:func:`trajectories.pack`).
    A run gets at most EMBEDDED (1.5 M characters) / the number of methods over all environments, but at least
    one task. Room goes to the first seed of every method before the second of any; the list keeps the order
    of rows.
    """
    logged = runs[[bool(stored_variants(path.parent / FILE)) for path in runs.path]]
    packed: dict[int, str] = {}
    left = EMBEDDED
    # A method's seeds explore alike, so the first seed of every cell goes before the second of any.
    of_cell = logged.groupby(CELL, sort=False)
    for index, path in logged.path.iloc[of_cell.cumcount().argsort(kind="stable")].items():
        data = trajectories.pack(path.parent, EMBEDDED // of_cell.ngroups) if left > 0 else None
        if data is not None:
            packed[index] = data
            left -= len(data)
    shown = logged.loc[sorted(packed)]
    runs_shown = [
        {"id": run_id(run), "label": f"{env_label(run.env)}, {run.label}, seed {run.seed}", "data": data}
        for run, data in zip(
            shown[[*CELL, "seed", "label"]].itertuples(), map(packed.get, shown.index), strict=True
        )
    ]
    return runs_shown, len(logged) - len(shown)


def run_id(run: Any) -> str:
    """The path of a run below a results folder, TIER/ENV/MODEL/METHOD/seedN."""
    return "/".join([run.tier, run.env, run.model, run.method, f"seed{run.seed}"])


def _details(runs: pd.DataFrame, shown: Collection[str]) -> str:
    """The packed details of every run, by TIER/ENV/MODEL/METHOD; a page unpacks those that a reader opens.

    Manifests of one cell differ in a few values, so that all of them take little more than one of each cell.
    ``runs``: one row per run. ``shown``: ids of the runs in the viewer.
    """
    details: dict[str, list[dict[str, Any]]] = {}
    columns = [*CELL, "seed", "success", "fingerprint", "task_set", "task_set_sha256", "manifest"]
    for run in runs[columns].itertuples():
        details.setdefault(run_id(run).rpartition("/")[0], []).append(
            {
                "id": run_id(run),
                "seed": run.seed,
                "success": run.success,
                "fingerprint": run.fingerprint,
                "task_set": f"{run.task_set} {run.task_set_sha256}",
                "viewer": run_id(run) in shown,
                "manifest": run.manifest,
            }
        )
    return trajectories.packed(details)


def _base64(path: Path) -> str:
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise DataError(
            f"figure {path} cannot be read ({error.strerror}); draw it again (r3l figure)"
        ) from error
