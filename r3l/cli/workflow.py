"""Running the workflow from commands: the snakemake command, progress of its runs, and its failures."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from r3l.cli.arguments import RESULTS
from r3l.core.errors import ConfigError, DataError, check_known
from r3l.files.paths import SNAKEFILE, WORKFLOW
from r3l.files.requirements import require
from r3l.runs.preemption import Preempted

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.workflow.status import Split

PLAIN = re.compile(r"(?!(?:inf|infinity|nan|true|false|null)$)[a-z_./][\w./@-]*", re.IGNORECASE | re.ASCII)
RENAMED = "holds a run of another configuration: renamed; running again"
TAIL = 12  # lines of a log that are shown
REFUSED = re.compile(r'^WorkflowError in file ".*", line \d+:\n(.*?)\n  File "', re.MULTILINE | re.DOTALL)


def snakemake_command(targets: list[str], config: dict[str, Any], placement: list[str]) -> list[str]:
    """The words of a snakemake command; nothing is started.

    ``targets``: files to make. ``config``: keys of configs/workflow.yaml and their values, {} for the file's
    own. ``placement``: options that say where jobs run (:func:`placement_options`).
    """
    words = ["snakemake"]
    if Path("Snakefile").resolve() != SNAKEFILE:
        words += ["--snakefile", str(SNAKEFILE)]
    words += ["--printshellcmds", "--show-failed-logs"]  # so that a user can repeat each step by hand
    words += [*placement, *targets]
    if config:
        words.append("--config")
    # snakemake strips outer quotes of a value, then reads it as YAML.
    for key, value in config.items():
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        if isinstance(value, str):
            text = value if PLAIN.fullmatch(value) else f" {text} "
        words.append(f"{key}={text}")
    return words


def placement_options(profile: str | None, cores: str) -> list[str]:
    """The options of snakemake that say where jobs run: by a ``profile``, or without one on local ``cores``.

    ``profile``: a folder of workflow/profiles. ``cores``: a number or ``all``, not checked here. Raises
    ConfigError for an unknown profile.
    """
    if profile is None:
        return ["--cores", cores]
    profiles = WORKFLOW / "profiles"
    check_known("profile", profile, sorted(path.parent.name for path in profiles.glob("*/config.yaml")))
    return ["--profile", os.path.relpath(profiles / profile)]


def require_executor(profile: str) -> None:
    """Raise ConfigError if snakemake's plugin for a profile's executor (workflow/profiles) is missing."""
    if _content(profile).get("executor") == "slurm":
        require("slurm", f"--profile {profile}")


def default_resources(profile: str) -> dict[str, Any]:
    """Resources that a profile of workflow/profiles requests for every job, such as ``slurm_account``.

    The values of its key ``default-resources``; {} without it.
    """
    defaults: dict[str, Any] = _content(profile).get("default-resources", {})
    return defaults


def _content(profile: str) -> dict[str, Any]:
    from r3l.files.yaml_files import read_yaml

    return read_yaml(WORKFLOW / "profiles" / profile / "config.yaml")


def run_snakemake(command: list[str], runs: Mapping[str, Run], split: Split = "test") -> Path:
    """Run a :func:`snakemake_command` until it ends, showing the progress of ``runs``; returns its log.

    ``runs``: the runs that it makes, by directory under results/. ``split``: the task set, test or
    validation, whose evaluation finishes a run. Waits while another workflow runs here. Raises ConfigError if
    packages of an environment are missing, DataError if a job failed (the ends of the logs are printed), and
    Preempted after Ctrl-C, when running jobs have saved a checkpoint.
    """
    from r3l.evaluation import stored_runs
    from r3l.report.progress import follow
    from r3l.workflow import execution, status

    check_installed(RESULTS, runs, split)
    check_cache()

    # Say what is started, and which directories are renamed first.
    log = execution.new_log()
    began = time.time()
    console = Console(stderr=True, highlight=False)
    console.print(f"{shlex.join(command)}\nits log: {log}", soft_wrap=True, markup=False)
    for place in dirs_of_other_runs(runs):
        console.print(f"{place} {RENAMED}", soft_wrap=True, markup=False)
    if execution.busy():
        console.print(execution.WAITING)

    # Follow the runs until snakemake ends. Expected times come from stored runs in the same environments.
    cores = len(runs)  # of a profile, which runs them elsewhere
    if "--cores" in command:
        wanted = command[command.index("--cores") + 1]
        cores = len(os.sched_getaffinity(0)) if wanted == "all" else int(wanted)
    benches = {(run.tier, run.env) for run in runs.values()}
    known = [path for path in stored_runs.folder().glob("*/*/*/*/seed*") if path.parts[-5:-3] in benches]
    times = cache(lambda: status.learned_times(known))
    try:
        with execution.started(command, log) as process:
            inspect = partial(status.survey, runs, RESULTS, times, split)
            statuses = follow(inspect, lambda: process.poll() is None, console, cores)
    except KeyboardInterrupt:
        raise Preempted("Ctrl-C") from None
    if process.returncode:
        _raise_refusal(log.read_text(encoding="utf-8", errors="replace"))
        # The ends of the logs of runs that failed now, or of snakemake's own.
        texts = []
        for status_of_run in statuses:
            run_log = status_of_run.log
            if status_of_run.state != "done" and run_log and run_log.stat().st_mtime >= began:
                texts.append(f"\n{status_of_run.name} did not finish; {_tail(run_log)}")
        for text in texts or [_tail(log)]:
            console.print(text, soft_wrap=True, markup=False)
        raise DataError("some runs did not finish (see above); re-run to resume")
    return log


def dirs_of_other_runs(runs: Mapping[str, Run]) -> list[Path]:
    """The directories of ``runs`` (by directory under results/) whose manifest is of another configuration.

    A command that makes these runs renames them first; here nothing is renamed.
    """
    from r3l.runs.run_dir import recorded_fingerprint

    found = []
    for path, run in runs.items():
        recorded = recorded_fingerprint(RESULTS / path)
        if recorded is not None and recorded != run.fingerprint():
            found.append(RESULTS / path)
    return found


def count_jobs(command: list[str], renamed: Sequence[Path]) -> dict[str, int]:
    """The number of jobs of each kind (rule) that a :func:`snakemake_command` would start, by a dry run.

    ``renamed``: directories that would be renamed first, so that their runs are made again. Raises DataError
    with the message of the Snakefile, or else of snakemake.
    """
    check_cache()
    words = [sys.executable, "-m", *command, "--dry-run", "--quiet", "rules"]
    if renamed:
        words += ["--forcerun", *(str(place / "result.json") for place in renamed)]
    done = subprocess.run(words, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode:
        _raise_refusal(output)
        last = [f"    {text}" for text in output.splitlines()[-TAIL:]]
        raise DataError("\n".join([f"{shlex.join(command)} --dry-run says:", *last]))
    counted = re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)  # snakemake prints the table of jobs twice
    return {kind: int(count) for kind, count in counted if kind != "total"}


def check_cache() -> None:
    """Make snakemake's cache folder. Raises ConfigError if that fails, where snakemake prints a traceback."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "snakemake")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror}), where snakemake keeps its cache: set "
            "XDG_CACHE_HOME or HOME to a folder that can be written"
        ) from error


