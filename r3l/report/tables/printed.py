"""A table as papers print it: a section a model, a row a method, a column a benchmark (or a measure).

Made from the long rows and the published numbers beside them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from r3l.config import EnvConfig, load, model_label, names
from r3l.report.comparison import shown
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import NOTE, joined
from r3l.report.labels import env_label
from r3l.report.published import SCORES, Published
from r3l.report.rows import CONSTANT_ANSWER, CONSTANT_ANSWER_LABEL, LongRow, notes_of_runs, task_set_names
from r3l.report.table import Cell, Column, Row, Section, Table, mark_best
from r3l.report.tables.measures import MEASURES, Better

DIGITS = {"share": 3, "turns": 1, "tokens": 0, "s": 1}
METHOD = "method"  # the first column
Sections = dict[str, dict[str, Row]]  # by title and by the name of the row


def table(
    title: str, rows: Sequence[LongRow], published: Sequence[Published], measures: Sequence[str], empty: bool = False
) -> Table:
    """``rows`` are long rows of scores (``measures`` empty) or of measures; of groups, all tasks are shown.

    With several measures a section is a model on a benchmark, and the columns are the measures. What has no run is left
    out and named below, unless ``empty``: our rows, and benchmarks with their published numbers. Where nothing has run,
    the published numbers are the table.
    """
    rows = [row for row in rows if row.get("group", "all") == "all"]
    several = len(measures) > 1
    left_out: list[str] = []
    if not empty:
        rows, published, left_out = _with_runs(rows, published)
    letters = _letters(published)
    ours, theirs = _our_sections(rows, published, several), _their_sections(published, letters, several)
    taught = any(row.get(FEEDBACK) for row in rows)
    first = [METHOD, *([FEEDBACK] if taught else [])]
    columns = list(dict.fromkeys(c for _, cells in _rows(theirs) + _rows(ours) for c in cells if c not in first))
    if several:
        columns = [MEASURES[name].label for name in measures]
    planned = max((row["seeds_planned"] for row in rows), default=0)
    for sections, absent in ((ours, f"0/{planned} seeds"), (theirs, "not published")):
        for label, cells in _rows(sections):
            text = "none" if label == CONSTANT_ANSWER_LABEL else absent
            cells |= {column: Cell(text) for column in columns if column not in cells}
            if taught and FEEDBACK not in cells:
                cells[FEEDBACK] = Cell("none" if sections is ours else _published_teacher(label))
    return Table(
        title,
        _columns(first, columns, ours | theirs),
        _ranked(ours | theirs, _signs(columns, measures)),
        [
            *_our_notes(rows, columns, several),
            *left_out,
            *([NOTE] if taught else []),
            *_their_notes(published, letters),
        ],
    )


def _with_runs(
    rows: Sequence[LongRow], published: Sequence[Published]
) -> tuple[list[LongRow], list[Published], list[str]]:
    """What is left without methods and benchmarks that have no run, and a note of what is not."""
    done = [row for row in rows if row["seeds_done"]]
    if not done and not published:
        return list(rows), [], []
    benchmarks = {env_label(row["env"]) for row in done}
    methods = {_line(row) for row in done}
    if not done:
        reasons = dict.fromkeys(row["verdict_reason"] for row in rows)
        return [], list(published), [f"None of ours has run: {'; '.join(reasons)} (r3l table --empty)."]
    kept = [
        row
        for row in rows
        if env_label(row["env"]) in benchmarks and (_line(row) in methods or row["method"] == CONSTANT_ANSWER)
    ]
    beside = [number for number in published if number.benchmark in benchmarks]
    labels = {row["label"] for row in kept}
    names = [env_label(row["env"]) for row in rows] + [number.benchmark for number in published]
    columns = dict.fromkeys(name for name in names if name not in benchmarks)
    lines = dict.fromkeys(row["label"] for row in rows if row["label"] not in labels)
    absent = "; ".join(", ".join(part) for part in (columns, lines) if part)
    return (
        kept,
        beside,
        [f"Left out, since none of ours has run there: {absent} (r3l table --empty)."] if absent else [],
    )


def _line(row: LongRow) -> tuple[str, str, str]:
    return row["tier"], row["model"], row["label"]


def in_sections(sections: Sections) -> list[Section]:
    """Sections by title and name, each row beginning with its name."""
    return [
        Section(title, [{METHOD: Cell(label)} | row for label, row in rows.items()]) for title, rows in sections.items()
    ]


def _rows(sections: Sections) -> list[tuple[str, Row]]:
    return [row for rows in sections.values() for row in rows.items()]


def _columns(first: Sequence[str], names: Sequence[str], sections: Sections) -> list[Column]:
    """Cells with an interval are never broken in two."""
    intervals = {name for _, row in _rows(sections) for name, cell in row.items() if "±" in cell.text}
    left = [Column(name, no_wrap=name == METHOD) for name in first]
    return left + [Column(name, right=True, no_wrap=name in intervals) for name in names]


def _ranked(sections: Sections, signs: Mapping[str, int]) -> list[Section]:
    ranked = in_sections(sections)
    for section in ranked:
        mark_best(section.rows, signs)
    return ranked


def _our_sections(rows: Sequence[LongRow], published: Sequence[Published], several: bool) -> Sections:
    backbones = {number.backbone for number in published}
    sections: Sections = {}
    teachers: dict[tuple[str, str], list[tuple[bool, str]]] = {}
    for row in rows:
        title, column = _place(_model(row, rows, backbones), env_label(row["env"]), row["measure"], several)
        sections.setdefault(title, {}).setdefault(row["label"], {})[column] = _ours(row)
        if teacher := row.get(FEEDBACK):
            teachers.setdefault((title, row["label"]), []).append((row["seeds_done"] > 0, teacher))
    for (title, label), named in teachers.items():  # of cells that nobody has run only where nothing has run
        ran = [teacher for done, teacher in named if done]
        sections[title][label][FEEDBACK] = Cell(joined(ran or [teacher for _, teacher in named]))
    return sections


def _their_sections(published: Sequence[Published], letters: dict[str, str], several: bool) -> Sections:
    sections: Sections = {}
    for number in published:
        whose = f"{number.backbone}, {number.source_kind}"
        title, column = _place(whose, number.benchmark, number.metric, several)
        sections.setdefault(title, {}).setdefault(number.label, {})[column] = _theirs(number, letters)
    return sections


def _published_teacher(label: str) -> str:
    stated = re.search(r"\bfeedback=(\w+)", label)
    return stated.group(1) if stated else "not recorded"


def _place(model: str, benchmark: str, measure: str, several: bool) -> tuple[str, str]:
    return (f"{model}, {benchmark}", MEASURES[measure].label) if several else (model, benchmark)


def _model(row: LongRow, rows: Sequence[LongRow], backbones: set[str]) -> str:
    """The model where it is one of the published or an environment has several; else the tier, for all its models."""
    models = {other["model"] for other in rows if (other["tier"], other["env"]) == (row["tier"], row["env"])}
    label = model_label(row["model"])
    by_model = label in backbones or len(models) > 1
    return f"{label}, ours" if by_model else f"{row['tier']} tier, ours"


def _signs(columns: Sequence[str], measures: Sequence[str]) -> dict[str, int]:
    """Of each column with a best value whether that is the highest (1) or the lowest (-1)."""
    known = {MEASURES[name].label: MEASURES[name].better for name in measures}
    only: Better = MEASURES[measures[0]].better if len(measures) == 1 else "high"
    better = {column: known.get(column, only) for column in columns}
    return {column: 1 if side == "high" else -1 for column, side in better.items() if side}


def _ours(row: LongRow) -> Cell:
    if row["mean"] is None:
        ran = row["seeds_done"] > 0
        return Cell(row["verdict_reason"] if ran else f"0/{row['seeds_planned']} seeds")
    text = plus_minus(row)
    if row["method"] == CONSTANT_ANSWER:
        return Cell(text)
    if row["seeds_done"] < row["seeds_planned"]:
        return Cell(f"{text} ({row['seeds_done']}/{row['seeds_planned']})")
    return Cell(text, row["mean"])


def _theirs(number: Published, letters: dict[str, str]) -> Cell:
    mark = f" [{letters[number.note]}]" if number.note in letters else ""
    return Cell(f"{number.value}{mark}", float(number.value))


def _letters(published: Sequence[Published]) -> dict[str, str]:
    """A letter for every note; none where all numbers share one."""
    notes = list(dict.fromkeys(number.note for number in published))
    return {note: chr(ord("a") + k) for k, note in enumerate(n for n in notes if n)} if len(notes) > 1 else {}


def _our_notes(rows: Sequence[LongRow], columns: Sequence[str], several: bool) -> list[str]:
    if not rows:
        return []
    notes = [
        "Ours: mean ± 95 % interval over training seeds; one seed has none. (n/m): n of m planned seeds are done. "
        "Bold: the best of its block among those with all seeds; it need not differ significantly."
    ]
    notes += filter(None, [shown.note_in_print(rows)])
    if any((row.get("interval") or "").startswith("Wilson") for row in rows):
        notes.append("One run on a question set has Wilson's interval over its questions.")
    notes += [f"Ours: tier {label}." for label in sorted({r["tier_label"] for r in rows if r["tier_label"]})]
    notes += [] if several else _elsewhere(rows, columns)
    reasons = Counter((row["verdict"], row["verdict_reason"]) for row in rows if row["method"] != CONSTANT_ANSWER)
    notes += [f"{count} x {verdict}: {reason}." for (verdict, reason), count in reasons.items()]
    constants = {f"{env_label(r['env'])}: {r['verdict_reason']}." for r in rows if r["method"] == CONSTANT_ANSWER}
    task_sets = task_set_names(rows)
    warnings = {f"{row['task_set']}: {row['warning']}." for row in rows if row.get("warning")}
    return [
        *notes,
        *([f"Task sets: {', '.join(task_sets)}."] if task_sets else []),
        *sorted(constants),
        *sorted(warnings),
        *notes_of_runs(rows),
    ]


def _elsewhere(rows: Sequence[LongRow], columns: Sequence[str]) -> list[str]:
    """Why whole columns of ours are empty: nobody ran them, or the tier has no such environment."""
    tiers, here = {row["tier"] for row in rows}, {env_label(row["env"]) for row in rows}
    configs = [load("envs", name, EnvConfig) for name in names("envs")]
    possible = {config.label for config in configs if tiers & set(config.tiers)}
    possible |= {name for config in configs for tier in tiers for name in config.question_sets.get(tier, {}).values()}
    empty = [column for column in columns if column not in here]
    parts = {"nobody has run it": [c for c in empty if c in possible]}
    parts |= {"this tier has no such set": [c for c in empty if c not in possible]}
    return [f"0 seeds on {', '.join(labels)}: {reason}." for reason, labels in parts.items() if labels]


def _their_notes(published: Sequence[Published], letters: dict[str, str]) -> list[str]:
    if not published:
        return []
    partial = sorted({number.benchmark for number in published if number.metric == "reward"})
    notes = ["Published numbers as printed; what speaks against some of them: r3l published."]
    if partial and any(number.metric in SCORES for number in published):
        notes.append(
            f"Published on {', '.join(partial)}: average reward with partial credit; elsewhere, and ours, success."
        )
    shared = {number.note for number in published} - set(letters) - {""}
    notes += [f"Published: {note}." for note in sorted(shared)]
    notes += [f"[{letter}] {note}." for note, letter in letters.items()]
    return [*notes, *sorted({f"Source: {number.source}." for number in published})]


def plus_minus(row: LongRow, prefix: str = "") -> str:
    """``0.308 ± 0.057`` of a long row; bounds in brackets where they are not symmetric; the mean alone without them."""
    mean, low, high = (row[f"{prefix}{key}"] for key in ("mean", "low", "high"))
    shape = f"{'+' if prefix else ''},.{DIGITS[row.get('unit') or 'share']}f"
    if low is None:
        return f"{mean:{shape}}"
    if abs((high - mean) - (mean - low)) < 2e-4:
        return f"{mean:{shape}} ± {high - mean:{shape.lstrip('+')}}"
    return f"{mean:{shape}} [{low:{shape.lstrip('+')}}, {high:{shape.lstrip('+')}}]"
