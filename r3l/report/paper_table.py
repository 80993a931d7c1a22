"""Rows of scores as papers print them: a section a model, a row a method, a column a benchmark or a measure.

Published numbers stand below ours. Every row in full: r3l.report.full_table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from r3l.config import EnvConfig, backbone, load, model_label, names
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import NOTE as FEEDBACK_NOTE
from r3l.report.frame import ALL, CONSTANT_ANSWER
from r3l.report.labels import env_label
from r3l.report.measures import MEASURES
from r3l.report.paired import MDE, TEST, mde_range
from r3l.report.published import SCORES, Published
from r3l.report.render import rounded
from r3l.report.scores import CONSTANT_ANSWER_LABEL
from r3l.report.table import Cell, Column, Row, Section, Table, mark_best
from r3l.stats.comparison import Comparison

DIGITS = {"share": 3, "turns": 1, "tokens": 0, "s": 1}
METHOD = "method"  # the first column
Sections = dict[str, dict[str, Row]]  # by title, then by the name of the row


def paper_table(
    title: str,
    rows: pd.DataFrame,
    published: Sequence[Published],
    measures: Sequence[str],
    empty: bool = False,
) -> Table:
    """``rows`` of scores (``measures`` empty) or of measures, over all test tasks, as papers print them.

    With several measures a section is a model on a benchmark, and the columns are the measures. What has no
    run is left out and named below, unless ``empty``: our rows, and benchmarks with their published numbers.
    Where nothing has run, the published numbers are the table.
    """
    ours, left_out = list(rows[rows.group == ALL].itertuples()), list[str]()
    if not empty:
        ours, published, left_out = _with_runs(ours, published)
    several = len(measures) > 1

    # Our rows. A model has its own section where the paper has its numbers or an environment has several;
    # else the section is the tier's, with all its models.
    backbones = {number.backbone for number in published}
    models: dict[tuple[str, str], set[str]] = {}
    for row in ours:
        models.setdefault((row.tier, row.env), set()).add(row.model)
    our_sections: Sections = {}
    teachers: dict[tuple[str, str], dict[bool, list[str]]] = {}
    for row in ours:
        by_model = backbone(row.model) in backbones or len(models[row.tier, row.env]) > 1
        section = f"{model_label(row.model)}, ours" if by_model else f"{row.tier} tier, ours"
        section += f", {env_label(row.env)}" if several else ""
        column = MEASURES[row.measure].label if several else env_label(row.env)
        our_sections.setdefault(section, {}).setdefault(row.label, {})[column] = _cell(row)
        if row.feedback:
            by_state = teachers.setdefault((section, row.label), {True: [], False: []})
            by_state[row.seeds_done > 0].append(row.feedback)
    for (
        section,
        label,
    ), by_state in teachers.items():  # those of cells without runs only where nothing has run
        our_sections[section][label][FEEDBACK] = Cell(
            "; ".join(dict.fromkeys(by_state[True] or by_state[False]))
        )

    # Published rows. Each note has a letter, unless all numbers share one.
    notes = list(dict.fromkeys(number.note for number in published))
    letters = {n: chr(ord("a") + k) for k, n in enumerate(filter(None, notes))} if len(notes) > 1 else {}
    their_sections: Sections = {}
    for number in published:
        section = f"{number.backbone}, {number.source_kind}" + (f", {number.benchmark}" if several else "")
        column = MEASURES[number.metric].label if several else number.benchmark
        text = f"{number.value} [{letters[number.note]}]" if number.note in letters else str(number.value)
        cells = their_sections.setdefault(section, {}).setdefault(number.label, {})
        cells[column] = Cell(text, float(number.value))

    # Every cell says something: which number there is, or why there is none.
    taught = bool(teachers)
    first = [METHOD, FEEDBACK] if taught else [METHOD]
    lines = [line for sections in (their_sections, our_sections) for line in sections.values()]
    columns = list(
        dict.fromkeys(c for line in lines for cells in line.values() for c in cells if c not in first)
    )
    if several:
        columns = [MEASURES[name].label for name in measures]
    seeds = max((row.seeds_planned for row in ours), default=0)
    printed: list[Section] = []
    for sections, absent in ((our_sections, f"0/{seeds} seeds"), (their_sections, "not published")):
        for section, of_section in sections.items():
            full = []
            for label, cells in of_section.items():
                text = "none" if label == CONSTANT_ANSWER_LABEL else absent
                stated = re.search(r"\bfeedback=(\w+)", label)
                theirs = stated.group(1) if stated else "not recorded"
                teacher = {FEEDBACK: Cell("none" if sections is our_sections else theirs)} if taught else {}
                full.append({METHOD: Cell(label)} | teacher | dict.fromkeys(columns, Cell(text)) | cells)
            mark_best(full, _best_sides(columns, measures))
            printed.append(Section(section, full))
    intervals = {
        name for section in printed for row in section.rows for name, cell in row.items() if "±" in cell.text
    }
    return Table(
        title,
        [
            *(Column(name, no_wrap=name == METHOD) for name in first),
            *(Column(name, right=True, no_wrap=name in intervals) for name in columns),
        ],
        printed,
        [
            *_our_notes(ours, [] if several else columns),
            *left_out,
            *([FEEDBACK_NOTE] if taught else []),
            *_their_notes(published, letters),
        ],
    )


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
    benchmarks = {env_label(row.env) for row in done}
    lines = {(row.tier, row.model, row.label) for row in done}
    kept = [
        row
        for row in rows
        if env_label(row.env) in benchmarks
        and (row.method == CONSTANT_ANSWER or (row.tier, row.model, row.label) in lines)
    ]
    columns = [env_label(row.env) for row in rows] + [number.benchmark for number in published]
    labels = {row.label for row in kept}
    parts = (
        dict.fromkeys(name for name in columns if name not in benchmarks),
        dict.fromkeys(row.label for row in rows if row.label not in labels),
    )
    absent = "; ".join(", ".join(part) for part in parts if part)
    notes = [f"Left out, since none of ours has run there: {absent} (r3l table --empty)."] if absent else []
    return kept, [number for number in published if number.benchmark in benchmarks], notes


def _cell(row: Any) -> Cell:
    """A mean with its interval. Only means over all planned seeds are ranked."""
    if row.mean is None:
        return Cell(row.verdict_reason if row.seeds_done else f"0/{row.seeds_planned} seeds")
    text = plus_minus(row.mean, row.low, row.high, row.points, row.unit)
    if row.method == CONSTANT_ANSWER:
        return Cell(text)
    if row.seeds_done < row.seeds_planned:
        return Cell(f"{text} ({row.seeds_done}/{row.seeds_planned})")
    return Cell(text, rounded(row.mean))


def plus_minus(
    mean: float,
    low: float | None,
    high: float | None,
    points: Sequence[float],
    unit: str | None = None,
    sign: str = "",
) -> str:
    """``0.308 ± 0.057``; bounds in brackets where they are not symmetric; without them every seed: ``0.310,
    0.290``."""
    mean, low, high = map(
        rounded, (mean, low, high)
    )  # as csv files hold them, so that both print the same digits
    form = f",.{DIGITS[unit or 'share']}f"
    if low is None or high is None:
        return ", ".join(f"{rounded(value):{sign}{form}}" for value in points or (mean,))
    if abs((high - mean) - (mean - low)) < 2e-4:
        return f"{mean:{sign}{form}} ± {high - mean:{form}}"
    return f"{mean:{sign}{form}} [{low:{form}}, {high:{form}}]"


def _best_sides(columns: Sequence[str], measures: Sequence[str]) -> dict[str, int]:
    """The side of the best value of each column that has one: the highest (1) or the lowest (-1)."""
    known = {MEASURES[name].label: MEASURES[name].better for name in measures}
    only = MEASURES[measures[0]].better if len(measures) == 1 else "high"
    sides = {column: known.get(column, only) for column in columns}
    return {column: 1 if side == "high" else -1 for column, side in sides.items() if side}


def _our_notes(rows: Sequence[Any], columns: Sequence[str]) -> list[str]:
    """Notes on our rows; ``columns``: the printed benchmarks, of which those without a run are named."""
    if not rows:
        return []
    notes = [
        "Ours: mean ± 95 % interval over training seeds; of one or two seeds their values. (n/m): n of m planned "
        "seeds are done. Bold: the best of its block among those with all seeds; it need not differ significantly."
    ]
    # The smallest differences that these seeds could have shown, since no differences are printed.
    compared: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison is not None:
            compared.setdefault(env_label(row.env), []).append(row.comparison)
    ranges = [f"{env} {sizes}" for env, of_env in compared.items() if (sizes := mde_range(of_env))]
    if ranges:
        notes.append(
            f"Minimum detectable effect ({MDE}) of so many seeds against {baseline_label(rows)} (paired by seed, "
            f"{TEST}; in brackets with Holm's correction over this table and its task groups): {', '.join(ranges)}. "
            "Of two other rows: r3l compare."
        )
    if any(row.interval and row.interval.startswith("Wilson") for row in rows):
        notes.append("One run on a question set has Wilson's interval over its questions.")
    notes += [f"Ours: tier {label}." for label in sorted({row.tier_label for row in rows if row.tier_label})]

    # A benchmark without a run is either not there at this tier, or has not been run.
    tiers, run = {row.tier for row in rows}, {env_label(row.env) for row in rows}
    configs = [load("envs", name, EnvConfig) for name in names("envs")]
    possible = {config.label for config in configs if tiers & set(config.tiers)}
    possible |= {
        name for config in configs for tier in tiers for name in config.question_sets.get(tier, {}).values()
    }
    empty = [column for column in columns if column not in run]
    not_run = [column for column in empty if column in possible]
    no_such_set = [column for column in empty if column not in possible]
    notes += [f"0 seeds on {', '.join(not_run)}: nobody has run it."] if not_run else []
    notes += [f"0 seeds on {', '.join(no_such_set)}: this tier has no such set."] if no_such_set else []

    reasons = Counter((row.verdict, row.verdict_reason) for row in rows if row.method != CONSTANT_ANSWER)
    notes += [f"{count} x {verdict}: {reason}." for (verdict, reason), count in reasons.items()]
    constant = [row for row in rows if row.method == CONSTANT_ANSWER]
    notes += sorted({f"{env_label(row.env)}: {row.verdict_reason}." for row in constant})
    if task_sets := task_set_names(rows):
        notes.append(f"Task sets: {', '.join(task_sets)}.")
    notes += sorted({f"{row.task_set}: {row.warning}." for row in rows if row.warning})
    return notes + notes_of_runs(rows)


def _their_notes(published: Sequence[Published], letters: Mapping[str, str]) -> list[str]:
    if not published:
        return []
    partial = sorted({number.benchmark for number in published if number.metric == "reward"})
    notes = ["Published numbers as printed; some cannot be, or contradict others: r3l table published."]
    if partial and any(number.metric in SCORES for number in published):
        notes.append(
            f"Published on {', '.join(partial)}: average reward with partial credit; elsewhere, and ours, success."
        )
    shared = {number.note for number in published} - set(letters) - {""}
    notes += [f"Published: {note}." for note in sorted(shared)]
    notes += [f"[{letter}] {note}." for note, letter in letters.items()]
    return [*notes, *sorted({f"Source: {number.source}." for number in published})]


def baseline_label(rows: Sequence[Any]) -> str:
    return next((row.label for row in rows if row.method == row.baseline), rows[0].baseline or "")


def task_set_names(rows: Sequence[Any]) -> list[str]:
    """``ENV NAME (hash)`` for each task set on which the rows were scored."""
    return sorted({f"{row.env} {row.task_set} ({row.task_set_sha256[:12]})" for row in rows if row.task_set})


def notes_of_runs(rows: Sequence[Any]) -> list[str]:
    """A note on which version of docs/preregistration.md existed when the runs behind ``rows`` were made.

    It says nothing about whether the preregistration plans these runs: each manifest records the version,
    also for a user's own runs. [] if no manifest has one.
    """
    ran = [row.preregistration for row in rows if row.seeds_done]
    dated = list(filter(None, ran))
    if not dated:
        return []
    texts = {text for plan in dated for text in plan.split(", ")}
    part = "" if len(dated) == len(ran) else f" ({len(dated)} of {len(ran)} rows)"
    which = (
        f"at sha256 {min(texts)}" if len(texts) == 1 else f"at {len(texts)} versions, which r3l verify names"
    )
    return [f"At the time of the runs, docs/preregistration.md was {which}{part}."]