def check_installed(results: Path, runs: Mapping[str, Run], split: Split) -> None:
    """Raise an R3LError if packages or the base checkpoint of one of the unfinished ``runs`` are missing.

    ``runs``: by directory under ``results``. ``split``: the task set, test or validation, whose evaluation
    finishes a run. This is checked now, not in a job that starts after others have trained for an hour.
    """
    from r3l.config import environment_of

    for env in sorted({run.env for run in _unfinished(results, runs, split)}):
        environment_of(env).check_installed()
    check_models(results, runs, split)


def check_models(results: Path, runs: Mapping[str, Run], split: Split = "test") -> None:
    """Raise CheckpointError if a base checkpoint of the unfinished ``runs`` has an unknown name.

    Folders and hub models may exist on the machine of a job alone, so they are not looked for.
    """
    from r3l.config import locate
    from r3l.local.checkpoint import find

    for model in sorted({run.model for run in _unfinished(results, runs, split)}):
        if "/" not in locate(model):
            find(model)


def _unfinished(results: Path, runs: Mapping[str, Run], split: Split) -> list[Run]:
    """The ``runs`` (by directory under ``results``) that are not evaluated on ``split`` yet."""
    from r3l.workflow.status import evaluation_of

    return [run for path, run in runs.items() if not evaluation_of(results / path, run, split).is_file()]


def _raise_refusal(output: str) -> None:
    """Raise DataError with the Snakefile's error paragraph, if snakemake's output has one."""
    if refused := REFUSED.search(output):
        raise DataError(refused[1])


def _tail(log: Path) -> str:
    """The last lines of a log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"{log} ends with", *(f"    {line}" for line in lines[-TAIL:])])
