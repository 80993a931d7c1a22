"""The HTML report: one file that needs no network, with tables, figures, configurations, budgets and trajectories.

Everything comes from the files that runs leave; no number is computed here that r3l.report does not compute elsewhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r3l.core.errors import DataError
from r3l.files.json_files import kept_as
from r3l.report import claims, tables, trajectories
from r3l.report.budget import all_columns, budget_rows, budget_table
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims_table import claims_table
from r3l.report.full_table import full_table
from r3l.report.html import tables as html_tables
from r3l.report.labels import env_label, ranges
from r3l.report.probes import Content
from r3l.report.records import Record
from r3l.report.rows import Row, write_text
from r3l.report.table import Cell, Table
from r3l.runs.trajectory_log import FILE
from r3l.workflow import plan

# Characters of trajectories in the file, shared by the runs; our choice: a report near 5 MB at most.
EMBEDDED = 2_500_000
BASELINE = "zero_shot"  # of runs that no table is about
SECOND = "grpo"  # what a method is compared with beside the base checkpoint


def to_html(table: Table, cells: Mapping[str, Any] = MappingProxyType({})) -> Markup:
    """A figure with the title, the notes and the rows, the titles of sections in a column that can be filtered;
    ``cells``: those whose runs are in the report."""
    filters = {column.name: column.filter for column in table.columns if column.filter is not None}
    names, rows = table.names, list(table.cells())
    if table.titled:
        titles = [section.title for section in table.sections for _ in section.rows]
        names, rows = [table.by, *names], [[Cell(title), *cells] for title, cells in zip(titles, rows, strict=True)]
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


def write(
    records: Sequence[Record],
    figures: Sequence[Path],
    seeds_planned: int,
    out: Path,
    probes: Sequence[Content] = (),
    first: Sequence[Table] = (),
) -> Path:
    """Write the report of ``records``, with the PNG files ``figures``, to ``out``. ``probes``: of claims about fixed
    models. ``first``: tables that stand before its own. Raises RunDirectoryError."""
    page = TEMPLATES.get_template("report.html.jinja").render(
        style=_own("report.css"), script=_own("report.js"), **content(records, figures, seeds_planned, probes, first)
    )
    write_text(page, out)
    return out


def _own(name: str) -> Markup:
    """A file of ours, as it is."""
    return Markup(Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8"))


def content(
    records: Sequence[Record],
    figures: Sequence[Path],
    seeds_planned: int,
    probes: Sequence[Content] = (),
    first: Sequence[Table] = (),
) -> dict[str, Any]:
    """What the template shows. Raises DataError for a figure that cannot be read."""
    score_rows, spent = score_tables(records, seeds_planned), budget_rows(records)
    return {
        "about": about(records, [row for rows, _ in score_rows for row in rows]),
        "tables": [
            *(first or _claims(records, probes)),
            *(full_table(rows, to_second) for rows, to_second in score_rows),
        ],
        "figures": [{"name": path.stem, "data": _base64(path)} for path in figures],
        "cells": _cells(records),
        "budget": budget_table(spent, all_columns(spent)),
        "endings": html_tables.endings(records),
        "settings": html_tables.settings(records),
        "options": html_tables.all_options(),
        "viewer": viewer(records),
    }


def _claims(records: Sequence[Record], probes: Sequence[Content]) -> list[Table]:
    """The claims of the paper, if anything of them is tested."""
    of = claims.load_claims()
    rows = claim_verdicts(records, probes, of)
    return [claims_table(rows, of)] if any(row.count for row in rows) else []


def score_tables(records: Sequence[Record], seeds_planned: int) -> list[tuple[list[Row], list[Row]]]:
    """The rows of every table of scores of whose methods at least half have run, the paper's tables first; and of all
    runs that stand in none of those, whatever their environments and methods. Beside rows with differences to BASELINE
    the same ones with differences to SECOND."""
    config, nothing, left = plan.load(), tables.Asked(), {record.path for record in records}

    def built(table: plan.TableConfig, runs: Sequence[Record], methods: Sequence[str]) -> tuple[list[Row], list[Row]]:
        second = table.model_copy(update={"baseline": SECOND})
        asked = [table, second] if table.baseline == BASELINE and SECOND in methods else [table]
        rows = [tables.build(one, runs, methods, seeds_planned, config.tier).rows for one in asked]
        return rows[0], rows[1] if len(rows) > 1 else []

    score_rows = []
    for _, table in sorted(plan.tables().items(), key=lambda item: (not item[0].startswith("table"), item[0])):
        if table.kind != "scores":
            continue
        of_table = tables.selected(records, table, config, nothing)
        planned = config.rows(table)
        if 2 * len({record.method for record in of_table} & {*planned}) >= max(len(planned), 4):
            methods = tables.methods_of(of_table, table, config, nothing)
            score_rows.append(built(table, of_table, methods))
            left -= {record.path for record in of_table}
    others = [record for record in records if record.path in left]
    methods = sorted({record.method for record in others}, key=lambda method: (method != BASELINE, method))
    content = {"table": "other", "title": "Other runs", "baseline": BASELINE, "methods": methods, "sources": {}}
    rest = plan.TableConfig.model_validate(content)
    return score_rows + ([built(rest, others, methods)] if others else [])


def about(records: Sequence[Record], rows: Sequence[Row]) -> dict[str, Any]:
    """What these results are, and what they may be compared with."""
    verdicts = [row.paper for row in rows if not row.constant]
    manifests = [record.manifest for record in records]
    return {
        "labels": sorted({record.tier_label for record in records}),
        "runs": len(records),
        "seeds": ranges(sorted({record.seed for record in records})),
        "episodes": sum(len(record.episodes) for record in records),
        "benches": sorted({(env_label(r.env), r.model, _task_set(r)) for r in records}),
        "warnings": sorted({f"{r.env}: {r.warnings}" for r in records if r.warnings}),
        "not_comparable": sorted({paper.reason for paper in verdicts if paper.verdict == "not comparable"}),
        "comparable": sum(paper.verdict in ("within interval", "outside") for paper in verdicts),
        "versions": sorted({", ".join(f"{k} {v}" for k, v in m["versions"].items()) for m in manifests}),
        "hardware": sorted({", ".join(f"{k} {v}" for k, v in m["hardware"].items()) for m in manifests}),
        "commits": sorted({str(m["commit"]) for m in manifests}),
    }


def _task_set(record: Record) -> str:
    task_set = record.task_set
    return f"{task_set['tasks']} tasks of {task_set['name']} ({task_set['sha256'][:12]})"


def viewer(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Runs that kept trajectories, in equal parts of EMBEDDED."""
    logged = [record for record in records if kept_as(record.path.parent / FILE)]
    runs = [
        {
            "id": run_id(record),
            "label": f"{env_label(record.env)}, {record.method_label}, seed {record.seed}",
            "data": trajectories.pack(record.path.parent, EMBEDDED // len(logged)),
        }
        for record in logged
    ]
    return [run for run in runs if run["data"] is not None]


def run_id(record: Record) -> str:
    """A run's place under a results folder."""
    return "/".join([*record.bench, record.method, f"seed{record.seed}"])


def _cells(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each cell, TIER/ENV/MODEL/METHOD."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda record: (*record.bench, record.method, record.seed)):
        cells.setdefault(run_id(record).rpartition("/")[0], []).append(_run(record))
    return cells


def _run(record: Record) -> dict[str, Any]:
    return {
        "id": run_id(record),
        "seed": record.seed,
        "success": record.groups["all"]["success"],
        "fingerprint": record.fingerprint,
        "task_set": f"{record.task_set['name']} {record.task_set['sha256']}",
        "logged": bool(kept_as(record.path.parent / FILE)),
        "manifest": json.dumps(record.manifest, indent=2, sort_keys=True),
    }


def _base64(path: Path) -> str:
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise DataError(f"figure {path} cannot be read ({error.strerror}); draw it again (r3l figure)") from error
