"""Tables of the HTML report alone: how episodes ended, what was invalid or dropped, settings and options."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from r3l.config import load_method, names, resolve, variant
from r3l.config.options import method_options
from r3l.report.labels import env_label
from r3l.report.records import Record, by_method
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.metrics import members


def endings(records: Sequence[Record]) -> list[Table]:
    """How episodes ended, which reflections were of no use, and what was dropped: counts by reason."""
    return [
        _counts(
            "Test episodes by ending",
            "Share of the episodes; hover over one, or tap on it, for the number.",
            records,
            lambda record: record.evaluation["stops"],
        ),
        _counts(
            "Training episodes by ending",
            "Rollouts and retries. truncated: a response outgrew its limit; context: the dialog outgrew the model's.",
            records,
            lambda record: members(record.result["budget"], "stop"),
        ),
        _counts(
            "Reflections and critiques",
            "Invalid ones by reason; no retry follows those.",
            records,
            _reflections,
        ),
        _counts(
            "Answers in feedback",
            "Reflections and critiques on tasks with a known answer. told: it stands neither in the problem nor in the "
            "attempt, and a teacher's text is not used; quoted: it stands there too. Older runs searched reflections "
            "only and did not tell the two apart.",
            records,
            _answers,
        ),
        _counts(
            "Dropped in training",
            "groups: refused by the method; rejected: not imitated; no_oracle_pivot: the environment has no critic; "
            "workers: lost with what they played, which was played again.",
            records,
            lambda record: members(record.counts, "dropped"),
            shares=False,
        ),
    ]


def settings(records: Sequence[Record]) -> Table:
    """What each method ran under, by its manifests: profile, learning rate, and the settings that differ from those of
    the method, or of the one that it extends, under profile ``paper``.

    Environments in which all of that is the same share a row; hovering over a change gives its meaning and audit id.
    """
    meanings = {option.option: option.meaning for option in method_options()}
    rows: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        run, name = record.manifest["run"], variant(record.method).method
        known = name in names("methods")
        like = (load_method(name).extends or name) if known else ""
        paper = resolve(record.tier, record.env, f"{like}@profile=paper", 0).method_settings if known else {}
        texts = (
            record.method_label,
            load_method(like).label if like and like != name else "",
            _lines(run["method_settings"], paper),
            run["profile"],
            f"{run['train']['lr']:g}" if "lr" in run.get("train", {}) else "",
            _lines(run["env_settings"].get("options") or {}, {}),
        )
        rows.setdefault(texts, []).append(env_label(record.env))

    def titled(text: str) -> Cell:
        keys = [line.partition(":")[0] for line in text.splitlines()]
        return Cell(text, title="\n".join(f"{key}: {meanings[key]}" for key in keys if key in meanings))

    def text(name: str, place: int) -> Column:
        return Column(name, lambda row: row[place])

    columns = [
        Column("environment", lambda row: ", ".join(dict.fromkeys(rows[row]))),
        text("method", 0),
        text("as", 1),
        Column("but", lambda row: titled(row[2])),
        text("profile", 3),
        text("learning rate", 4),
        text("engine", 5),
    ]
    note = "As the manifests have it. Complete settings of a run stand under Runs; what an option means, below."
    return table("In force", columns, list(rows), note)


def _lines(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """A line a setting that is not as usual."""
    usual = json.loads(json.dumps(dict(usual)))  # lists for tuples, as in a manifest
    return "\n".join(f"{key}: {value}" for key, value in settings.items() if usual.get(key) != value)


def all_options() -> Table:
    rows = [{name: str(value) for name, value in vars(option).items()} for option in method_options()]
    note = "Letters and numbers are ids of our audit of the release."
    return table("Every option", list(map(Column, rows[0])), rows, note)


def _counts(
    title: str,
    note: str,
    records: Sequence[Record],
    count: Callable[[Record], Mapping[str, float]],
    shares: bool = True,
) -> Table:
    """A row a method and environment, a column a reason, the commonest first; seeds are added up."""
    rows: list[tuple[Record, int, Counter[str]]] = []
    for bench in sorted({record.bench for record in records}):
        for seeds in by_method([r for r in records if r.bench == bench]).values():
            total: Counter[str] = Counter()
            for record in seeds:
                total.update(count(record))
            rows.append((seeds[0], len(seeds), total))
    together: Counter[str] = Counter()
    for _, _, total in rows:
        together.update(total)
    reasons = [reason for reason, number in together.most_common() if number]

    def reason(name: str) -> Column:
        return Column(name, lambda row: _count(row[2][name], row[2].total(), shares))

    columns = [
        Column("method", lambda row: Cell(row[0].method_label, title=row[0].method)),
        Column("seeds", lambda row: row[1], "d"),
        *map(reason, reasons),
    ]
    return table(title, columns, [row for row in rows if row[2].total()], note, by=lambda row: env_label(row[0].env))


def _count(number: float, total: float, shares: bool) -> Cell:
    if not number:
        return Cell("", 0.0)
    if not shares:
        return Cell(f"{number:,.0f}", number)
    share = number / total
    return Cell(f"{share:.1%}" if share >= 0.0005 else "< 0.1%", share, f"{number:,.0f} of {total:,.0f}")


def _reflections(record: Record) -> dict[str, float]:
    """Reflections and critiques by what became of them; each is counted once."""
    counts = record.result["budget"]
    invalid = {key: number for key, number in counts.items() if "/invalid/" in key}
    spoilt = counts.get("critique/not_json", 0) + sum(n for key, n in invalid.items() if key.startswith("critique/"))
    written = sum(counts.get(f"critique/by_{who}", 0) for who in ("environment", "model", "judge"))
    return {
        "reflections valid": counts.get("reflection/valid", 0),
        "critiques read": written - spoilt,
        "critiques not JSON, used as text": counts.get("critique/not_json", 0),
        **{key.replace("/invalid/", " invalid: "): number for key, number in invalid.items()},
    }


def _answers(record: Record) -> dict[str, float]:
    """Reflections and critiques by how they state the answer of their task; each is counted once."""
    counts = record.result["budget"]
    audited, stated, told, quoted = (
        counts.get(f"leak/{name}", 0) for name in ("guidance", "answer_stated", "told", "quoted")
    )
    apart = {"told": told, "quoted": quoted} if told + quoted else {"stated": stated}
    return {"not stated": audited - stated, **apart}
