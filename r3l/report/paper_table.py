"""Rows of scores as papers print them: a section a model, a row a method, a column a benchmark or a measure.

Published numbers stand below ours. Every row in full: r3l.report.full_table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from r3l.config import EnvConfig, backbone, load, model_label, names
from r3l.report import table as tables
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import NOTE, joined
from r3l.report.labels import env_label
from r3l.report.measures import MEASURES
from r3l.report.paired import MDE, TEST, mde_range
from r3l.report.published import SCORES, Published
from r3l.report.rows import CONSTANT_ANSWER_LABEL, Row, rounded
from r3l.report.table import Cell, Column, Section, Table
from r3l.stats.comparison import Comparison
from r3l.stats.intervals import Interval

DIGITS = {"share": 3, "turns": 1, "tokens": 0, "s": 1}
METHOD = "method"  # the first column
Sections = dict[str, dict[str, tables.Row]]  # by title and by the name of the row


def printed(
    title: str, rows: Sequence[Row], published: Sequence[Published], measures: Sequence[str], empty: bool = False
) -> Table:
    """As papers print ``rows``, which are scores (``measures`` empty) or measures; of groups, all tasks are shown.

    With several measures a section is a model on a benchmark, and the columns are the measures. What has no run is left
    out and named below, unless ``empty``: our rows, and benchmarks with their published numbers. Where nothing has run,
    the published numbers are the table.
    """
    rows = [row for row in rows if row.group == "all"]
    several = len(measures) > 1
    left_out: list[str] = []
    if not empty:
        rows, published, left_out = _with_runs(rows, published)
    letters = _letters(published)
    ours, theirs = _our_sections(rows, published, several), _their_sections(published, letters, several)
    taught = any(row.feedback for row in rows)
    first = [METHOD, *([FEEDBACK] if taught else [])]
    columns = list(dict.fromkeys(c for _, cells in _rows(theirs) + _rows(ours) for c in cells if c not in first))
    if several:
        columns = [MEASURES[name].label for name in measures]
    planned = max((row.seeds_planned for row in rows), default=0)
    for sections, absent in ((ours, f"0/{planned} seeds"), (theirs, "not published")):
        for label, cells in _rows(sections):
            text = "none" if label == CONSTANT_ANSWER_LABEL else absent
            cells |= {column: Cell(text) for column in columns if column not in cells}
            if taught and FEEDBACK not in cells:
                cells[FEEDBACK] = Cell("none" if sections is ours else _published_teacher(label))
    ranked = [
        Section(title, [{METHOD: Cell(label)} | cells for label, cells in lines.items()])
        for title, lines in (ours | theirs).items()
    ]
    for section in ranked:
        tables.mark_best(section.rows, _signs(columns, measures))
    notes = [*_our_notes(rows, columns, several), *left_out, *([NOTE] if taught else [])]
    return Table(title, _columns(first, columns, ranked), ranked, [*notes, *_their_notes(published, letters)])


def _with_runs(rows: Sequence[Row], published: Sequence[Published]) -> tuple[list[Row], list[Published], list[str]]:
    """What is left without methods and benchmarks that have no run, and a note of what is not."""
    done = [row for row in rows if row.seeds_done]
    if not done and not published:
        return list(rows), [], []
    if not done:
        reasons = dict.fromkeys(row.paper.reason for row in rows)
        return [], list(published), [f"None of ours has run: {'; '.join(reasons)} (r3l table --empty)."]
    benchmarks = {env_label(row.env) for row in done}
    lines = {(row.tier, row.model, row.label) for row in done}
    kept = [
        row
        for row in rows
        if env_label(row.env) in benchmarks and (row.constant or (row.tier, row.model, row.label) in lines)
    ]
    beside = [number for number in published if number.benchmark in benchmarks]
    labels = {row.label for row in kept}
    columns = [env_label(row.env) for row in rows] + [number.benchmark for number in published]
    parts = (
        dict.fromkeys(name for name in columns if name not in benchmarks),
        dict.fromkeys(row.label for row in rows if row.label not in labels),
    )
    absent = "; ".join(", ".join(part) for part in parts if part)
    return kept, beside, [f"Left out, since none of ours has run there: {absent} (r3l table --empty)."] * bool(absent)


def _rows(sections: Sections) -> list[tuple[str, tables.Row]]:
    return [row for rows in sections.values() for row in rows.items()]


def _columns(first: Sequence[str], names: Sequence[str], sections: Sequence[Section]) -> list[Column]:
    """Cells with an interval are never broken in two."""
    cells = [item for section in sections for row in section.rows for item in row.items()]
    intervals = {name for name, cell in cells if "±" in cell.text}
    left = [Column(name, no_wrap=name == METHOD) for name in first]
    return left + [Column(name, right=True, no_wrap=name in intervals) for name in names]


def _our_sections(rows: Sequence[Row], published: Sequence[Published], several: bool) -> Sections:
    backbones = {number.backbone for number in published}
    sections: Sections = {}
    teachers: dict[tuple[str, str], list[tuple[bool, str]]] = {}
    for row in rows:
        title, column = _place(_model(row, rows, backbones), env_label(row.env), row.measure, several)
        sections.setdefault(title, {}).setdefault(row.label, {})[column] = _ours(row)
        if row.feedback:
            teachers.setdefault((title, row.label), []).append((row.seeds_done > 0, row.feedback))
    for (title, label), named in teachers.items():  # of cells that nobody has run only where nothing has run
        ran = [teacher for done, teacher in named if done]
        sections[title][label][FEEDBACK] = Cell(joined(ran or [teacher for _, teacher in named]))
    return sections


def _their_sections(published: Sequence[Published], letters: dict[str, str], several: bool) -> Sections:
    sections: Sections = {}
    for number in published:
        whose = f"{number.backbone}, {number.source_kind}"
        title, column = _place(whose, number.benchmark, number.metric, several)
        mark = f" [{letters[number.note]}]" if number.note in letters else ""
        cell = Cell(f"{number.value}{mark}", float(number.value))
        sections.setdefault(title, {}).setdefault(number.label, {})[column] = cell
    return sections


def _published_teacher(label: str) -> str:
    stated = re.search(r"\bfeedback=(\w+)", label)
    return stated.group(1) if stated else "not recorded"


def _place(model: str, benchmark: str, measure: str, several: bool) -> tuple[str, str]:
    return (f"{model}, {benchmark}", MEASURES[measure].label) if several else (model, benchmark)


def _model(row: Row, rows: Sequence[Row], backbones: set[str]) -> str:
    """The model where it is one of the published or an environment has several; else the tier, for all its models."""
    models = {other.model for other in rows if (other.tier, other.env) == (row.tier, row.env)}
    label = model_label(row.model)
    by_model = backbone(row.model) in backbones or len(models) > 1
    return f"{label}, ours" if by_model else f"{row.tier} tier, ours"


def _signs(columns: Sequence[str], measures: Sequence[str]) -> dict[str, int]:
    """Of each column with a best value whether that is the highest (1) or the lowest (-1)."""
    known = {MEASURES[name].label: MEASURES[name].better for name in measures}
    only = MEASURES[measures[0]].better if len(measures) == 1 else "high"
    better = {column: known.get(column, only) for column in columns}
    return {column: 1 if side == "high" else -1 for column, side in better.items() if side}


def _ours(row: Row) -> Cell:
    if row.score is None:
        return Cell(row.paper.reason if row.seeds_done else f"0/{row.seeds_planned} seeds")
    text = plus_minus(row.score, row.unit)
    if row.constant:
        return Cell(text)
    if row.seeds_done < row.seeds_planned:
        return Cell(f"{text} ({row.seeds_done}/{row.seeds_planned})")
    return Cell(text, rounded(row.score.mean))


def _letters(published: Sequence[Published]) -> dict[str, str]:
    """A letter for every note; none where all numbers share one."""
    notes = list(dict.fromkeys(number.note for number in published))
    return {note: chr(ord("a") + k) for k, note in enumerate(n for n in notes if n)} if len(notes) > 1 else {}


def _our_notes(rows: Sequence[Row], columns: Sequence[str], several: bool) -> list[str]:
    if not rows:
        return []
    notes = [
        "Ours: mean ± 95 % interval over training seeds; of one or two seeds their values. (n/m): n of m planned "
        "seeds are done. Bold: the best of its block among those with all seeds; it need not differ significantly."
    ]
    notes += filter(None, [_mde_note(rows)])
    if any(row.score and row.score.kind.startswith("Wilson") for row in rows):
        notes.append("One run on a question set has Wilson's interval over its questions.")
    notes += [f"Ours: tier {label}." for label in sorted({row.tier_label for row in rows if row.tier_label})]
    notes += [] if several else _elsewhere(rows, columns)
    methods = [row for row in rows if not row.constant]
    reasons = Counter((row.paper.verdict, row.paper.reason) for row in methods)
    notes += [f"{count} x {verdict}: {reason}." for (verdict, reason), count in reasons.items()]
    notes += sorted({f"{env_label(row.env)}: {row.paper.reason}." for row in rows if row.constant})
    task_sets = task_set_names(rows)
    notes += [f"Task sets: {', '.join(task_sets)}."] if task_sets else []
    notes += sorted({f"{row.task_set}: {row.warning}." for row in rows if row.warning})
    return notes + notes_of_runs(rows)


def _elsewhere(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Why whole columns of ours are empty: nobody ran them, or the tier has no such environment."""
    tiers, here = {row.tier for row in rows}, {env_label(row.env) for row in rows}
    configs = [load("envs", name, EnvConfig) for name in names("envs")]
    possible = {config.label for config in configs if tiers & set(config.tiers)}
    possible |= {name for config in configs for tier in tiers for name in config.question_sets.get(tier, {}).values()}
    empty = [column for column in columns if column not in here]
    parts = {"nobody has run it": [c for c in empty if c in possible]}
    parts |= {"this tier has no such set": [c for c in empty if c not in possible]}
    return [f"0 seeds on {', '.join(labels)}: {reason}." for reason, labels in parts.items() if labels]


