"""A table as the paper prints it: a block a model, a line a method, a column a benchmark (or a measure).

Made from the long rows and the published numbers beside them; printed as Markdown, LaTeX (booktabs) and in a terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r3l.config import EnvConfig, load, model_label, names
from r3l.report.measures import MEASURES, Better
from r3l.report.published import SCORES, Published
from r3l.report.tables import CONSTANT, CONSTANT_LABEL, benchmark_of

Row = dict[str, Any]
DIGITS = {"share": 3, "turns": 1, "tokens": 0, "s": 1}
TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}
)
MARKDOWN = str.maketrans({"<": "&lt;", "|": "\\|", "*": "\\*"})


@dataclass(frozen=True)
class Cell:
    """What is printed, and what ranks it: ``value`` is None where there is no number, or not of all its seeds."""

    text: str
    value: float | None = None


Blocks = dict[str, dict[str, dict[str, Cell]]]


@dataclass
class Layout:
    """``blocks``: block -> line -> column -> cell. Every cell is filled; ``best`` are those to mark."""

    title: str
    columns: list[str]
    better: dict[str, Better]
    blocks: Blocks
    notes: list[str] = field(default_factory=list)

    def best(self, block: str, column: str) -> set[str]:
        """The lines of ``block`` that are best in ``column``; none where nothing is compared."""
        better = self.better[column]
        values = {line: cells[column].value for line, cells in self.blocks[block].items()}
        ranked = {line: value if better == "high" else -value for line, value in values.items() if value is not None}
        if not better or len(ranked) < 2:
            return set()
        return {line for line, value in ranked.items() if value == max(ranked.values())}


def lay_out(title: str, rows: Sequence[Row], published: Sequence[Published], measures: Sequence[str]) -> Layout:
    """``rows`` are long rows of scores (``measures`` empty) or of measures; of groups, all tasks are shown.

    With several measures a block is a model on a benchmark, and the columns are the measures.
    """
    rows = [row for row in rows if row.get("group", "all") == "all"]
    several = len(measures) > 1
    letters = _letters(published)
    ours, theirs = _our_blocks(rows, published, several), _their_blocks(published, letters, several)
    columns = list(
        dict.fromkeys(c for part in (theirs, ours) for lines in part.values() for k in lines.values() for c in k)
    )
    if several:
        columns = [MEASURES[name].label for name in measures]
    planned = max((row["seeds_planned"] for row in rows), default=0)
    for part, absent in ((ours, f"0/{planned} seeds"), (theirs, "not published")):
        for line, cells in (item for lines in part.values() for item in lines.items()):
            text = "none" if line == CONSTANT_LABEL else absent
            cells |= {column: Cell(text) for column in columns if column not in cells}
    notes = [*_our_notes(rows, columns, several), *_their_notes(published, letters)]
    return Layout(title, columns, _better(columns, measures), ours | theirs, notes)


def _our_blocks(rows: Sequence[Row], published: Sequence[Published], several: bool) -> Blocks:
    backbones = {number.backbone for number in published}
    blocks: Blocks = {}
    for row in rows:
        block, column = _place(_model(row, rows, backbones), _benchmark(row["env"]), row["measure"], several)
        blocks.setdefault(block, {}).setdefault(row["label"], {})[column] = _ours(row)
    return blocks


def _their_blocks(published: Sequence[Published], letters: dict[str, str], several: bool) -> Blocks:
    blocks: Blocks = {}
    for number in published:
        whose = f"{number.backbone}, {number.source_kind}"
        block, column = _place(whose, number.benchmark, number.metric, several)
        blocks.setdefault(block, {}).setdefault(number.label, {})[column] = _theirs(number, letters)
    return blocks


def _place(model: str, benchmark: str, measure: str, several: bool) -> tuple[str, str]:
    return (f"{model}, {benchmark}", MEASURES[measure].label) if several else (model, benchmark)


def _benchmark(env: str) -> str:
    return benchmark_of(env) if env in names("envs") else env


def _model(row: Row, rows: Sequence[Row], backbones: set[str]) -> str:
    """The model where it is one of the published or an environment has several; else the tier, for all its models."""
    models = {other["model"] for other in rows if (other["tier"], other["env"]) == (row["tier"], row["env"])}
    label = model_label(row["model"])
    by_model = label in backbones or len(models) > 1
    return f"{label}, ours" if by_model else f"{row['tier']} tier, ours"


def _better(columns: Sequence[str], measures: Sequence[str]) -> dict[str, Better]:
    by_label = {MEASURES[name].label: MEASURES[name].better for name in measures}
    only: Better = MEASURES[measures[0]].better if len(measures) == 1 else "high"
    return {column: by_label.get(column, only) for column in columns}


def _ours(row: Row) -> Cell:
    if row["mean"] is None:
        ran = row["seeds_done"] > 0
        return Cell(row["verdict_reason"] if ran else f"0/{row['seeds_planned']} seeds")
    text = plus_minus(row)
    if row["method"] == CONSTANT:
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


def _our_notes(rows: Sequence[Row], columns: Sequence[str], several: bool) -> list[str]:
    notes = [
        "Ours: mean ± 95 % interval over training seeds; one seed has none. (n/m): n of m planned seeds are done. "
        "Bold: the best of its block among those with all seeds; it need not differ significantly."
    ]
    if any((row.get("interval") or "").startswith("Wilson") for row in rows):
        notes.append("One run on a question set has Wilson's interval over its questions.")
    notes += [f"Ours: tier {label}." for label in sorted({r["tier_label"] for r in rows if r["tier_label"]})]
    notes += [] if several else _elsewhere(rows, columns)
    reasons = Counter((row["verdict"], row["verdict_reason"]) for row in rows if row["method"] != CONSTANT)
    notes += [f"{count} x {verdict}: {reason}." for (verdict, reason), count in reasons.items()]
    constants = {f"{_benchmark(r['env'])}: {r['verdict_reason']}." for r in rows if r["method"] == CONSTANT}
    task_sets = {f"{r['env']} {r['task_set']} ({r['task_set_sha256'][:12]})" for r in rows if r.get("task_set")}
    warnings = {f"{row['task_set']}: {row['warning']}." for row in rows if row.get("warning")}
    return [
        *notes,
        *([f"Task sets: {', '.join(sorted(task_sets))}."] if task_sets else []),
        *sorted(constants),
        *sorted(warnings),
    ]


def _elsewhere(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Why whole columns of ours are empty: nobody ran them, or the tier has no such environment."""
    tiers, here = {row["tier"] for row in rows}, {_benchmark(row["env"]) for row in rows}
    configs = [load("envs", name, EnvConfig) for name in names("envs")]
    possible = {config.label for config in configs if tiers & set(config.tiers)}
    empty = [column for column in columns if column not in here]
    parts = {"nobody has run it": [c for c in empty if c in possible]}
    parts |= {"this tier has no such set": [c for c in empty if c not in possible]}
    return [f"0 seeds on {', '.join(found)}: {reason}." for reason, found in parts.items() if found]


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


