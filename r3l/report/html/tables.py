"""Tables only of the HTML report: how episodes ended, what was invalid or dropped, settings and options."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from r3l.config import MethodConfig, resolve, variant
from r3l.config.method import method_files
from r3l.config.options import method_options
from r3l.core.errors import ConfigError
from r3l.report.frame import BENCH, by_bench, by_method
from r3l.report.labels import env_label
from r3l.report.table import Cell, Column, Table, table
from r3l.report.updates import training_of
from r3l.runs.step_metrics import members, summed


def endings(runs: pd.DataFrame) -> list[Table]:
    """Five tables of counts by method: endings of test and training episodes, feedback, answers, dropped.

    ``runs``: one row per run. The seeds of a method are added up; a column is a reason.
    """
    counts = list(runs.budget)
    of_training = [training_of(path).measured for path in runs.path]
    with_faults = [{**count, **measured} for count, measured in zip(counts, of_training, strict=True)]
    return [
        _counts(
            "Test episodes by ending",
            "Share of the episodes; hover over one, or tap on it, for the number.",
            runs,
            list(runs.stops),
        ),
        _counts(
            "Training episodes by ending",
            "Rollouts and retries. truncated: a response outgrew its limit; context: the dialog outgrew the "
            "model's.",
            runs,
            [members(count, "stop") for count in counts],
        ),
        _counts(
            "Reflections and critiques",
            "Invalid ones by reason; no retry follows those.",
            runs,
            [_reflections(count) for count in counts],
        ),
        _counts(
            "Answers in feedback",
            "Reflections and critiques on tasks with a known answer. told: the answer is neither in the "
            "problem nor in the attempt, and a teacher's text is not used; quoted: it is in one of them. "
            "Older runs searched only reflections and did not distinguish the two.",
            runs,
            [_answers(count) for count in counts],
        ),
        _counts(
            "Dropped in training",
            "groups: refused by the method; rejected: not imitated; no_oracle_pivot: the environment has no "
            "critic; workers: processes that died and were replaced; their rollouts were played again.",
            runs,
            [members(count, "dropped") for count in with_faults],
            shares=False,
        ),
    ]


def settings(runs: pd.DataFrame) -> Table:
    """Table of the settings of each method's runs, from their manifests.

    Shows profile, learning rate, and the settings that differ from the method's own under profile ``paper``
    (or from the settings of the method that it extends). Environments with equal settings share a row.
    Hovering over a change shows its meaning and its id in docs/audit.md.
    """
    meanings = {option.option: option.meaning for option in method_options()}
    rows: dict[tuple[str, ...], list[str]] = {}
    usual: dict[tuple[str, str, str], Mapping[str, Any]] = {}  # by tier, environment, method
    # By method: the file of the one that it extends, or its own. Reading files for each run is slow.
    parents: dict[str, MethodConfig] = {}
    for row in runs[["tier", "env", "method", "label", "manifest"]].itertuples():
        run = row.manifest["run"]
        name = variant(row.method).method
        like = ""
        with suppress(ConfigError):  # a method, environment or tier that is not here: all settings are shown
            if name not in parents:
                parents[name] = method_files(name)[-2:][0]
            like = parents[name].method
            if (row.tier, row.env, like) not in usual:
                paper = f"{like}@profile=paper"
                defaults = resolve(row.tier, row.env, paper, 0).method_settings
                # Lists for tuples, as in a manifest.
                usual[row.tier, row.env, like] = json.loads(json.dumps(dict(defaults)))
        texts = (
            row.label,
            parents[name].label if like and like != name else "",
            _lines(run["method_settings"], usual.get((row.tier, row.env, like), {})),
            run["profile"],
            f"{run['train']['lr']:g}" if "lr" in run.get("train", {}) else "",
            _lines(run["env_settings"].get("options") or {}, {}),
        )
        rows.setdefault(texts, []).append(row.env)

    def environments(row: tuple[str, ...]) -> str:
        return ", ".join(dict.fromkeys(map(env_label, dict.fromkeys(rows[row]))))

    def titled(text: str) -> Cell:
        keys = [line.partition(":")[0] for line in text.splitlines()]
        return Cell(text, title="\n".join(f"{key}: {meanings[key]}" for key in keys if key in meanings))

    def text(name: str, place: int) -> Column:
        return Column(name, lambda row: row[place])

    columns = [
        Column("environment", environments),
        text("method", 0),
        text("as", 1),
        Column("but", lambda row: titled(row[2])),
        text("profile", 3),
        text("learning rate", 4),
        text("engine", 5),
    ]
    note = (
        "From the manifests. Complete settings of a run are under Runs; what an option means is shown below."
    )
    return table("In force", columns, list(rows), note)


def _lines(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """The settings that differ from their usual value, one per line."""
    return "\n".join(f"{key}: {value}" for key, value in settings.items() if usual.get(key) != value)


def all_options() -> Table:
    """Table of every option of methods, one line each."""
    rows = [{name: str(value) for name, value in vars(option).items()} for option in method_options()]
    note = "Letters and numbers are ids of our audit of the release."
    return table("Every option", list(map(Column, rows[0])), rows, note)


def _counts(
    title: str, note: str, runs: pd.DataFrame, counts: Sequence[Mapping[str, float]], shares: bool = True
) -> Table:
    """Table of counts by reason: one row per method and environment, one column per reason, most frequent
    first.

    ``counts``: for each of ``runs`` its counts by reason; the counts of a method's seeds are added up.
    """
    counted = runs[[*BENCH, "method", "label"]].assign(counts=counts)
    rows: list[tuple[pd.Series, int, Counter[str]]] = []
    together: Counter[str] = Counter()
    for here in by_bench(counted).values():
        for seeds in by_method(here).values():
            total = summed(seeds.counts)
            together.update(total)
            rows.append((seeds.iloc[0], len(seeds), total))
    # A column for each reason that occurs at all.
    reasons = [reason for reason, number in together.most_common() if number]

    def reason(name: str) -> Column:
        def cell(row: tuple[pd.Series, int, Counter[str]]) -> Cell:
            number = row[2][name]
            total = row[2].total()
            if not number:
                return Cell("", 0.0)
            if not shares:
                return Cell(f"{number:,.0f}", number)
            share = number / total
            text = f"{share:.1%}" if share >= 0.0005 else "< 0.1%"
            return Cell(text, share, f"{number:,.0f} of {total:,.0f}")

        return Column(name, cell)

    columns = [
        Column("method", lambda row: Cell(row[0].label, title=row[0].method)),
        Column("seeds", lambda row: row[1], "d"),
        *map(reason, reasons),
    ]
    return table(
        title, columns, [row for row in rows if row[2].total()], note, by=lambda row: env_label(row[0].env)
    )


def _reflections(counts: Mapping[str, float]) -> dict[str, float]:
    """Reflections and critiques by what became of them; each is counted once."""
    invalid = {key: number for key, number in counts.items() if "/invalid/" in key}
    spoilt = counts.get("critique/not_json", 0) + sum(
        n for key, n in invalid.items() if key.startswith("critique/")
    )
    written = sum(counts.get(f"critique/by_{who}", 0) for who in ("environment", "model", "judge"))
    return {
        "reflections valid": counts.get("reflection/valid", 0),
        "critiques read": written - spoilt,
        "critiques not JSON, used as text": counts.get("critique/not_json", 0),
        **{key.replace("/invalid/", " invalid: "): number for key, number in invalid.items()},
    }


def _answers(counts: Mapping[str, float]) -> dict[str, float]:
    """Reflections and critiques by how they state the answer of their task; each is counted once."""
    audited, stated, told, quoted = (
        counts.get(f"leak/{name}", 0) for name in ("guidance", "answer_stated", "told", "quoted")
    )
    apart = {"told": told, "quoted": quoted} if told + quoted else {"stated": stated}
    return {"not stated": audited - stated, **apart}
