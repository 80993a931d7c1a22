"""Commands that are killed at random moments, started again, and compared with those that nobody disturbed."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import psutil
from program import Program

from r3l.files.json_files import read_jsonl
from r3l.runs.metrics import Kind, declared

MARK = "R3L_ATTACK_MARK"  # in the environment of every process that a case starts
SIGNALS = (*[signal.SIGKILL] * 7, *[signal.SIGTERM] * 2, signal.SIGINT)
ENDING = 15.0  # seconds in which what a killed process has started may end by itself
NEVER_EQUAL = {".lock", "manifest.json", "SHA256SUMS"}  # dates; digests of metrics.jsonl, which has seconds
TOOLS = {".snakemake", "logs"}  # what jobs printed, with their times
OWN_WORK = ("multiprocessing.spawn", "multiprocessing.resource_tracker")


@dataclass(frozen=True)
class Job:
    """A command in a folder: ``python -m MODULE ARGUMENTS``, with what lies there ``before``.

    ``role`` is whose process is killed: the command's own (``trainer``), one that it has started (``worker``) or a
    ``java``.
    """

    name: str
    role: str
    arguments: tuple[str, ...]
    module: str = "r3l.cli"
    before: Path | None = None

    def start(self, folder: Path) -> Program:
        """The command, in ``folder``."""
        return Program(self.module, *self.arguments, folder=folder)

    def victims(self, program: Program) -> list[psutil.Process]:
        """What may be killed now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(program.process.pid)
            if self.role not in ("worker", "java"):
                return [root]
            return [one for one in root.children(recursive=True) if _role(one) == self.role]
        return []


