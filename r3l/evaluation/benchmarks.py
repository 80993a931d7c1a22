"""Evaluate a model on sets of questions with known answers: one reply each, or a few with feedback.

An environment brings the benchmark (questions, prompts, grading), a server or a local model the replies. Every
question leaves one line in ``items.jsonl`` when it is done, so a killed evaluation goes on where it was; draws are
addressed, so the order in which questions finish changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from r3l.core.benchmark import Benchmark, BenchmarkItem, Reply
from r3l.core.errors import ConfigError, RunDirectoryError
from r3l.core.policy import Completion
from r3l.core.seeds import Address
from r3l.evaluation.models import Model
from r3l.evaluation.statistics import wilson_interval
from r3l.files.json_files import append_jsonl, read_json, read_jsonl
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.processes.gather import together
from r3l.processes.progress import progress
from r3l.runs.manifest import versions
from r3l.runs.provenance import commit
from r3l.runs.run_dir import locked

Row = dict[str, Any]
UNREAD = ("none", "unreadable", "too_long")  # statuses of a grade that count as parse failures


def evaluate_sets(
    benchmark: Benchmark, model: Model, sets: Sequence[str], out: Path, seed: int, limit: int | None = None
) -> dict[str, Any]:
    """Ask every question of ``sets`` (of each the first ``limit``) that ``out`` has no line of, and score all.

    Returns what evaluation.json holds; ``of`` is the size of a whole set. Raises RunDirectoryError where ``out`` is of
    other settings.
    """
    whole = {name: benchmark.items(name) for name in dict.fromkeys(sets)}
    wanted = {name: items[:limit] for name, items in whole.items()}
    settings = {"model": model.name, "seed": seed, **benchmark.settings, **model.settings}
    with locked(out):
        _claim(out, settings)
        done = _finished(out / "items.jsonl")
        left = [q for items in wanted.values() for q in items if done.get(q.id, {}).get("sha256") != q.sha256]
        with progress("evaluating", len(left)) as advance:
            correct, before = 0, len(done.keys() - {item.id for item in left})

            def record(row: dict[str, Any]) -> None:
                nonlocal correct
                append_jsonl(out / "items.jsonl", row)
                done[row["id"]] = row
                correct += bool(next(iter(row["grades"].values()))["correct"])
                advance(f"right {correct / (len(done) - before):.3f}")

            asyncio.run(_answer(benchmark, model, left, seed, record))
        evaluation = {
            "settings": settings,
            "sets": {
                name: scores([done[q.id] for q in items], items) | {"of": len(whole[name])}
                for name, items in wanted.items()
            },
        }
        write_json_atomic(out / "evaluation.json", evaluation)
    return evaluation


def scores(rows: Sequence[Mapping[str, Any]], items: Sequence[BenchmarkItem]) -> dict[str, Any]:
    """Of one set: accuracy by rule with its Wilson interval, and beside it everything that was lost on the way.

    ``without_overlap``: the same accuracies on the items that are not known to stand in training data, where some do.
    """
    if not rows:
        raise ConfigError("there is no question to score; raise --limit")
    replies = [reply for row in rows for reply in row["replies"]]
    tokens = [reply["tokens"] for reply in replies if reply["tokens"] is not None]
    score: dict[str, Any] = {
        "items": len(rows),
        "rules": {rule: _rule(rows, rule) for rule in sorted(rows[0]["grades"])},
        "truncated": sum(reply["stop"] == "length" for reply in replies) / len(replies),
        "no_room": sum(reply["stop"] == "context" for reply in replies) / len(replies),
        "constant_answer_baseline": _constant_answer(items),
        "attempts": len(replies) / len(rows),
        "tokens": sum(tokens) / len(tokens) if tokens else None,
    }
    overlapping = {item.id for item in items if item.overlaps}
    if overlapping:
        rest = [row for row in rows if row["id"] not in overlapping]
        score["without_overlap"] = {
            "dropped": sorted(overlapping),
            "items": len(rest),
            "rules": {rule: _accuracy(rest, rule) for rule in sorted(rows[0]["grades"])} if rest else {},
        }
    return score


def _constant_answer(items: Sequence[BenchmarkItem]) -> dict[str, Any]:
    """The most frequent answer and what always giving it would score."""
    ((answer, count),) = Counter(item.gold for item in items).most_common(1)
    return {"answer": answer, "accuracy": count / len(items)}


def _rule(rows: Sequence[Mapping[str, Any]], rule: str) -> dict[str, Any]:
    statuses = Counter(row["grades"][rule]["status"] for row in rows)
    return _accuracy(rows, rule) | {
        "parse_failures": sum(statuses[status] for status in UNREAD) / len(rows),
        "grader_timeouts": statuses["timeout"] / len(rows),
        "statuses": dict(sorted(statuses.items())),
    }


def _accuracy(rows: Sequence[Mapping[str, Any]], rule: str) -> dict[str, Any]:
    interval = wilson_interval([row["grades"][rule]["correct"] for row in rows])
    return {"accuracy": interval.mean, "low": interval.low, "high": interval.high}


def _claim(out: Path, settings: Mapping[str, Any]) -> None:
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


def _finished(path: Path) -> dict[str, dict[str, Any]]:
    """Lines of an earlier run by id; a torn last one is cut off, so that the next line starts a new one."""
    rows = read_jsonl(path)
    if path.is_file() and not path.read_bytes().endswith(b"\n"):
        write_text_atomic(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows))
    return {row["id"]: row for row in rows}


async def _answer(
    benchmark: Benchmark, model: Model, items: Sequence[BenchmarkItem], seed: int, record: Callable[[Row], None]
) -> None:
    """``record`` every item's line when its batch is done; an error ends the rest, but loses no finished batch."""
    batches = [items[k : k + model.batch] for k in range(0, len(items), model.batch)]
    free = asyncio.Semaphore(model.batches_at_once)

    async def one(batch: Sequence[BenchmarkItem]) -> None:
        async with free:
            for row in await model.gather(partial(_row, benchmark, model, seed), batch):
                record(row)

    async with model.connection:
        await together(one, batches)


async def _row(benchmark: Benchmark, model: Model, seed: int, item: BenchmarkItem) -> Row:
    """Ask until the grading has nothing more to say."""
    conversation, replies = model.policy.open(), list[Reply]()
    messages = benchmark.opening(item)
    while messages:
        for message in messages:
            conversation.add(message)
        address: Address = (seed, "exam", item.id, len(replies))
        replies.append(_reply(await conversation.respond(model.sampling, address)))
        grading = await asyncio.to_thread(benchmark.grade, item, replies)
        messages = [grading.feedback] if grading.feedback else []
    conversation.close()
    return {
        "id": item.id,
        "set": item.set,
        "sha256": item.sha256,
        "gold": item.gold,
        "replies": [asdict(reply) for reply in replies],
        "grades": {rule: asdict(grade) for rule, grade in grading.grades.items()},
    }


def _reply(completion: Completion) -> Reply:
    counted = completion.response_ids or completion.usage
    return Reply(completion.text, completion.finish_reason.value, completion.tokens.response if counted else None)
