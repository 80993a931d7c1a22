"""Budget parity: what each method's training cost, in the same units, seeds averaged."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import NOTE as FEEDBACK_NOTE
from r3l.report.records import Record, by_method, feedback, outdated
from r3l.report.rows import LongRow, outdated_notes
from r3l.report.table import Cell, Column, Table
from r3l.report.tables.printed import METHOD, Sections, in_sections
from r3l.runs.metrics import rates

SUMS = {  # column: keys of result.json's budget
    "rollouts": ("rollouts",),
    "env_steps": ("env_steps",),
    "prompt_tokens": ("prompt/rollout", "prompt/reflection", "prompt/critique", "prompt/retry"),
    "rollout_tokens": ("tokens/rollout",),
    "reflection_tokens": ("tokens/reflection",),
    "critique_tokens": ("tokens/critique",),
    "retry_tokens": ("tokens/retry",),
    "judge_tokens": ("tokens/judge",),
    "generated_tokens": ("tokens/generated",),
    "trained_tokens": ("tokens/trained",),
    "retries": ("retry/count",),
    "dropped": ("dropped/groups", "dropped/rejected", "dropped/no_oracle_pivot", "dropped/workers"),
}
PHASES = ("seconds/rollout", "seconds/feedback", "seconds/retry", "seconds/collect", "seconds/train")


def budget_rows(records: Sequence[Record]) -> list[LongRow]:
    """One row a (tier, env, model, method): budget and the rates that explain it.

    ``relative_generated`` is against the cheapest method of the same bench; rates are those of r3l.runs.metrics.
    """
    rows = []
    for bench in sorted({record.bench for record in records}):
        for seeds in by_method([r for r in records if r.bench == bench]).values():
            rows.append(_row(bench, seeds))
    for row in rows:
        peers = [r["generated_tokens"] for r in rows if _bench(r) == _bench(row) and r["generated_tokens"]]
        row["relative_generated"] = round(row["generated_tokens"] / min(peers), 2) if row["generated_tokens"] else None
    return rows


def _bench(row: LongRow) -> tuple[str, str, str]:
    return row["tier"], row["env"], row["model"]


def _row(bench: tuple[str, str, str], seeds: list[Record]) -> LongRow:
    budgets = [record.counts for record in seeds]
    mean = {key: sum(b.get(key, 0) for b in budgets) / len(seeds) for key in sorted(set().union(*budgets))}
    seconds = {key: sum(m.get(key, 0.0) for s in seeds for m in s.metrics) / len(seeds) for key in PHASES}
    return {
        **dict(zip(("tier", "env", "model"), bench, strict=True)),
        "method": seeds[0]["method"],
        "label": seeds[0]["method_label"],
        **feedback(seeds),
        "seeds": len(seeds),
        **{name: round(sum(mean.get(key, 0) for key in keys)) for name, keys in SUMS.items()},
        **{name: None if value is None else round(value, 4) for name, value in rates(mean).items()},
        **{key.replace("/", "_"): round(value, 1) for key, value in seconds.items()},
        **outdated(seeds),
    }


COLUMNS = {  # in print: column
    "rollouts": "rollouts",
    "env steps": "env_steps",
    "rollout": "rollout_tokens",
    "reflect": "reflection_tokens",
    "critique": "critique_tokens",
    "retry": "retry_tokens",
    "judge": "judge_tokens",
    "x": "relative_generated",
    "trained": "trained_tokens",
    "masked": "masked",
    "imitated": "imitated",
    "collect s": "seconds_collect",
    "train s": "seconds_train",
}
NOTE = (
    "Tokens: generated while rolling out, reflecting, criticising, retrying; judge: written by a judge; x: all but the "
    "judge's against the cheapest; "
    "masked: sampled tokens without gradient; imitated: share of trained tokens; seconds as measured (runs side by "
    "side share the machine)."
)


def table(rows: Sequence[LongRow]) -> Table:
    """As it is printed: a section an environment and model, a line a method. Nothing is marked as best."""
    sections: Sections = {}
    for row in rows:
        cells = {name: Cell("" if row[key] is None else f"{row[key]:,}") for name, key in COLUMNS.items()}
        cells |= {FEEDBACK: Cell(row[FEEDBACK] or "")}
        sections.setdefault(f"{row['tier']}, {row['env']}, {row['model']}", {})[row["label"]] = cells
    columns = [Column(METHOD, no_wrap=True), Column(FEEDBACK), *(Column(name, right=True) for name in COLUMNS)]
    return Table(
        "Budget parity: training only, means over seeds",
        columns,
        in_sections(sections),
        [NOTE, FEEDBACK_NOTE, *outdated_notes(rows)],
    )
