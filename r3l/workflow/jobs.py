"""The jobs of the Snakefile: the runs of every table, what each job needs, and which starts first."""

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
from r3l.runs.provenance import check_clean
from r3l.runs.run_dir import EVALUATION, RESULT, locked, move_aside, recorded_fingerprint
from r3l.runs.run_paths import FURTHER, validation_evaluation
from r3l.workflow import plan, resources, status
from r3l.workflow.plan import LOGS
from r3l.workflow.resources import JobKind, ResourceRequest
from r3l.workflow.task_sets import task_set_hashes

STATE = "results/{tier}/{env}/{model}/{method}/seed{seed}"  # a run's directory
FURTHER_EVALUATION = f"{FURTHER}/{{set}}/{{split}}/{EVALUATION}"  # in it, of a further task set
RUN_LABELS = {name: f"{{{name}}}" for name in ("method", "seed", "model", "tier")}  # in snakemake's own report
DEFAULT_TARGETS = [
    "results/table1.csv",
    "results/figures/learning_curves.png",
    "results/figures/table1.png",
]
PAGES = {"budget": "budget.csv", "report": "report.html"}  # besides tables and figures; of the runs of Table 1
ForJob = Callable[[Any], int | str | None]  # of the wildcards of a job


class Jobs:
    """Answers to what the rules ask. Raises ConfigError where configuration or profile cannot be used.

    ``content`` is what Snakemake merged of configs/workflow.yaml and --config, ``defaults`` are its default resources;
    ``hours``: expected of a training, None where unknown.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        defaults: Mapping[str, Any],
        hours: Callable[[Run], float | None] = lambda _: None,
    ) -> None:
        profile = {name: str(value.raw) for name, value in defaults.items()}
        if not any(re.fullmatch(r"--dry-?run|-n\w*", argument) for argument in sys.argv[1:]):
            resources.check_profile(profile)  # a plan needs no account
        self.config = plan.load(content)
        if self.config.clean:
            check_clean("the workflow is asked for runs that can be stored (clean=true)")
        self.tables = plan.tables()
        self.options = plan.options(self.config)
        self._runs_of: dict[str, dict[str, Run]] = {}
        self._is_there: dict[str, bool] = {}
        self.starts = False  # whether jobs will follow (r3l.workflow.execution): else no directory is renamed
        self.runs("table1")  # what `all` needs: a wrong configuration ends here
        self._times = status.learned_times(stored_runs.folder().glob("*/*/*/*/seed*"))
        self._resources = resources.load()
        self._hours = hours
        self._requests: dict[tuple[JobKind, str], ResourceRequest] = {}
        self._gres = profile.get("gpu_gres")

    def runs(self, table: str) -> dict[str, Run]:
        """The runs of ``table`` by their directories under results/, planned when they are first asked for."""
        if table not in self._runs_of:
            self._runs_of[table] = plan.runs(self.config, self.tables[table])
        return self._runs_of[table]

    def run(self, wildcards: Any) -> Run:
        """The run of a job. Raises ConfigError where no table has it."""
        path = STATE.removeprefix("results/").format(**wildcards)
        if tried := self._tuning_run({**wildcards}, path):
            return tried
        for table in {**self._runs_of, **self.tables}:  # those that are planned first
            if path in self.runs(table):
                return self.runs(table)[path]
        raise ConfigError(
            f"no table of this configuration has results/{path}; make a run with r3l run --env ENV --method METHOD"
        )

    def _tuning_run(self, cell: Mapping[str, Any], path: str) -> Run | None:
        """The run of a tuning, which no table has: known by its seed."""
        config = load("tiers", cell["tier"], TierConfig).tuning
        if config is None or int(cell["seed"]) not in config.seeds:
            return None
        run = resolve(cell["tier"], cell["env"], cell["method"], int(cell["seed"]), self.config.model)
        return run if run.directory == path else None

    def _has(self, run: Run) -> bool:
        """Whether the directory of ``run`` holds it. A directory that holds another one (copied from elsewhere, or made
        under other settings) is renamed: snakemake would take its files for this run's, or delete them first."""
        path = run.directory
        if path not in self._is_there:
            run_dir, fingerprint = Path("results", path), run.fingerprint()
            recorded = recorded_fingerprint(run_dir)
            self._is_there[path] = recorded == fingerprint
            if self.starts and recorded not in (None, fingerprint):
                # without its data the fingerprint is that of a plan, and the directory may hold this very run
                environment_of(run.env).tasks(run.env_settings.test_task_set)
                with locked(run_dir):
                    aside = move_aside(run_dir, fingerprint)
                print(f"{run_dir} held a run of another configuration, which is kept in {aside}", file=sys.stderr)
        return self._is_there[path]

    def _settled(self, file: Path | str, run: Run) -> str:
        """``file`` of ``run``; where its directory holds this very run, times mean nothing: copying changes them."""
        from snakemake.io import ancient  # type: ignore[import-untyped]

        settled: str = ancient(str(file)) if self._has(run) else str(file)
        return settled

    def result(self, wildcards: Any) -> str:
        return self._settled(f"{STATE}/{RESULT}".format(**wildcards), self.run(wildcards))

    def made_of(self, table: str) -> str:
        """A digest of what decides the contents of ``table``: its runs and the published numbers."""
        fingerprints = {path: run.fingerprint() for path, run in self.runs(table).items()}
        content = json.dumps([fingerprints, plan.further_evaluations(self.config, self.tables[table])])
        return hashlib.sha256(content.encode() + plan.published_numbers()).hexdigest()

    def tuning_evaluations(self, wildcards: Any) -> list[str]:
        """What a tuning is made of: the validation scores of its runs."""
        tried = plan.tuning_runs(wildcards.tier, wildcards.env, wildcards.method, self.config.model)
        runs = [(Path("results", path), run) for of_rate in tried.values() for path, run in of_rate.items()]
        return [self._settled(validation_evaluation(run_dir, run), run) for run_dir, run in runs]

    def tuned_of(self, wildcards: Any) -> list[str]:
        """The fingerprints of the runs of a tuning."""
        tried = plan.tuning_runs(wildcards.tier, wildcards.env, wildcards.method, self.config.model)
        return [run.fingerprint() for of_rate in tried.values() for run in of_rate.values()]

    def tunings(self, _: Any) -> list[str]:
        """The tunings of all that Table 1 trains."""
        trained = [run for run in self.runs("table1").values() if trains(run)]
        places = [tuning.tuning_file(run.tier, run.env, variant(run.method)) for run in trained]
        return [f"results/{place}" for place in dict.fromkeys(places)]

    def model(self, wildcards: Any) -> str:
        """The base checkpoint of a run, as `r3l train --model` takes it."""
        return self.run(wildcards).model

    def fingerprint(self, wildcards: Any) -> str:
        return self.run(wildcards).fingerprint()

    def priority(self, wildcards: Any) -> int:
        """Longest first, so that no long run is left for the end."""
        return round(status.expected_seconds(self.run(wildcards), self._times) or 0)

    def threads(self, kind: JobKind) -> Callable[[Any], int]:
        return lambda wildcards: self._request(kind, wildcards).cpus

    def requests(self, kind: JobKind) -> dict[str, ForJob]:
        """Everything else that a job of ``kind`` asks for, by the name that Snakemake has for it."""

        def of_job(name: str) -> ForJob:
            return lambda wildcards: resources.snakemake_resources(self._request(kind, wildcards), self._gres)[name]

        return {name: of_job(name) for name in ("mem_mb", "runtime", "nodes", "gpu", "gres")}

    def evaluations(self, table: str) -> list[str]:
        return [self._settled(f"results/{path}/{EVALUATION}", run) for path, run in self.runs(table).items()]

    def further_evaluations(self, table: str) -> list[str]:
        """Those of its runs on question sets."""
        runs = self.runs(table)
        files = [Path(path) for path in plan.further_evaluations(self.config, self.tables[table])]
        return [self._settled(Path("results", file), runs[str(Path(*file.parts[:5]))]) for file in files]

    def further_task_set(self, wildcards: Any) -> str:
        """The hash of the task set that a run is further evaluated on."""
        return environment_of(wildcards.env).task_set_hash(f"{wildcards.set}/{wildcards.split}")

    def rows(self, table: str) -> str:
        """The methods of ``table``, comma-separated."""
        return ",".join(self.config.rows(self.tables[table]))

    def _request(self, kind: JobKind, wildcards: Any) -> ResourceRequest:
        run = self.run(wildcards)
        if (kind, run.cell) not in self._requests:  # five questions a job, of 720 jobs
            hours = self._hours(run) if kind == "train" else None
            self._requests[kind, run.cell] = resources.requested_resources(self._resources, kind, run, hours)
        return self._requests[kind, run.cell]


def log(rule: str, *further: str) -> str:
    """The log of a run's job; ``further``: what tells several of one run apart."""
    return f"{LOGS}/{rule}/{'/'.join([STATE.removeprefix('results/'), *further])}.log"


def task_sets(wildcards: Any) -> dict[str, str]:
    """The hashes of an environment's task sets in a tier."""
    return task_set_hashes(wildcards.tier, wildcards.env)
