"""How commands run the workflow: the snakemake command, one line per run while it works, what went wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from r3l.cli.arguments import RESULTS
from r3l.core.errors import ConfigError, DataError, check_known
from r3l.files.paths import SNAKEFILE, WORKFLOW
from r3l.runs.preemption import Preempted

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.workflow.status import Split, Status

PLAIN = re.compile(r"(?!(?:inf|infinity|nan|true|false|null)$)[a-z_./][\w./@-]*", re.IGNORECASE | re.ASCII)
RENAMED = "holds a run of another configuration: renamed; running again"
TAIL = 12  # lines of a log that are shown
REFUSED = re.compile(r'^WorkflowError in file ".*", line \d+:\n(.*?)\n  File "', re.MULTILINE | re.DOTALL)


def line(targets: list[str], config: dict[str, Any], placement: list[str]) -> list[str]:
    """A snakemake command; ``config``: keys of configs/workflow.yaml, ``placement``: cores or a profile."""
    here = [] if Path("Snakefile").resolve() == SNAKEFILE else ["--snakefile", str(SNAKEFILE)]
    pairs = [f"{key}={_as_yaml(value)}" for key, value in config.items()]
    shown = ("--printshellcmds", "--show-failed-logs")  # each step can be repeated by hand
    return ["snakemake", *here, *shown, *placement, *targets, *(["--config", *pairs] if pairs else [])]


def _as_yaml(value: Any) -> str:
    """What snakemake's --config reads as ``value``: it strips quotes at the ends, then tries a number, then YAML."""
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else f" {json.dumps(value, ensure_ascii=False)} "
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def placement(profile: str | None, cores: str) -> list[str]:
    """Where jobs run, in snakemake's words. Raises ConfigError for an unknown profile."""
    if profile is None:
        return ["--cores", cores]
    profiles = WORKFLOW / "profiles"
    check_known("profile", profile, sorted(path.parent.name for path in profiles.glob("*/config.yaml")))
    return ["--profile", os.path.relpath(profiles / profile)]


def make(command: list[str], runs: Mapping[str, Run], split: Split = "test") -> Path:
    """Run a command of :func:`line`, showing on stderr how far its ``runs`` are; the last state of each counts.

    Returns snakemake's log. Raises ConfigError where an environment's packages are missing, DataError where a job
    failed, Preempted after Ctrl-C: runs have saved a checkpoint then.
    """
    from r3l.evaluation import stored_runs
    from r3l.report.progress import follow
    from r3l.workflow import execution, status

    check_installed(RESULTS, runs, split)
    check_cache()
    log, began = execution.new_log(), time.time()
    console = Console(stderr=True, highlight=False)
    console.print(f"{shlex.join(command)}\nits log: {log}", soft_wrap=True, markup=False)
    for place in others(runs):
        console.print(f"{place} {RENAMED}", soft_wrap=True, markup=False)
    if execution.busy():
        console.print(execution.WAITING)
    cores = _cores(command) or len(runs)
    benches = {(run.tier, run.env) for run in runs.values()}
    known = [path for path in stored_runs.folder().glob("*/*/*/*/seed*") if path.parts[-5:-3] in benches]
    times = status.learned_times(known)
    try:
        with execution.started(command, log) as process:
            inspect = partial(status.survey, runs, RESULTS, times, split)
            statuses = follow(inspect, lambda: process.poll() is None, console, cores)
    except KeyboardInterrupt:
        raise Preempted("Ctrl-C") from None
    if process.returncode:
        _raise_refusal(log.read_text(encoding="utf-8", errors="replace"))
        for text in _failures(statuses, began) or [_tail(log)]:
            console.print(text, soft_wrap=True, markup=False)
        raise DataError("some runs did not finish (see above); re-run to resume")
    return log


def _cores(command: list[str]) -> int | None:
    """The number behind ``--cores``; None: a profile says where jobs run."""
    if "--cores" not in command:
        return None
    cores = command[command.index("--cores") + 1]
    return len(os.sched_getaffinity(0)) if cores == "all" else int(cores)


def others(runs: Mapping[str, Run]) -> list[Path]:
    """The directories of ``runs`` that hold another run, as their manifests say: they are renamed first."""
    from r3l.runs.run_dir import recorded_fingerprint

    places = {RESULTS / path: run for path, run in runs.items()}
    return [place for place, run in places.items() if recorded_fingerprint(place) not in (None, run.fingerprint())]


def jobs_of(command: list[str], renamed: Sequence[Path]) -> dict[str, int]:
    """How many jobs of each kind a command of :func:`line` would start, of them those for the directories that are
    ``renamed`` first. Raises DataError with what the Snakefile or else snakemake says."""
    check_cache()
    asked = [sys.executable, "-m", *command, "--dry-run", "--quiet", "rules"]
    if renamed:
        asked += ["--forcerun", *(str(place / "result.json") for place in renamed)]
    done = subprocess.run(asked, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode:
        _raise_refusal(output)
        last = [f"    {text}" for text in output.splitlines()[-TAIL:]]
        raise DataError("\n".join([f"{shlex.join(command)} --dry-run says:", *last]))
    counted = re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)  # the table of jobs, which it prints twice
    return {kind: int(count) for kind, count in counted if kind != "total"}


def check_cache() -> None:
    """Raises ConfigError where the folder cannot be made in which snakemake keeps its cache; it says so itself in the
    last lines of a traceback."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "snakemake")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror}), where snakemake keeps its cache: set XDG_CACHE_HOME or HOME "
            "to a folder that can be written"
        ) from error


def check_installed(results: Path, runs: Mapping[str, Run], split: Split) -> None:
    """Raises ConfigError where runs without a finished evaluation need packages that are missing.

    Now, not in a job that starts when others have trained for an hour.
    """
    from r3l.config import environment_of
    from r3l.workflow.status import EVALUATIONS

    evaluation = EVALUATIONS[split]
    for env in sorted({run.env for path, run in runs.items() if not evaluation(results / path, run).is_file()}):
        environment_of(env).check_installed()


def _raise_refusal(output: str) -> None:
    """Raises DataError with the paragraph for which the Snakefile ended, if snakemake's output has one."""
    if refused := REFUSED.search(output):
        raise DataError(refused[1])


def _failures(statuses: list[Status], began: float) -> list[str]:
    """The log tail of each run that did not finish."""
    logs = [(status.name, status.log) for status in statuses if status.state != "done"]
    return [f"\n{name} did not finish; {_tail(log)}" for name, log in logs if log and log.stat().st_mtime >= began]


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"{log} ends with", *(f"    {line}" for line in lines[-TAIL:])])
