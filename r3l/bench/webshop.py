"""What a full-size shop costs: one catalogue on disk shared by workers, against the original's in-memory copies.

``bench`` plays random customers on tasks and proves that every snapshot restores and every replay repeats.
``bench_full`` builds a synthetic catalogue of full size, serves sessions from worker processes, and measures memory
and latencies. Memory is /proc's: RSS counts a shared page once for every process, PSS once in all. The original's copy
is its loading, done on files of growing size in fresh processes: the line through the resident sizes is extrapolated.
Its JVM and language model (measured elsewhere at 194 and 157 MB a worker) are not in it.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil

from r3l.bench.engines import Played, Script, alone, headline, machine, play, spread, timed
from r3l.core.environment import Observation
from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task
from r3l.envs.webshop.build import make
from r3l.envs.webshop.catalogue import read_meta, size_on_disk
from r3l.envs.webshop.engine import SEARCH_ACTION, WebshopEngine
from r3l.envs.webshop.pages import instruction
from r3l.envs.webshop.synthetic import records, sources
from r3l.envs.webshop.tasks import tasks as tasks_of

LIMIT_BYTES = 2 * 10**9  # what all processes together may keep resident (our target)
_GOAL_PRODUCTS = 4029  # with three goals each: 12,087, as many as the original's
_COPIES = 192  # engines x runners of the original's configuration, each with a copy of its own (audit 3.3)
_SAMPLES = (10_000, 30_000, 100_000)  # products of which copies are measured
_DROPPED = """
product_information brand brand_url list_price availability_quantity availability_status total_reviews
total_answered_questions seller_id seller_name fulfilled_by_amazon fast_track_message aplus_present
small_description_old
"""
Times = dict[str, list[float]]


def run(
    task_set: str,
    *,
    tasks: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    products: int | None = None,
    sessions: int | None = None,
    workers: int | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """``bench`` on so many tasks (default: all) of ``task_set``, or with ``products`` ``bench_full``: 256 sessions in 2
    workers. Called by ``r3l bench env``, which offers the keywords. Raises ConfigError for a mixture of the two.
    """
    full = {"--sessions": sessions, "--workers": workers, "--folder": folder}
    misplaced = [name for name, value in full.items() if value is not None]
    if products is None:
        if misplaced:
            raise ConfigError(f"{misplaced[0]} belongs to the bench of a full-size catalogue; add --products N")
        return bench(spread(tasks_of(task_set), tasks or 0), steps or 15, seed)
    if tasks is not None:
        raise ConfigError("--tasks belongs to the bench of a task set; leave it out, or leave out --products")
    if folder is None:
        raise ConfigError("--products needs --folder DIR, where the catalogue is built, or lies already")
    return bench_full(products, sessions or 256, workers or 2, steps or 40, seed, folder)


def bench(tasks: Sequence[Task], steps: int, seed: int) -> dict[str, Any]:
    """Random customers on ``tasks``, at most ``steps`` actions each: speed, and identity on restore and replay."""
    if not tasks:
        raise DataError("no WebShop tasks to bench")
    engine, times, scripts = WebshopEngine(), defaultdict[str, list[float]](list), list[Script]()
    compared = different = 0
    for task in tasks:
        rng = random.Random(f"{seed}/{task.id}")
        seen, marks, actions = [_timed(times, "reset", engine.reset, task)], [engine.snapshot()], list[str]()
        while not seen[-1].done and len(actions) < steps:
            actions.append(random_action(seen[-1], rng))
            seen.append(_timed(times, _verb(actions[-1]), engine.step, actions[-1]))
            marks.append(engine.snapshot())
        scripts.append((task, actions))
        for pivot, mark in enumerate(marks):
            again = [_timed(times, "restore", engine.restore, mark), *map(engine.step, actions[pivot:])]
            expected = [replace(seen[pivot], refused=False), *seen[pivot + 1 :]]  # a restored page follows no action
            compared += len(again)
            different += sum(one != other for one, other in zip(again, expected, strict=True))
    return {
        **alone(_ours, scripts).headline,
        "tasks": len(tasks),
        "seed": seed,
        "identity": {"observations_compared": compared, "different": different},
        "seconds": {name: _summary(values) for name, values in sorted(times.items())},
        "machine": machine(),
    }


def bench_full(products: int, sessions: int, workers: int, steps: int, seed: int, folder: Path) -> dict[str, Any]:
    """Build (or open) the full-size catalogue in ``folder``, serve ``sessions`` from ``workers``, and measure."""
    began = perf_counter()
    built = not folder.exists()
    if built:
        make(sources(products, seed, full=True, goals_of=_GOAL_PRODUCTS), folder, "bench")
    build_s, meta = perf_counter() - began, read_meta(folder)
    if meta.products != products:
        raise DataError(f"{folder} holds {meta.products} products, not {products}; name another folder")
    memory, times = _serve(folder, sessions, workers, steps, seed)
    copies = {str(n): _copy_size(n, seed) for n in _samples(products)}
    slope, offset = np.polyfit([int(n) for n in copies], [size["live_bytes"] for size in copies.values()], 1)
    copy = float(slope * products + offset)
    total = sum(worker["pss_bytes"] for worker in memory)
    return {
        **_headline(times, workers, total),
        "catalogue": {"id": meta.id, "sha256": meta.sha256, "goals": meta.goals, "files": size_on_disk(folder)},
        "build_s": build_s if built else None,
        "build_peak_rss_bytes": _status("VmHWM") if built else None,
        "sessions": sessions,
        "workers": memory,
        "total_pss_bytes": total,
        "total_rss_bytes_shared_counted_per_worker": sum(worker["rss_bytes"] for worker in memory),
        "limit_bytes": LIMIT_BYTES,
        "met": total <= LIMIT_BYTES,
        "seconds": {name: _summary(values) for name, values in sorted(times.items())},
        "in_memory_copy": {
            "measured": copies,
            "bytes_per_product": float(slope),
            "extrapolated_bytes": copy,
            "copies": _COPIES,
            "ratio": _COPIES * copy / total,
        },
        "machine": machine(),
    }


def _ours(scripts: list[Script]) -> Played:
    return play(WebshopEngine, scripts)


def _headline(times: Times, workers: int, total_bytes: int) -> dict[str, float]:
    """All workers together: they play side by side, so that a second of each is one second."""
    starts, steps = times["reset"], [value for name, values in times.items() if name != "reset" for value in values]
    one = headline(len(starts), sum(starts), len(steps), sum(steps), total_bytes / 1e6)
    return one | {"steps_per_s": workers * one["steps_per_s"]}


def _samples(products: int) -> tuple[int, ...]:
    """Sizes of copies to measure; for a small catalogue parts of it."""
    return _SAMPLES if products >= _SAMPLES[-1] else (products // 10 + 1, products // 3 + 2, products + 3)


def random_action(now: Observation, rng: random.Random) -> str:
    """A random customer: searches for words of the instruction, clicks anything, and errs now and then."""
    if rng.random() < 0.05:
        return rng.choice(("", "click[nothing]", "search", "buy[it]", "click[search]"))
    if SEARCH_ACTION in now.admissible or rng.random() < 0.1:
        words = instruction(now.text).split() if "Instruction:" in now.text else ["gift"]
        return f"search[{' '.join(rng.sample(words, min(len(words), rng.randint(1, 6))))}]"
    return rng.choice(now.admissible)


def _serve(folder: Path, sessions: int, workers: int, steps: int, seed: int) -> tuple[list[dict[str, int]], Times]:
    """Sessions divided among spawned workers, which stay alive until all have been measured."""
    context = get_context("spawn")
    pipes, processes = [], []
    for worker in range(workers):
        ours, theirs = context.Pipe()
        share = len(range(worker, sessions, workers))
        process = context.Process(target=_worker, args=(folder, share, steps, seed + worker, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    times: Times = defaultdict(list)
    for pipe in pipes:
        for name, values in pipe.recv().items():
            times[name] += values
    for pipe in pipes:  # all workers are at their largest now
        pipe.send("measure")
    memory = [pipe.recv() for pipe in pipes]
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.close()
        process.join(timeout=30)
    return memory, times


def _worker(folder: Path, sessions: int, steps: int, seed: int, pipe: Connection) -> None:
    """Play ``sessions`` engines in turn, ``steps`` actions each; then report memory when asked."""
    os.environ["R3L_WEBSHOP"] = str(folder)
    meta = read_meta(folder)
    rng, times, engines = random.Random(seed), defaultdict[str, list[float]](list), []
    for _ in range(sessions):
        engines.append(WebshopEngine())
    now = [_timed(times, "reset", engine.reset, _bench_task(meta.id, rng.randrange(meta.goals))) for engine in engines]
    for _ in range(steps):
        for k, engine in enumerate(engines):
            if now[k].done:
                now[k] = _timed(times, "reset", engine.reset, _bench_task(meta.id, rng.randrange(meta.goals)))
            action = random_action(now[k], rng)
            now[k] = _timed(times, _verb(action), engine.step, action)
    pipe.send(dict(times))
    pipe.recv()
    pipe.send(memory_of())
    try:
        pipe.recv()
    except EOFError:
        return


def memory_of() -> dict[str, int]:
    """This process's resident bytes: all, its fair share of shared pages, and private ones (Linux)."""
    memory = psutil.Process().memory_full_info()
    return {"rss_bytes": memory.rss, "pss_bytes": memory.pss, "private_bytes": memory.uss}