def plus_minus(row: Row, prefix: str = "") -> str:
    """``0.308 ± 0.057`` of a long row; bounds in brackets where they are not symmetric; the mean alone without them."""
    mean, low, high = (row[f"{prefix}{key}"] for key in ("mean", "low", "high"))
    shape = f"{'+' if prefix else ''},.{DIGITS[row.get('unit') or 'share']}f"
    if low is None:
        return f"{mean:{shape}}"
    if abs((high - mean) - (mean - low)) < 2e-4:
        return f"{mean:{shape}} ± {high - mean:{shape.lstrip('+')}}"
    return f"{mean:{shape}} [{low:{shape.lstrip('+')}}, {high:{shape.lstrip('+')}}]"


def _frames(layout: Layout) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Texts, and whether each is the best, with the index (block, line)."""
    index = pd.MultiIndex.from_tuples(
        [(block, line) for block, lines in layout.blocks.items() for line in lines], names=["Model", "Method"]
    )
    texts = [[layout.blocks[b][line][c].text for c in layout.columns] for b, line in index]
    best = [[line in layout.best(b, c) for c in layout.columns] for b, line in index]
    return pd.DataFrame(texts, index, layout.columns), pd.DataFrame(best, index, layout.columns)


def to_markdown(layout: Layout) -> str:
    """A pipe table with its title and notes."""
    texts, best = _frames(layout)
    shown = texts.map(lambda text: text.translate(MARKDOWN)).where(~best, "**" + texts + "**").reset_index()
    shown["Method"] = [text.translate(MARKDOWN) for text in shown["Method"]]
    shown["Model"] = shown["Model"].mask(shown["Model"].duplicated(), "")
    aligned = ["left", "left", *("right" for _ in layout.columns)]
    table = shown.to_markdown(index=False, disable_numparse=True, colalign=aligned)
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in layout.notes)
    return f"# {layout.title.translate(MARKDOWN)}\n\n{table}\n\n{notes}\n"


def to_latex(layout: Layout) -> str:
    """A table environment for a document with ``\\usepackage{booktabs}``; the notes stand in its caption."""
    texts, best = _frames(layout)
    bold = best.map(lambda is_best: "textbf:--rwrap;" if is_best else "")
    style = texts.style.format(_tex).format_index(_tex, axis=0).format_index(_tex, axis=1)
    style = style.format_index_names(_tex, axis=0).apply(lambda _: bold, axis=None)
    text = style.to_latex(
        hrules=True,
        clines="skip-last;data",
        multirow_align="naive",
        column_format="ll" + "r" * len(layout.columns),
        position="t",
        position_float="centering",
        caption=" ".join(_tex(note) for note in (f"{layout.title}.", *layout.notes)),
    )
    text = re.sub(r"\\cline\{[-\d]+\}\n(\\bottomrule)?", lambda found: found[1] or "\\midrule\n", text)
    return f"% needs \\usepackage{{booktabs}}\n{text}"


def _tex(text: str) -> str:
    return text.translate(TEX)


def to_terminal(layout: Layout) -> RenderableType:
    """For a terminal; a block has its model above it, the best are bold."""
    texts, _ = _frames(layout)
    shown = Table(title=layout.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("method", no_wrap=True)
    for column in layout.columns:
        intervals = any("±" in text for text in texts[column])
        shown.add_column(column, justify="right", overflow="fold", no_wrap=intervals)
    for block, lines in layout.blocks.items():
        shown.add_row(Text(block, style="italic"))
        best = {column: layout.best(block, column) for column in layout.columns}
        for line, cells in lines.items():
            marked = [Text(cells[c].text, style="bold" if line in best[c] else "") for c in layout.columns]
            shown.add_row(f"  {line}", *marked)
        shown.add_section()
    return Group(shown, *(Text(note) for note in layout.notes))