def _role(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        if process.name() == "java":
            return "java"
        if any(name in " ".join(process.cmdline()) for name in OWN_WORK):
            return "worker"
    return ""


@dataclass
class Quiet:
    """What a job leaves where nobody disturbs it, how long it takes and how often its folder changes meanwhile."""

    folder: Path
    seconds: float
    changes: int


@dataclass
class Outcome:
    """Of one kill: which, and everything that was not as it should be."""

    told: str
    wrong: list[str] = field(default_factory=list)


def quiet(job: Job, folder: Path) -> Quiet:
    """Run ``job`` once. AssertionError where it fails."""
    with prepared(job, folder):
        program, began, changes = job.start(folder), time.monotonic(), 0
        for _ in _changes(folder, program):
            changes += 1
        code, _, stderr = program.wait()
        assert code == 0, stderr
        return Quiet(folder, time.monotonic() - began, changes)


@contextlib.contextmanager
def prepared(job: Job, folder: Path) -> Iterator[str]:
    """The folder as it is before, and variables of a case: its mark, its own caches and temporary folder."""
    folder.mkdir()
    if job.before:
        shutil.copytree(job.before, folder, dirs_exist_ok=True)
    beside = folder.with_name(f"{folder.name}.beside")
    mark = secrets.token_hex(8)
    for name in ("temporary", "cache"):
        (beside / name).mkdir(parents=True)
    changed = {MARK: mark, "TMPDIR": str(beside / "temporary"), "R3L_CACHE": str(beside / "cache")}
    with patch.dict(os.environ, changed):
        yield mark


def kill_once(job: Job, undisturbed: Quiet, folder: Path, rng: random.Random) -> Outcome | None:
    """Kill a process of ``job`` at a random moment, go on with the same command, compare; None: it was too late."""
    with prepared(job, folder) as mark:
        number, group = rng.choice(SIGNALS), job.role == "trainer" and rng.random() < 0.3
        program = job.start(folder)
        moment = _wait(job, program, undisturbed, rng)
        victims = job.victims(program)
        if not victims:
            program.wait()
            return None
        victim = rng.choice(victims)
        try:
            os.killpg(victim.pid, number) if group else victim.send_signal(number)
        except (ProcessLookupError, psutil.NoSuchProcess):
            program.wait()
            return None
        outcome = Outcome(f"{job.name}: {job.role}{' group' if group else ''}, {number.name} {moment}")
        codes = [_ended(program, outcome)]
        if rng.random() < 0.5:  # else the same command is given at once
            outcome.told += ", waited"
            outcome.wrong += remaining(mark)
        if codes[0] and job.role in ("worker", "java"):
            outcome.wrong.append(f"the command ended with {codes[0]}")
        while codes[-1] and len(codes) < 4:
            codes.append(_ended(job.start(folder), outcome))
        outcome.wrong += remaining(mark)
        if len(codes) > 2 or codes[-1]:
            outcome.wrong.append(f"exit codes {codes}")
        outcome.wrong += differences(undisturbed.folder, folder)
        temporary = folder.with_name(f"{folder.name}.beside") / "temporary"
        outcome.wrong += [f"temporary {path.name} left" for path in temporary.iterdir()]
        return outcome


def _ended(program: Program, outcome: Outcome) -> int:
    code, _, stderr = program.wait()
    if "Traceback" in stderr:
        outcome.wrong.append(f"traceback: {stderr[-1500:]}")
    elif code == 2:
        outcome.wrong.append(stderr[-300:])
    return int(code)


def _wait(job: Job, program: Program, undisturbed: Quiet, rng: random.Random) -> str:
    """Until a random moment: a time since there is anything to kill, or a change of the folder."""
    while program.process.is_alive() and not job.victims(program):
        time.sleep(0.01)
    if rng.random() < 0.5:
        seconds = rng.uniform(0, 0.9 * undisturbed.seconds)
        program.process.join(seconds)
        return f"after {seconds:.2f} s"
    wanted, after = rng.randint(1, max(1, undisturbed.changes)), rng.uniform(0, 0.02)
    for count, path in enumerate(_changes(program.folder, program), 1):
        if count >= wanted:
            time.sleep(after)
            return f"{1000 * after:.0f} ms after change {count} ({path})"
    return ""


def _changes(folder: Path, program: Program) -> Iterator[str]:
    """A file's name whenever one has come, grown or gone, until ``program`` ends."""
    seen: dict[str, int] = {}
    while program.process.is_alive():
        now = _sizes(folder)
        yield from sorted(seen.keys() ^ now.keys() | {n for n in seen.keys() & now.keys() if seen[n] != now[n]})
        seen = now
        time.sleep(0.002)


def _sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes[str(path.relative_to(folder))] = path.stat().st_size
    return sizes


def remaining(mark: str, seconds: float = ENDING) -> list[str]:
    """Command lines of the processes of a case that live on after so long."""
    until = time.monotonic() + seconds
    while (left := list(_marked(mark))) and time.monotonic() < until:
        time.sleep(0.1)
    lines = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(f"left: {' '.join(process.cmdline())[:200]}")
            process.kill()
    return lines


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                yield process


def differences(expected: Path, found: Path) -> list[str]:
    """Files that are in one folder alone, or not the same in both; not what tools keep for themselves."""
    names = [
        {str(p.relative_to(f)) for p in f.rglob("*") if p.is_file() and TOOLS.isdisjoint(p.parts)}
        for f in (expected, found)
    ]
    wrong = [f"{name} is in one folder alone" for name in sorted(names[0] ^ names[1])]
    for name in sorted(names[0] & names[1]):
        if Path(name).name not in NEVER_EQUAL and not same(expected / name, found / name):
            wrong.append(f"{name} differs")
    return wrong


def same(expected: Path, found: Path) -> bool:
    """Byte for byte; of metrics all but times and faults."""
    if expected.name != "metrics.jsonl":
        return expected.read_bytes() == found.read_bytes()
    ours, theirs = (
        [
            {k: v for k, v in row.items() if not ((m := declared(k)) and m.kind in (Kind.TIME, Kind.FAULT))}
            for row in rows
        ]
        for rows in map(read_jsonl, (expected, found))
    )
    return ours == theirs