def _copy_size(products: int, seed: int) -> dict[str, int]:
    """Resident bytes of a fresh process that holds ``products`` as the original does, and of its file."""
    with tempfile.TemporaryDirectory() as scratch:
        items, attributes = Path(scratch, "items.json"), Path(scratch, "attrs.json")
        _write_files(products, seed, items, attributes)
        ours, theirs = get_context("spawn").Pipe()
        process = get_context("spawn").Process(target=_hold, args=(items, attributes, theirs), daemon=True)
        process.start()
        sizes: dict[str, int] = ours.recv()
        process.join()
        return sizes | {"file_bytes": items.stat().st_size}


def _write_files(products: int, seed: int, items: Path, attributes: Path) -> None:
    table = {}
    with items.open("w", encoding="utf-8") as file:
        for number, (record, entry, _) in enumerate(records(products, seed, full=True)):
            file.write(("[" if number == 0 else ",") + json.dumps(record))
            table[record["asin"]] = entry
        file.write("]")
    attributes.write_text(json.dumps(table), encoding="utf-8")


def _hold(items: Path, attributes: Path, pipe: Connection) -> None:
    """Keep what the original keeps: every record as a dict less the dropped keys, plus its derived fields."""
    before = memory_of()["rss_bytes"]
    with items.open(encoding="utf-8") as file:
        held = json.load(file)
    table = json.loads(attributes.read_text(encoding="utf-8"))
    for record in held:
        for key in _DROPPED.split():
            record.pop(key, None)
        record["Title"], record["Description"] = record["name"], record["full_description"]
        record["BulletPoints"], record["Reviews"], record["Rating"] = record["small_description"], [], "N.A."
        record["pricing"] = [float(record["pricing"].lstrip("$"))]
        record["Price"] = f"${record['pricing'][0]}"
        contents = record["customization_options"].items()
        record["options"] = {name.lower(): [c["value"].strip().lower() for c in values] for name, values in contents}
        record["option_to_image"] = {c["value"].lower(): c["image"] for _, values in contents for c in values}
        record["Attributes"] = table[record["asin"]]["attributes"]
        record["MainImage"] = record["images"][0]
    by_asin = {record["asin"]: record for record in held}
    prices = {asin: record["pricing"][0] for asin, record in by_asin.items()}
    live = memory_of()["rss_bytes"] - before
    pipe.send({"live_bytes": live, "peak_bytes": _status("VmHWM") - before, "products": len(prices)})


def _bench_task(catalogue: str, goal: int) -> Task:
    return Task(f"{catalogue}/{goal:05d}", "webshop", "bench", "", {"catalogue": catalogue, "goal": goal})


def _timed(times: Times, name: str, call: Any, *arguments: Any) -> Any:
    seconds, result = timed(lambda: call(*arguments))
    times[name].append(seconds)
    return result


def _verb(action: str) -> str:
    verb = action.split("[")[0]
    if action == "click[buy now]":
        return "buy"
    return verb if verb in ("search", "click") else "invalid"


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    rank = min(len(ordered) - 1, int(0.99 * len(ordered)))
    return {"n": len(ordered), "p50_s": statistics.median(ordered), "p99_s": ordered[rank], "max_s": ordered[-1]}


def _status(field: str) -> int:
    """A size in /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
