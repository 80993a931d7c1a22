"""Evaluate a model on sets of questions with known answers: one reply each, or a few with feedback.

An environment brings the benchmark (questions, prompts, judgement), a server or a local model the replies. Every
question leaves one line in ``items.jsonl`` when it is done, so a killed evaluation goes on where it was; draws are
addressed, so the order in which questions finish changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

from r3l.core.environment import Message
from r3l.core.errors import ConfigError, RunDirectoryError
from r3l.core.seeds import Address
from r3l.evaluation.statistics import wilson_interval
from r3l.runs.files import append_jsonl, locked, read_json, read_jsonl, write_json_atomic, write_text_atomic
from r3l.runs.manifest import commit, versions
from r3l.runs.progress import progress

log = logging.getLogger(__name__)
UNREAD = ("none", "unreadable", "too_long")  # statuses of a mark that count as parse failures


@dataclass(frozen=True)
class BenchmarkItem:
    """``id`` is unique over all sets; ``sha256`` is over question and answer; ``overlaps`` with known training data."""

    id: str
    set: str
    text: str
    gold: str
    sha256: str
    overlaps: bool = False


@dataclass(frozen=True)
class Reply:
    """``stop``: ``end``, ``length`` (max_tokens reached), ``context`` (no room), or a server's own word."""

    text: str
    stop: str
    tokens: int | None


@dataclass(frozen=True)
class Grade:
    """One rule's verdict on a question: the answer that it read, whether it is right, and how grading went."""

    correct: bool
    status: str
    answer: str | None = None


@dataclass(frozen=True)
class Grading:
    """Marks by rule, and what to say next; ``feedback`` is None when the question is done."""

    marks: Mapping[str, Grade]
    feedback: Message | None = None


class Benchmark(AbstractContextManager["Benchmark"], Protocol):
    """What an environment brings; closed at the end of its context. ``settings``: everything that changes a score.

    ``temperature`` and ``max_tokens`` (of a reply) are the protocol's, used unless others are asked for.
    """

    settings: Mapping[str, Any]
    temperature: float
    max_tokens: int

    def questions(self, name: str) -> list[BenchmarkItem]:
        """A set. Raises ConfigError for an unknown one, DataError where it cannot be read."""
        ...

    def opening(self, question: BenchmarkItem) -> list[Message]:
        """The messages before the first reply."""
        ...

    def judge(self, question: BenchmarkItem, replies: Sequence[Reply]) -> Grading:
        """Judge the last of ``replies``. Called from several threads."""
        ...


class Model(Protocol):
    """What answers: ``batch`` dialogs a call, ``threads`` calls at once. ``settings``: all that changes a reply."""

    name: str
    batch: int
    threads: int
    settings: Mapping[str, Any]

    def respond(self, dialogs: Sequence[Sequence[Message]], addresses: Sequence[Address]) -> list[Reply]:
        """One reply each; every draw of a reply is seeded by its address. Raises R3LError when there will be none."""
        ...


@dataclass
class _Sitting:
    """A question in progress."""

    question: BenchmarkItem
    dialog: list[Message]
    replies: list[Reply] = field(default_factory=list)
    judgement: Grading | None = None


def evaluate_sets(
    benchmark: Benchmark, model: Model, sets: Sequence[str], out: Path, seed: int, limit: int | None = None
) -> dict[str, Any]:
    """Ask every question of ``sets`` (of each the first ``limit``) that ``out`` has no line of, and score all.

    Returns what evaluation.json holds; ``of`` is the size of a whole set. Raises RunDirectoryError where ``out`` is of
    other settings.
    """
    whole = {name: benchmark.questions(name) for name in dict.fromkeys(sets)}
    asked = {name: questions[:limit] for name, questions in whole.items()}
    settings = {"model": model.name, "seed": seed, **benchmark.settings, **model.settings}
    with locked(out):
        _own(out, settings)
        done = _kept(out / "items.jsonl")
        left = [q for questions in asked.values() for q in questions if done.get(q.id, {}).get("sha256") != q.sha256]
        with progress("evaluating", len(left)) as advance:
            correct = 0
            for number, row in enumerate(_sit(benchmark, model, left, seed), start=1):
                append_jsonl(out / "items.jsonl", row)
                done[row["id"]] = row
                correct += bool(next(iter(row["marks"].values()))["correct"])
                advance(f"right {correct / number:.3f}")
        evaluation = {
            "settings": settings,
            "sets": {
                name: scores([done[q.id] for q in questions], questions) | {"of": len(whole[name])}
                for name, questions in asked.items()
            },
        }
        write_json_atomic(out / "evaluation.json", evaluation)
    return evaluation


def scores(rows: Sequence[Mapping[str, Any]], questions: Sequence[BenchmarkItem]) -> dict[str, Any]:
    """Of one set: accuracy by rule with its Wilson interval, and beside it everything that was lost on the way.

    ``without_overlap``: the same accuracies on the items that are not known to stand in training data, where some do.
    """
    if not rows:
        raise ConfigError("there is no question to score; raise --limit")
    replies = [reply for row in rows for reply in row["replies"]]
    tokens = [reply["tokens"] for reply in replies if reply["tokens"] is not None]
    found: dict[str, Any] = {
        "items": len(rows),
        "rules": {rule: _rule(rows, rule) for rule in sorted(rows[0]["marks"])},
        "truncated": sum(reply["stop"] == "length" for reply in replies) / len(replies),
        "no_room": sum(reply["stop"] == "context" for reply in replies) / len(replies),
        "constant": _constant(questions),
        "attempts": len(replies) / len(rows),
        "tokens": sum(tokens) / len(tokens) if tokens else None,
    }
    overlapping = {q.id for q in questions if q.overlaps}
    if overlapping:
        rest = [row for row in rows if row["id"] not in overlapping]
        found["without_overlap"] = {
            "dropped": sorted(overlapping),
            "items": len(rest),
            "rules": {rule: _accuracy(rest, rule) for rule in sorted(rows[0]["marks"])} if rest else {},
        }
    return found


