"""What the bench of every environment reports in the same words: speed, and memory of all the processes it takes.

``steps_per_s`` (starting tasks included), ``reset_ms`` and ``step_ms`` (means), and ``rss_mb``: resident megabytes
(10^6 bytes) of the Python process and the processes it started, pages that these share counted once.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from time import perf_counter
from typing import Any, TypeVar

import psutil

from r3l.core.environment import Observation
from r3l.core.errors import ConfigError
from r3l.core.task import Task

T = TypeVar("T")
BENCHES = {  # what measures the engine of an environment, by its name in r3l.envs.registry
    "alfworld": "r3l.bench.alfworld:run",
    "math": "r3l.bench.math:run",
    "puzzles": "r3l.bench.puzzles:run",
    "scienceworld": "r3l.bench.scienceworld:run",
    "webshop": "r3l.bench.webshop:run",
}
HEADLINE = ("steps_per_s", "reset_ms", "step_ms", "rss_mb")
Script = tuple[Task, Sequence[str]]  # a task and the actions to play in it
Outcome = tuple[float, bool, bool]  # reward, done, success of an observation


@dataclass(frozen=True)
class Played:
    """What playing scripts took.

    ``headline``: in the words of ``HEADLINE``. ``open_s``: seconds of opening the engines. ``children``: number,
    threads, resident and unshared megabytes of the processes that the engines started.
    """

    headline: dict[str, float]
    open_s: float
    outcomes: list[Outcome]
    children: dict[str, float]

    def report(self) -> dict[str, Any]:
        """For a report; of the outcomes their number."""
        counted = {"open_s": self.open_s, "observations": len(self.outcomes), "children": self.children}
        return {**self.headline, **counted}


def bench_of(environment: str) -> Callable[..., dict[str, Any]]:
    """What measures an engine: called with a task set and, by keyword, options of its own; returns its report.

    Raises ConfigError where there is none.
    """
    if environment not in BENCHES:
        raise ConfigError(f"environment {environment!r} has no bench; there are benches of {', '.join(BENCHES)}")
    bench: Callable[..., dict[str, Any]] = resolve_name(BENCHES[environment])
    return bench


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """``count`` of ``tasks``, evenly spread over them; 0: all. Raises ConfigError where there are fewer."""
    if count > len(tasks):
        raise ConfigError(f"--tasks is {count}, but the task set has {len(tasks)} tasks; ask for at most that many")
    return [tasks[k * len(tasks) // count] for k in range(count)] if count else list(tasks)


def alone(call: Callable[..., T], *arguments: Any) -> T:
    """``call(*arguments)`` in a fresh process, so that its memory and its caches are nobody else's."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds that ``call`` took, and what it returned."""
    began = perf_counter()
    result = call()
    return perf_counter() - began, result


def play(create: Callable[[], Any], scripts: Sequence[Script], engines: int = 1) -> Played:
    """Play ``scripts`` on so many engines, which advance in turn; for ``alone``, since it measures this process."""
    began = perf_counter()
    opened = [create() for _ in range(engines)]
    opened[0].reset(scripts[0][0])  # what is imported or started with the first task is part of opening
    open_s = perf_counter() - began
    starting = stepping = 0.0
    outcomes: list[Outcome] = []
    for first in range(0, len(scripts), engines):
        batch = list(zip(opened, scripts[first : first + engines], strict=False))
        began = perf_counter()
        outcomes += [_outcome(engine.reset(task)) for engine, (task, _) in batch]
        starting += perf_counter() - began
        began = perf_counter()
        for turn in range(max(len(actions) for _, (_, actions) in batch)):
            outcomes += [_outcome(engine.step(actions[turn])) for engine, (_, actions) in batch if turn < len(actions)]
        stepping += perf_counter() - began
    children = _children()
    for engine in opened:
        engine.close()
    resident = psutil.Process().memory_info().rss / 1e6 + children["rss_mb"]
    words = headline(len(scripts), starting, len(outcomes) - len(scripts), stepping, resident)
    return Played(words, open_s, outcomes, children)


def headline(resets: int, starting: float, steps: int, stepping: float, rss_mb: float) -> dict[str, float]:
    """The words of ``HEADLINE`` from counts of resets and steps and the seconds that they took."""
    speed = steps / (starting + stepping)
    return dict(zip(HEADLINE, (speed, 1e3 * starting / resets, 1e3 * stepping / steps, rss_mb), strict=True))


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that machine was."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _outcome(now: Observation) -> Outcome:
    return now.reward, now.done, now.success


def _children() -> dict[str, float]:
    processes = psutil.Process().children(recursive=True)
    sizes = [process.memory_full_info() for process in processes]
    return {
        "processes": len(processes),
        "threads": sum(process.num_threads() for process in processes),
        "rss_mb": sum(size.rss for size in sizes) / 1e6,
        "uss_mb": sum(size.uss for size in sizes) / 1e6,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