def _mde_note(rows: Sequence[Row]) -> str:
    """The range of MDEs by environment, since no differences are printed; empty where nothing was compared."""
    by_env: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.difference is not None:
            by_env.setdefault(env_label(row.env), []).append(row.difference)
    ranges = [f"{env} {sizes}" for env, differences in by_env.items() if (sizes := mde_range(differences))]
    if not ranges:
        return ""
    return (
        f"Minimum detectable effect ({MDE}) of so many seeds against {baseline_label(rows)} (paired by seed, {TEST}; "
        f"in brackets with Holm's correction over this table and its task groups): {', '.join(ranges)}. Of two other "
        "rows: r3l compare."
    )


def baseline_label(rows: Sequence[Row]) -> str:
    return next((row.label for row in rows if row.method == row.baseline), rows[0].baseline or "")


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


def plus_minus(interval: Interval, unit: str | None = None, sign: str = "") -> str:
    """``0.308 ± 0.057``; bounds in brackets where they are not symmetric; without them every seed: ``0.310, 0.290``."""
    mean, low, high = map(rounded, (interval.mean, interval.low, interval.high))  # as CSV files hold them
    form = f",.{DIGITS[unit or 'share']}f"
    if low is None or high is None:
        return ", ".join(f"{rounded(value):{sign}{form}}" for value in interval.points or (mean,))
    if abs((high - mean) - (mean - low)) < 2e-4:
        return f"{mean:{sign}{form}} ± {high - mean:{form}}"
    return f"{mean:{sign}{form}} [{low:{form}}, {high:{form}}]"


def task_set_names(rows: Sequence[Row]) -> list[str]:
    """``ENV NAME (hash)`` of each task set that the rows were measured on."""
    measured = [row for row in rows if row.task_set and row.task_set_sha256]
    return sorted({f"{row.env} {row.task_set} ({str(row.task_set_sha256)[:12]})" for row in measured})


def notes_of_runs(rows: Sequence[Row]) -> list[str]:
    """What docs/preregistration.md was when the runs behind rows of scores were made.

    It does not say that the runs are part of that plan: every run's manifest has the sha256, a user's own too."""
    ran = [row.preregistration for row in rows if row.seeds_done]
    dated = list(filter(None, ran))
    if not dated:
        return []
    texts = {text for plan in dated for text in plan.split(", ")}
    part = "" if len(dated) == len(ran) else f" ({len(dated)} of {len(ran)} rows)"
    which = f"at sha256 {min(texts)}" if len(texts) == 1 else f"at {len(texts)} versions, which r3l verify names"
    return [f"At the time of the runs, docs/preregistration.md was {which}{part}."]
