"""Models on question sets (``r3l evaluate gsm8k``) beside the published numbers of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.files.json_files import read_json
from r3l.report import published
from r3l.report.published import Published, Reference
from r3l.report.rows import Row
from r3l.report.scores import missing
from r3l.report.table import Column, Table, table

PROTOCOL, RULE = "standard", "strict"  # one attempt; the answer in the form that was asked for
Key = tuple[str, str, str]  # model, set, prompt


@dataclass(frozen=True)
class BenchmarkRun:
    """One evaluation of a set: ``score`` is what evaluation.json holds of it."""

    seed: int
    score: Mapping[str, Any]

    @property
    def grade(self) -> Mapping[str, float]:
        """Accuracy, its bounds and parse failures under the rule of this table."""
        by_rule: Mapping[str, Mapping[str, float]] = self.score["rules"]
        return by_rule[RULE]

    @property
    def whole(self) -> bool:
        """Whether every question of the set was asked."""
        return bool(self.score["items"] == self.score["of"])


def load(paths: Iterable[Path]) -> dict[Key, list[BenchmarkRun]]:
    """Evaluations of the standard protocol. Raises DataError where a file is no evaluation of sets."""
    runs: dict[Key, list[BenchmarkRun]] = {}
    for path in paths:
        evaluation = read_json(path)
        if "sets" not in evaluation or "settings" not in evaluation:
            raise DataError(f"{path} is no evaluation of question sets; give files of `r3l evaluate gsm8k`")
        settings = evaluation["settings"]
        if settings["protocol"] != PROTOCOL:
            continue
        model = Path(settings["model"]).name
        for name, score in evaluation["sets"].items():
            runs.setdefault((model, name, settings["prompt"]), []).append(BenchmarkRun(settings["seed"], score))
    return runs


def benchmark_rows(
    paths: Iterable[Path], reference: Reference, sets: Mapping[str, str], tier: str, title: str, reason: str
) -> list[Row]:
    """A row a published number and a row what we evaluated besides.

    ``sets``: our name of a set -> its name in print; sets without one stay out. What a prompt (boxed, tags) is called
    there, ``reference.names`` says. ``reason``: why nobody has run the others. One evaluation of each is planned: the
    unit is a question, and the interval Wilson's; several seeds get a t-interval over seeds.
    """
    ours = {
        (model, sets[name], reference.label(prompt, prompt)): sorted(of_set, key=lambda run: run.seed)
        for (model, name, prompt), of_set in load(paths).items()
        if name in sets
    }
    rows = []
    for number in reference.rows:
        if (number.backbone, number.benchmark, number.label) not in ours:
            place = {"tier": tier, "env": number.benchmark, "model": number.backbone, "label": number.label}
            rows.append(missing(number.method, 1, reason, number, **place))
    for (model, benchmark, label), runs in ours.items():
        place: dict[str, Any] = {"tier": tier, "env": benchmark, "model": model, "label": label}
        rows.append(_row(place, runs, reference.score(model, benchmark, label)))
    return [replace(row, table=title) for row in rows]


def _row(place: dict[str, Any], runs: Sequence[BenchmarkRun], number: Published | None) -> Row:
    measured, first = _interval(runs), runs[0].score
    if not all(run.whole for run in runs):
        against = published.not_comparable(f"{first['items']} of {first['of']} questions")
    elif number is None:
        against = published.not_comparable("the paper has no such number")
    else:
        against = published.against(number, measured, len(runs), len(runs))
    return Row(
        **place,
        method=place["label"],
        score=measured,
        seeds_done=len(runs),
        seeds_planned=len(runs),
        episodes=sum(run.score["items"] for run in runs),
        parse_failure_rate=_mean([run.grade["parse_failures"] for run in runs]),
        truncation_rate=_mean([run.score["truncated"] for run in runs]),
        paper=against,
    )


def _interval(runs: Sequence[BenchmarkRun]) -> Interval:
    if len(runs) > 1:
        return statistics.t_interval([run.grade["accuracy"] for run in runs])
    grade, items = runs[0].grade, runs[0].score["items"]
    return Interval(grade["accuracy"], grade["low"], grade["high"], 1, f"Wilson, {items} questions")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def scores_table(evaluation: Mapping[str, Any]) -> Table:
    """One evaluation: a line a set and rule, what was lost beside every score, overlaps on a line of their own."""
    settings = evaluation["settings"]
    title = f"{settings['model']}: " + ", ".join(f"{k} {v}" for k, v in settings.items() if k != "model")
    rows = [row for name, score in evaluation["sets"].items() for row in _set_rows(name, score)]
    columns = [
        Column("set"),
        Column("items", form="d"),
        Column("rule"),
        Column("accuracy", form=".3f"),
        Column("95 %", lambda row: f"{row['low']:.3f} to {row['high']:.3f}" if "low" in row else None),
        Column("no answer read", lambda row: row.get("parse_failures"), ".3f"),
        Column("cut off", lambda row: row.get("truncated"), ".3f"),
        Column("grader timeouts", lambda row: row.get("grader_timeouts"), ".3f"),
        Column("attempts", form=".2f"),
    ]
    return table(title, columns, rows)


def _set_rows(name: str, score: Mapping[str, Any]) -> list[dict[str, Any]]:
    graded = {"set": name, **{key: score[key] for key in ("items", "truncated", "attempts")}}
    rows = [graded | {"rule": rule} | grade for rule, grade in score["rules"].items()]
    constant = score["constant_answer_baseline"]
    rows.append({"set": name, "items": score["items"], "rule": f"always {constant['answer']}"} | constant)
    if "without_overlap" in score:
        rest = score["without_overlap"]
        label = {"set": f"{name}, {len(rest['dropped'])} in known training data left out", "items": rest["items"]}
        kept = ("accuracy", "low", "high")
        rows += [label | {"rule": rule} | {k: grade[k] for k in kept} for rule, grade in rest["rules"].items()]
    return rows
