"""A table as papers print it: a section a model, a row a method, a column a benchmark or a measure; published
numbers are below ours. Every row of scores in full: r3l.report.full_table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from r3l.config import env_configs
from r3l.report.frame import ALL, CONSTANT_ANSWER
from r3l.report.labels import (
    FEEDBACK,
    FEEDBACK_NOTE,
    MDE,
    TEST,
    backbone,
    mde_text,
    model_label,
    plus_minus,
)
from r3l.report.measures import MEASURES
from r3l.report.published import SCORES, Published
from r3l.report.scores import CONSTANT_ANSWER_LABEL
from r3l.report.table import Cell, Column, Row, Section, Table, mark_best, rounded
from r3l.stats.comparison import Comparison

METHOD = "method"  # the first column
Sections = dict[str, dict[str, Row]]  # by title, then by the name of the row


def paper_table(
    title: str,
    rows: pd.DataFrame,
    published: Sequence[Published],
    measures: Sequence[str],
    empty: bool = False,
) -> Table:
    """The table of ``rows`` as papers print them: scores over all test tasks, or ``measures`` of training.

    A section is a model, a row a method, a column a benchmark; the best of each column is bold. With several
    measures a section is a model on a benchmark, and a column a measure. Our rows without runs, and
    benchmarks without any run of ours (published numbers included), are left out and named below, unless
    ``empty``. If nothing has run, the published numbers are the table.
    """
    ours = list(rows[rows.group == ALL].itertuples())
    left_out: list[str] = []
    if not empty:
        ours, published, left_out = _with_runs(ours, published)
    several = len(measures) > 1
    our_sections = _our_sections(ours, {number.backbone for number in published}, several)
    their_sections, their_notes = _published(published, several)

    lines = [line for sections in (their_sections, our_sections) for line in sections.values()]
    known = dict.fromkeys(name for line in lines for cells in line.values() for name in cells)
    shows_feedback = FEEDBACK in known
    first = [METHOD, FEEDBACK] if shows_feedback else [METHOD]
    columns = [MEASURES[name].label for name in measures] if several else [n for n in known if n != FEEDBACK]

    # Every cell says something: which number there is, or why there is none.
    seeds = max((row.seeds_planned for row in ours), default=0)
    printed: list[Section] = []
    for sections, absent in ((our_sections, f"0/{seeds} seeds"), (their_sections, "not published")):
        for section, of_section in sections.items():
            full: list[Row] = []
            for label, cells in of_section.items():
                text = "none" if label == CONSTANT_ANSWER_LABEL else absent
                stated = re.search(r"\bfeedback=(\w+)", label)
                theirs = stated.group(1) if stated else "not recorded"
                author = "none" if sections is our_sections else theirs
                feedback = {FEEDBACK: Cell(author)} if shows_feedback else {}
                full.append({METHOD: Cell(label)} | feedback | dict.fromkeys(columns, Cell(text)) | cells)
            printed.append(Section(section, full))

    # The best is the highest or the lowest, as the measure says; of scores it is the highest.
    better = {MEASURES[name].label: MEASURES[name].better for name in measures}
    only = MEASURES[measures[0]].better if len(measures) == 1 else "high"
    sides = {name: {"high": 1, "low": -1, "": 0}[better.get(name, only)] for name in columns}
    for one in printed:
        mark_best(one.rows, {name: side for name, side in sides.items() if side})

    # Methods and numbers with intervals stay on one line.
    filled = [item for one in printed for row in one.rows for item in row.items()]
    unbroken = {METHOD} | {name for name, cell in filled if "±" in cell.text}
    shown = [Column(name, right=name not in first, no_wrap=name in unbroken) for name in [*first, *columns]]
    notes = [
        *_our_notes(ours, [] if several else columns),
        *left_out,
        *([FEEDBACK_NOTE] if shows_feedback else []),
    ]
    return Table(title, shown, printed, [*notes, *their_notes])


def _our_sections(ours: Sequence[Any], backbones: set[str], several: bool) -> Sections:
    """The cells of our rows: means with intervals. Only means over all planned seeds are ranked.

    A model has its own section where the paper has its numbers (``backbones``) or an environment has several;
    else the section is the tier's, with all its models. ``several``: a column is a measure, not a benchmark.
    """
    models: dict[tuple[str, str], set[str]] = {}
    for row in ours:
        models.setdefault((row.tier, row.env), set()).add(row.model)
    sections: Sections = {}
    # By section and label: authors of feedback of benchmarks with runs (True) and without.
    feedback_authors: dict[tuple[str, str], dict[bool, list[str]]] = {}
    for row in ours:
        by_model = backbone(row.model) in backbones or len(models[row.tier, row.env]) > 1
        section = f"{model_label(row.model)}, ours" if by_model else f"{row.tier} tier, ours"
        section += f", {row.benchmark}" if several else ""
        column = MEASURES[row.measure].label if several else row.benchmark
        if row.mean is None:
            cell = Cell(row.verdict_reason if row.seeds_done else f"0/{row.seeds_planned} seeds")
        else:
            text = plus_minus(row.mean, row.low, row.high, row.points, row.unit)
            cell = Cell(text, rounded(row.mean))
            if row.method == CONSTANT_ANSWER:
                cell = Cell(text)
            elif row.seeds_done < row.seeds_planned:
                cell = Cell(f"{text} ({row.seeds_done}/{row.seeds_planned})")
        sections.setdefault(section, {}).setdefault(row.label, {})[column] = cell
        if row.feedback:
            by_state = feedback_authors.setdefault((section, row.label), {True: [], False: []})
            by_state[row.seeds_done > 0].append(row.feedback)

    # A row has several authors if benchmarks differ; planned ones are shown only where nothing has run.
    for (section, label), by_state in feedback_authors.items():
        of_row = dict.fromkeys(by_state[True] or by_state[False])
        sections[section][label][FEEDBACK] = Cell("; ".join(of_row))

    # A method that ran only in a later benchmark is above the constant answer of an earlier one.
    for cells_by_label in sections.values():
        if constant := cells_by_label.pop(CONSTANT_ANSWER_LABEL, None):
            cells_by_label[CONSTANT_ANSWER_LABEL] = constant
    return sections


def _published(published: Sequence[Published], several: bool) -> tuple[Sections, list[str]]:
    """The cells of published numbers, and the notes on them.

    Each remark on a number is a letter in its cells, explained in the notes, unless all numbers share one
    remark.
    """
    if not published:
        return {}, []
    remarks = list(dict.fromkeys(number.note for number in published))
    letters = {n: chr(ord("a") + k) for k, n in enumerate(filter(None, remarks))} if len(remarks) > 1 else {}
    sections: Sections = {}
    for number in published:
        section = f"{number.backbone}, {number.source_kind}" + (f", {number.benchmark}" if several else "")
        column = MEASURES[number.metric].label if several else number.benchmark
        text = f"{number.value} [{letters[number.note]}]" if number.note in letters else str(number.value)
        cells = sections.setdefault(section, {}).setdefault(number.label, {})
        cells[column] = Cell(text, float(number.value))

    # Notes: what the numbers are, remarks that all of them share, single remarks, sources.
    partial = sorted({number.benchmark for number in published if number.metric == "reward"})
    notes = ["Published numbers as printed; some cannot be, or contradict others: r3l table published."]
    if partial and any(number.metric in SCORES for number in published):
        notes.append(
            f"Published on {', '.join(partial)}: average reward with partial credit; elsewhere, and ours, "
            "success."
        )
    shared = {number.note for number in published} - set(letters) - {""}
    notes += [f"Published: {note}." for note in sorted(shared)]
    notes += [f"[{letter}] {note}." for note, letter in letters.items()]
    return sections, [*notes, *sorted({f"Source: {number.source}." for number in published})]


def _with_runs(
    rows: Sequence[Any], published: Sequence[Published]
) -> tuple[list[Any], list[Published], list[str]]:
    """Rows and published numbers without the methods and benchmarks that have no run, and a note that names
    those."""
    done = [row for row in rows if row.seeds_done]
    if not done and not published:
        return list(rows), [], []
    if not done:
        reasons = dict.fromkeys(row.verdict_reason for row in rows)
        return [], list(published), [f"None of ours has run: {'; '.join(reasons)} (r3l table --empty)."]
    # Keep the methods and benchmarks that have any run; a constant answer stays if its benchmark does.
    benchmarks = {row.benchmark for row in done}
    lines = {(row.tier, row.model, row.label) for row in done}
    kept = [
        row
        for row in rows
        if row.benchmark in benchmarks
        and (row.method == CONSTANT_ANSWER or (row.tier, row.model, row.label) in lines)
    ]
    # The note names what is left out.
    columns = [row.benchmark for row in rows] + [number.benchmark for number in published]
    labels = {row.label for row in kept}
    parts = (
        dict.fromkeys(name for name in columns if name not in benchmarks),
        dict.fromkeys(row.label for row in rows if row.label not in labels),
    )
    absent = "; ".join(", ".join(part) for part in parts if part)
    notes = [f"Left out, since none of ours has run there: {absent} (r3l table --empty)."] if absent else []
    return kept, [number for number in published if number.benchmark in benchmarks], notes


def _our_notes(rows: Sequence[Any], columns: Sequence[str]) -> list[str]:
    """Notes on our rows; ``columns``: the printed benchmarks. Benchmarks without a run are named."""
    if not rows:
        return []
    notes = [
        "Ours: mean ± 95 % interval over training seeds; of one or two seeds their values. (n/m): n of m "
        "planned seeds are done. Bold: the best of its block among those with all seeds; it need not differ "
        "significantly."
    ]
    # The smallest differences that these seeds could have shown, since no differences are printed.
    compared: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison is not None and row.comparison.mde is not None:
            compared.setdefault(row.benchmark, []).append(row.comparison)
    ranges = [f"{env} {mde_text(*of_env)}" for env, of_env in compared.items()]
    if ranges:
        notes.append(
            f"Minimum detectable effect ({MDE}) of so many seeds against {baseline_label(rows)} (paired by "
            f"seed, {TEST}; in brackets with Holm's correction over this table and its task groups): "
            f"{', '.join(ranges)}. Of two other rows: r3l compare."
        )
    notes += [f"Ours: tier {label}." for label in sorted({row.tier_label for row in rows if row.tier_label})]

    # A benchmark without a run is either not there at this tier, or has not been run.
    run = {row.benchmark for row in rows}
    if empty := [column for column in columns if column not in run]:
        tiers = {row.tier for row in rows}
        possible = set()
        for config in env_configs():
            possible |= {config.label} if tiers & {*config.tiers} else set()
            for tier in tiers:
                possible |= {*config.question_sets.get(tier, {}).values()}
        not_run = [column for column in empty if column in possible]
        no_such_set = [column for column in empty if column not in possible]
        notes += [f"0 seeds on {', '.join(not_run)}: nobody has run it."] if not_run else []
        notes += [f"0 seeds on {', '.join(no_such_set)}: this tier has no such set."] if no_such_set else []

    reasons = Counter((row.verdict, row.verdict_reason) for row in rows if row.method != CONSTANT_ANSWER)
    notes += [f"{count} x {verdict}: {reason}." for (verdict, reason), count in reasons.items()]
    constant = [row for row in rows if row.method == CONSTANT_ANSWER]
    notes += sorted({f"{row.benchmark}: {row.verdict_reason}." for row in constant})
    return notes + notes_of_runs(rows)


def baseline_label(rows: Sequence[Any]) -> str:
    """The printed name of the method that ``rows`` (at least one) are compared with."""
    return next((row.label for row in rows if row.method == row.baseline), rows[0].baseline or "")


def notes_of_runs(rows: Sequence[Any]) -> list[str]:
    """Task sets of ``rows`` with hashes and warnings, and the versions of docs/preregistration.md in use.

    A version says nothing about whether the preregistration plans these runs: each manifest records it,
    also for a user's own runs.
    """
    sets = sorted({f"{row.env} {row.task_set} ({row.task_set_sha256[:12]})" for row in rows if row.task_set})
    notes = [f"Task sets: {', '.join(sets)}."] if sets else []
    notes += sorted({f"{row.task_set}: {row.warning}." for row in rows if row.warning})
    ran = [row.preregistration for row in rows if row.seeds_done]
    dated = list(filter(None, ran))
    if not dated:
        return notes
    texts = {text for plan in dated for text in plan.split(", ")}
    part = "" if len(dated) == len(ran) else f" ({len(dated)} of {len(ran)} rows)"
    which = (
        f"at sha256 {min(texts)}" if len(texts) == 1 else f"at {len(texts)} versions, which r3l verify names"
    )
    return [*notes, f"At the time of the runs, docs/preregistration.md was {which}{part}."]
