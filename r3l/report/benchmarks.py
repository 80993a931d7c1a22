"""Models on question sets (``r3l evaluate --set``) beside the published numbers of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.report import verdict
from r3l.report.published import Reference
from r3l.report.tables import COLUMNS, missing, rounded
from r3l.runs.files import read_json
from r3l.runs.places import benchmark_evaluations

PROTOCOL, RULE = "standard", "strict"  # one attempt; the answer in the form that was asked for
find = benchmark_evaluations
Row = dict[str, Any]
Key = tuple[str, str, str]  # model, set, prompt


@dataclass(frozen=True)
class BenchmarkRun:
    """One evaluation of a set: ``score`` is what evaluation.json holds of it."""

    seed: int
    score: Mapping[str, Any]

    @property
    def mark(self) -> Mapping[str, float]:
        """Accuracy, its bounds and parse failures under the rule of this table."""
        found: Mapping[str, float] = self.score["rules"][RULE]
        return found

    @property
    def whole(self) -> bool:
        """Whether every question of the set was asked."""
        return bool(self.score["items"] == self.score["of"])


def load(paths: Iterable[Path]) -> dict[Key, list[BenchmarkRun]]:
    """Evaluations of the standard protocol. Raises DataError where a file is no evaluation of sets."""
    found: dict[Key, list[BenchmarkRun]] = {}
    for path in paths:
        evaluation = read_json(path)
        if "sets" not in evaluation or "settings" not in evaluation:
            raise DataError(f"{path} is no evaluation of question sets; give files of `r3l evaluate --set`")
        settings = evaluation["settings"]
        if settings["protocol"] != PROTOCOL:
            continue
        model = Path(settings["model"]).name
        for name, score in evaluation["sets"].items():
            found.setdefault((model, name, settings["prompt"]), []).append(BenchmarkRun(settings["seed"], score))
    return found


def table(
    paths: Iterable[Path], reference: Reference, sets: Mapping[str, str], tier: str, title: str, reason: str
) -> list[Row]:
    """A row a published number and a row what we evaluated besides.

    ``sets``: our name of a set -> its name in print; sets without one stay out. What a prompt (boxed, tags) is called
    there, ``reference.names`` says. ``reason``: why nobody has run the others. One evaluation of each is planned: the
    unit is a question, and the interval Wilson's; several seeds get a t-interval over seeds.
    """
    ours = {
        (model, sets[name], reference.label(prompt, prompt)): sorted(sittings, key=lambda s: s.seed)
        for (model, name, prompt), sittings in load(paths).items()
        if name in sets
    }
    rows = []
    for number in reference.rows:
        place = {"tier": tier, "env": number.benchmark, "model": number.backbone, "group": "all"}
        if (number.backbone, number.benchmark, number.label) not in ours:
            rows.append(missing(place, number.method, number.label, 1, reason, number))
    for (model, benchmark, label), sittings in ours.items():
        rows.append(_row(model, benchmark, label, sittings, reference))
    return [row | {"table": title} for row in rows]


def _row(model: str, benchmark: str, label: str, sittings: Sequence[BenchmarkRun], reference: Reference) -> Row:
    measured, first = _interval(sittings), sittings[0].score
    number = reference.score(model, benchmark, label)
    if not all(sitting.whole for sitting in sittings):
        judged = verdict.not_comparable(f"{first['items']} of {first['of']} questions")
    elif number is None:
        judged = verdict.not_comparable("the paper has no such number")
    else:
        judged = verdict.compare(number, measured, len(sittings), len(sittings))
    return dict.fromkeys(COLUMNS) | {
        "env": benchmark,
        "model": model,
        "group": "all",
        "method": label,
        "label": label,
        "provenance": "ours",
        "measure": "success",
        **{key: rounded(getattr(measured, key)) for key in ("mean", "low", "high")},
        "interval": measured.kind,
        "seeds_done": len(sittings),
        "seeds_planned": len(sittings),
        "episodes": sum(sitting.score["items"] for sitting in sittings),
        "parse_failure_rate": rounded(_mean([sitting.mark["parse_failures"] for sitting in sittings])),
        "truncation_rate": rounded(_mean([sitting.score["truncated"] for sitting in sittings])),
        **judged,
    }


def _interval(sittings: Sequence[BenchmarkRun]) -> Interval:
    if len(sittings) > 1:
        return statistics.t_interval([sitting.mark["accuracy"] for sitting in sittings])
    mark, items = sittings[0].mark, sittings[0].score["items"]
    return Interval(mark["accuracy"], mark["low"], mark["high"], 1, f"Wilson, {items} questions")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