def render(evaluation: Mapping[str, Any]) -> Table:
    """For a terminal: a line a set and rule, what was lost beside every score, overlaps on a line of their own."""
    settings = evaluation["settings"]
    title = f"{settings['model']}: " + ", ".join(f"{k} {v}" for k, v in settings.items() if k != "model")
    table = Table(title=title)
    for column in (
        "set",
        "items",
        "rule",
        "accuracy",
        "95 %",
        "no answer read",
        "cut off",
        "grader timeouts",
        "attempts",
    ):
        table.add_column(column)
    for name, found in evaluation["sets"].items():
        for rule, score in found["rules"].items():
            lost = (score["parse_failures"], found["truncated"], score["grader_timeouts"])
            shares = [f"{share:.3f}" for share in lost]
            table.add_row(name, str(found["items"]), rule, *_shown(score), *shares, f"{found['attempts']:.2f}")
        constant = found["constant"]
        table.add_row(name, str(found["items"]), f"always {constant['answer']}", f"{constant['accuracy']:.3f}")
        rest = found.get("without_overlap", {"rules": {}})
        for rule, score in rest["rules"].items():
            table.add_row(
                f"{name}, {len(rest['dropped'])} in known training data left out",
                str(rest["items"]),
                rule,
                *_shown(score),
            )
    return table


def _constant(questions: Sequence[BenchmarkItem]) -> dict[str, Any]:
    """The most frequent answer and what always giving it would score."""
    ((answer, count),) = Counter(question.gold for question in questions).most_common(1)
    return {"answer": answer, "accuracy": count / len(questions)}


def _shown(score: Mapping[str, float]) -> tuple[str, str]:
    return f"{score['accuracy']:.3f}", f"{score['low']:.3f} to {score['high']:.3f}"


def _rule(rows: Sequence[Mapping[str, Any]], rule: str) -> dict[str, Any]:
    statuses = Counter(row["marks"][rule]["status"] for row in rows)
    return _accuracy(rows, rule) | {
        "parse_failures": sum(statuses[status] for status in UNREAD) / len(rows),
        "grader_timeouts": statuses["timeout"] / len(rows),
        "statuses": dict(sorted(statuses.items())),
    }


def _accuracy(rows: Sequence[Mapping[str, Any]], rule: str) -> dict[str, Any]:
    found = wilson_interval([row["marks"][rule]["correct"] for row in rows])
    return {"accuracy": found.mean, "low": found.low, "high": found.high}


def _own(out: Path, settings: Mapping[str, Any]) -> None:
    """Write the manifest, or compare with the one that is there: one folder is one model under one set of settings."""
    path = out / "manifest.json"
    if not path.is_file():
        write_json_atomic(path, {"settings": dict(settings), "versions": versions(), "commit": commit()})
        return
    before = read_json(path)["settings"]
    changed = [f"{key} {before.get(key)!r}, now {settings.get(key)!r}" for key in {**before, **settings}
               if before.get(key) != settings.get(key)]  # fmt: skip
    if changed:
        raise RunDirectoryError(
            f"{out} holds an evaluation with {'; '.join(changed)}; choose another folder with --out"
        )


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """Lines of an earlier run by id; a torn last one is cut off, so that the next line starts a new one."""
    rows = read_jsonl(path)
    if path.is_file() and not path.read_bytes().endswith(b"\n"):
        write_text_atomic(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows))
    return {row["id"]: row for row in rows}


def _sit(benchmark: Benchmark, model: Model, questions: Sequence[BenchmarkItem], seed: int) -> Iterator[dict[str, Any]]:
    """Lines in the order in which questions are done; an error ends the rest, but loses no finished batch."""
    batches = [questions[k : k + model.batch] for k in range(0, len(questions), model.batch)]
    with ThreadPoolExecutor(model.threads) as threads:
        running = [threads.submit(_sit_batch, benchmark, model, batch, seed) for batch in batches]
        try:
            for future in as_completed(running):
                yield from future.result()
        finally:
            for future in running:
                future.cancel()


def _sit_batch(
    benchmark: Benchmark, model: Model, questions: Sequence[BenchmarkItem], seed: int
) -> list[dict[str, Any]]:
    sittings = [_Sitting(q, benchmark.opening(q)) for q in questions]
    live = sittings
    while live:
        addresses: list[Address] = [(seed, "exam", s.question.id, len(s.replies)) for s in live]
        for sitting, reply in zip(live, model.respond([s.dialog for s in live], addresses), strict=True):
            sitting.replies.append(reply)
            sitting.judgement = benchmark.judge(sitting.question, sitting.replies)
            if sitting.judgement.feedback:
                sitting.dialog += [Message("assistant", reply.text), sitting.judgement.feedback]
        live = [s for s in live if s.judgement and s.judgement.feedback]
    return [_row(sitting) for sitting in sittings]


def _row(sitting: _Sitting) -> dict[str, Any]:
    assert sitting.judgement is not None
    return {
        "id": sitting.question.id,
        "set": sitting.question.set,
        "sha256": sitting.question.sha256,
        "gold": sitting.question.gold,
        "replies": [asdict(reply) for reply in sitting.replies],
        "marks": {rule: asdict(mark) for rule, mark in sitting.judgement.marks.items()},
    }
