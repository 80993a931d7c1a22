"""The jobs of the Snakefile: runs of every table, and inputs, resources and priority of each job."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from r3l.config import Run, TierConfig, environment_of, load, resolve, trains, tuning, variant
from r3l.core.errors import ConfigError
from r3l.evaluation import stored_runs
from r3l.files.paths import PUBLISHED
from r3l.runs.provenance import check_clean
from r3l.runs.run_dir import EVALUATION, RESULT, locked, move_aside, recorded_fingerprint
from r3l.runs.run_paths import FURTHER, validation_evaluation
from r3l.workflow import plan, resources, status
from r3l.workflow.plan import LOGS
from r3l.workflow.resources import JobKind, ResourceRequest
from r3l.workflow.task_sets import task_set_hashes

STATE = "results/{tier}/{env}/{model}/{method}/seed{seed}"  # a run's directory
FURTHER_EVALUATION = f"{FURTHER}/{{set}}/{{split}}/{EVALUATION}"  # in a run's directory
RUN_LABELS = {name: f"{{{name}}}" for name in ("method", "seed", "model", "tier")}  # in its report
DEFAULT_TARGETS = [
    "results/table1.csv",
    "results/figures/learning_curves.png",
    "results/figures/table1.png",
]
PAGES = {"budget": "budget.csv", "report": "report.html"}  # of the runs of Table 1
ForJob = Callable[[Any], int | str | None]  # a value from the wildcards of a job


class Jobs:
    """The functions that the rules of the Snakefile call, to list runs, inputs and resources of jobs.

    ``content``: configs/workflow.yaml merged with --config by Snakemake. ``defaults``: Snakemake's default
    resources. ``hours``: a function that gives the expected training hours of a run, None if unknown. Raises
    ConfigError if the configuration or Snakemake's profile cannot be used, or if ``clean`` is set and the
    checkout has uncommitted changes.

    The argument ``wildcards`` of methods is Snakemake's, for a job's output: tier, env, model, method, seed.
    A method that lists a run's files as inputs renames the run's directory first if it holds another run
    (only if jobs will start).
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        defaults: Mapping[str, Any],
        hours: Callable[[Run], float | None] = lambda _: None,
    ) -> None:
        profile = {name: str(value.raw) for name, value in defaults.items()}
        if not any(re.fullmatch(r"--dry-?run|-n\w*", argument) for argument in sys.argv[1:]):
            resources.check_profile(profile)  # a dry run needs no account
        self.config = plan.load(content)
        if self.config.clean:
            check_clean("the workflow is to make runs that can be stored (clean=true)")

        # The tables; each one's runs are planned at the first call of ``runs``.
        self.tables = plan.tables()
        self.options = plan.options(self.config)
        self._runs_of: dict[str, dict[str, Run]] = {}
        self._holds_run: dict[str, bool] = {}
        self.starts = False  # set when jobs will follow: only then are directories renamed
        self.runs("table1")  # needed by `all`: an invalid configuration ends here

        # For resources and priorities.
        self._times = status.learned_times(stored_runs.folder().glob("*/*/*/*/seed*"))
        self._resources = resources.load()
        self._hours = hours
        self._requests: dict[tuple[JobKind, str], ResourceRequest] = {}
        self._gres = profile.get("gpu_gres")

    def runs(self, table: str) -> dict[str, Run]:
        """The runs of ``table`` by their directories under results/, planned at the first call.

        Raises ConfigError as :func:`r3l.workflow.plan.runs` does, KeyError for an unknown table.
        """
        if table not in self._runs_of:
            self._runs_of[table] = plan.runs(self.config, self.tables[table])
        return self._runs_of[table]

    def run(self, wildcards: Any) -> Run:
        """The run of a job, from its tuning or the first table that has it; ConfigError if none has."""
        path = STATE.removeprefix("results/").format(**wildcards)
        cell = {**wildcards}

        # A run of a tuning is in no table; it is recognised by its seed, which only tunings use.
        config = load("tiers", cell["tier"], TierConfig).tuning
        seed = int(cell["seed"])
        if config is not None and seed in config.seeds:
            tried = resolve(cell["tier"], cell["env"], cell["method"], seed, self.config.model)
            if tried.directory == path:
                return tried

        for table in {**self._runs_of, **self.tables}:  # planned tables first
            if path in self.runs(table):
                return self.runs(table)[path]
        raise ConfigError(
            f"no table of this configuration has results/{path}; make it: r3l run --env ENV --method METHOD"
        )

    def _input(self, file: Path | str, run: Run) -> str:
        """``file`` of ``run`` as an input of a rule; a directory of another run is renamed before jobs start.

        Marked ``ancient`` if the directory holds this run: its fingerprint decides, and copying changes
        file times.
        """
        from snakemake.io import ancient  # type: ignore[import-untyped]

        path = run.directory
        if path not in self._holds_run:
            run_dir = Path("results", path)
            fingerprint = run.fingerprint()
            recorded = recorded_fingerprint(run_dir)
            self._holds_run[path] = recorded == fingerprint
            # Snakemake would take the files of another run for this run's, or delete them. Loading the
            # tasks fails if the environment's data is missing: the fingerprint is then a planned one, and
            # may be of the same run.
            if self.starts and recorded not in (None, fingerprint):
                environment_of(run.env).tasks(run.env_settings.test_task_set)
                with locked(run_dir):
                    aside = move_aside(run_dir, fingerprint)
                message = f"{run_dir} held a run of another configuration, which is kept in {aside}"
                print(message, file=sys.stderr)
        name: str = ancient(str(file)) if self._holds_run[path] else str(file)
        return name

    def result(self, wildcards: Any) -> str:
        """Path of the result.json of a job's run, as an input of a rule.

        Before jobs start, a directory of another run is renamed. Raises ConfigError as :meth:`run` does.
        """
        return self._input(f"{STATE}/{RESULT}".format(**wildcards), self.run(wildcards))

    def made_of(self, table: str) -> str:
        """Hash (hex sha256) of all that ``table`` depends on; Snakemake makes the table again if it changes.

        It covers the table's file, the fingerprints of its runs, published numbers, and the evaluations on
        further question sets.
        """
        config = self.tables[table]
        fingerprints = {path: run.fingerprint() for path, run in self.runs(table).items()}
        further = plan.further_evaluations(self.config, config)
        content = json.dumps([config.model_dump(mode="json"), fingerprints, further])
        published = b"".join(path.read_bytes() for path in sorted(PUBLISHED.glob("*.csv")))
        return hashlib.sha256(content.encode() + published).hexdigest()

    def tuning_evaluations(self, wildcards: Any) -> list[str]:
        """Input files of a tuning job: the validation scores of the runs that try each learning rate."""
        tried = plan.tuning_runs(wildcards.tier, wildcards.env, wildcards.method, self.config.model)
        files = []
        for of_rate in tried.values():
            for path, run in of_rate.items():
                files.append(self._input(validation_evaluation(Path("results", path), run), run))
        return files

    def tuned_of(self, wildcards: Any) -> list[str]:
        """Fingerprints of the runs that a tuning compares; if one changes, the tuning is repeated."""
        tried = plan.tuning_runs(wildcards.tier, wildcards.env, wildcards.method, self.config.model)
        return [run.fingerprint() for of_rate in tried.values() for run in of_rate.values()]

    def tunings(self, _: Any) -> list[str]:
        """Paths of the tuning files of all methods that Table 1 trains, under results/, each once."""
        trained = [run for run in self.runs("table1").values() if trains(run)]
        paths = [tuning.tuning_file(run.tier, run.env, variant(run.method)) for run in trained]
        return [f"results/{path}" for path in dict.fromkeys(paths)]

    def model(self, wildcards: Any) -> str:
        """The base checkpoint of a run, as an argument of `r3l train --model`."""
        return self.run(wildcards).model

    def fingerprint(self, wildcards: Any) -> str:
        """The fingerprint of a job's run; if it changes, Snakemake repeats the job."""
        return self.run(wildcards).fingerprint()

    def priority(self, wildcards: Any) -> int:
        """Priority of a run's job: its expected seconds, so that the longest run starts first; 0 if unknown.

        Without priorities a long run may start last, and run alone at the end.
        """
        return round(status.expected_seconds(self.run(wildcards), self._times) or 0)

    def threads(self, kind: JobKind) -> Callable[[Any], int]:
        """A function from a job's wildcards to its number of CPUs, for ``threads:`` of a rule.

        ``kind``: ``train`` or ``evaluate``.
        """
        return lambda wildcards: self._request(kind, wildcards).cpus

    def requests(self, kind: JobKind) -> dict[str, ForJob]:
        """Memory, time, nodes and GPUs of the jobs of one ``kind``, for ``resources:`` of a rule.

        The result maps each of Snakemake's resource names to a function from a job's wildcards to the value
        (MB, minutes, numbers; None: not requested). CPUs are not among them: see :meth:`threads`.
        """

        def translated(wildcards: Any) -> dict[str, int | str | None]:
            return resources.snakemake_resources(self._request(kind, wildcards), self._gres)

        def of_job(name: str) -> ForJob:
            return lambda wildcards: translated(wildcards)[name]

        return {name: of_job(name) for name in ("mem_mb", "runtime", "nodes", "gpu", "gres")}

    def evaluations(self, table: str) -> list[str]:
        """Paths of the evaluation.json of all runs of ``table``, as inputs of a rule."""
        return [self._input(f"results/{path}/{EVALUATION}", run) for path, run in self.runs(table).items()]

    def further_evaluations(self, table: str) -> list[str]:
        """Input files of ``table``: its runs' evaluations on further question sets, such as gsm8k."""
        runs = self.runs(table)
        files = [Path(path) for path in plan.further_evaluations(self.config, self.tables[table])]
        return [self._input(Path("results", file), runs[str(Path(*file.parts[:5]))]) for file in files]

    def further_task_set(self, wildcards: Any) -> str:
        """The committed hash of the task set of a job that evaluates on further tasks.

        ``wildcards``: the job's; their ``env``, ``set`` and ``split`` name the task set. Raises ConfigError
        for an unknown environment or task set, DataError if the file with the hash is missing or damaged.
        """
        return environment_of(wildcards.env).task_set_hash(f"{wildcards.set}/{wildcards.split}")

    def rows(self, table: str) -> str:
        """The methods of ``table``, comma-separated."""
        return ",".join(self.config.rows(self.tables[table]))

    def _request(self, kind: JobKind, wildcards: Any) -> ResourceRequest:
        run = self.run(wildcards)
        if (kind, run.cell) not in self._requests:  # called five times per job, for 720 jobs
            hours = self._hours(run) if kind == "train" else None
            self._requests[kind, run.cell] = resources.requested_resources(self._resources, kind, run, hours)
        return self._requests[kind, run.cell]


def log_path(rule: str, *further: str) -> str:
    """Path of a job's log, with Snakemake's wildcards: ``results/logs/RULE/{tier}/.../seed{seed}.log``.

    ``rule``: the job's rule in the Snakefile, such as train or evaluate. ``further``: parts of the path after
    the seed, which distinguish several jobs of one run.
    """
    run = "/".join([STATE.removeprefix("results/"), *further])
    return f"{LOGS}/{rule}/{run}.log"


def task_sets(wildcards: Any) -> dict[str, str]:
    """The committed hashes of the task sets in a job's environment and tier, by name (task_set_hashes)."""
    return task_set_hashes(wildcards.tier, wildcards.env)
