"""Resource requests of jobs: configs/resources.yaml, translated for Snakemake and its cluster profiles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from r3l.config import Run, Strict, gpu_cluster, validate, variant
from r3l.core.errors import ConfigError
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml

FILE = CONFIGS / "resources.yaml"
PLACEHOLDERS = {  # keys of workflow/profiles/slurm/config.yaml, and the command that shows the value
    "slurm_account": "sacctmgr show associations user=$USER format=account,partition,qos",
    "slurm_partition": "sinfo --summarize",
    "qos": "sacctmgr show associations user=$USER format=account,partition,qos",
}
JobKind = Literal["train", "evaluate"]


class JobResources(Strict):
    """An entry of configs/resources.yaml: resources of the jobs with these names.

    A name that is left out matches any; a resource that is left out is not set by this entry. ``rule``:
    ``train`` or ``evaluate``.
    """

    rule: JobKind | None = None
    tier: str | None = None
    env: str | None = None
    model: str | None = None
    method: str | None = None
    mem_mb: int | None = Field(None, ge=1, description="memory on each node of the job")
    runtime: int | None = Field(None, ge=1, description="most minutes of one job")
    gpu: int | None = Field(None, ge=0, description="GPUs on all nodes of the job together")
    nodes: int | None = Field(None, ge=1)
    cpus: int | None = Field(None, ge=1, description="default: the run's threads")

    def matches(self, names: Mapping[str, str]) -> bool:
        """True if the entry applies to a job, that is, every name that the entry states is the job's.

        ``names``: rule, tier, env, model and method of the job.
        """
        return all(getattr(self, key) in (None, name) for key, name in names.items())


class ResourceRequest(Strict):
    """Resources of one job: MB of memory on each node, minutes, GPUs in all, nodes, CPUs.

    ``parts``: how many such jobs, one after another, a training is expected to take.
    """

    mem_mb: int
    runtime: int
    gpu: int
    nodes: int
    cpus: int
    parts: int = 1


class Walltime(Strict):
    """The time limit of a training from its expected hours: ``start`` minutes, and ``margin`` x the hours."""

    start: int = Field(ge=0, description="minutes before the first step")
    margin: float = Field(ge=1, description="factor on the estimated hours")

    def minutes(self, hours: float) -> int:
        """The time limit for a training of ``hours``: ``start`` + 60 x ``margin`` x ``hours``, rounded up."""
        return self.start + math.ceil(60 * self.margin * hours)


class ResourceConfig(Strict):
    """configs/resources.yaml. Of the entries of ``jobs`` that match a job, later ones override earlier ones.

    ``sources``: where the numbers come from, by entry (``jobs.0``, ``walltime``).
    """

    jobs: list[JobResources] = Field(min_length=1)
    walltime: Walltime
    sources: dict[str, str]


def load() -> ResourceConfig:
    """Read configs/resources.yaml. Raises ConfigError for an unknown key or a wrong value."""
    return validate(ResourceConfig, read_yaml(FILE), "configs/resources.yaml")


def requested_resources(
    config: ResourceConfig,
    kind: JobKind,
    run: Run,
    hours: float | None = None,
) -> ResourceRequest:
    """Resources of a job of ``kind`` for ``run``, by all entries that match it and the model's GPUs.

    ``kind``: ``train`` or ``evaluate``. ``hours``: expected hours of a training. They set ``runtime``, at
    most the entries' ``runtime``, the limit of one job; a longer training takes several ``parts``. Raises
    ConfigError if no entry gives a required resource, or the GPUs cannot be shared equally by the nodes.
    """
    names = {
        "rule": kind,
        "tier": run.tier,
        "env": run.env,
        "model": Path(run.model).name,
        "method": variant(run.method)[0],
    }

    # Later entries override earlier ones.
    values: dict[str, Any] = {"cpus": run.threads}
    for entry in config.jobs:
        if entry.matches(names):
            values |= entry.model_dump(exclude=set(names), exclude_none=True)

    # A training on the trinity engine gets the GPUs and nodes that configs/models plans, since its
    # configuration is made for them.
    planned = gpu_cluster(run) if kind == "train" else None
    if planned:
        values |= {"nodes": planned.nodes, "gpu": planned.nodes * planned.gpus_per_node}

    # A training that needs more than the longest job takes several jobs, each resuming the last.
    if hours is not None and "runtime" in values:
        needed = config.walltime.minutes(hours)
        values |= {"parts": math.ceil(needed / values["runtime"]), "runtime": min(needed, values["runtime"])}
    request = validate(ResourceRequest, values, f"configs/resources.yaml, {kind} of {run.cell}")
    if request.gpu % request.nodes:
        raise ConfigError(
            f"configs/resources.yaml, {kind} of {run.cell}: key 'gpu' has value {request.gpu}, which "
            f"cannot be shared equally by {request.nodes} nodes; make it a multiple"
        )
    return request


def snakemake_resources(request: ResourceRequest, gres: str | None) -> dict[str, int | str | None]:
    """The resources ``request`` by Snakemake's names (mem_mb, runtime, nodes, gpu, gres).

    A value of None is not requested. ``gres``: name under which a cluster's GPUs are requested, per node
    (``gpu:4``); None: as a number in total, under ``gpu``.
    """
    return {
        "mem_mb": request.mem_mb,
        "runtime": request.runtime,
        "nodes": request.nodes,
        "gpu": None if gres or not request.gpu else request.gpu,
        "gres": f"{gres}:{request.gpu // request.nodes}" if gres and request.gpu else None,
    }


_SLURM_NAME = re.compile(r"[\w.+@-]+(?:,[\w.+@-]+)*", re.ASCII)  # several partitions: a,b


def check_profile(defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError if a cluster's Snakemake profile still has placeholders (YOUR_...) or odd names.

    Snakemake evaluates these values and writes them into a shell command, so blanks, quotes, ``$`` and the
    like in the name of an account, a partition or a QOS are refused.

    ``defaults``: resource -> value, the ``default-resources`` of workflow/profiles/slurm/config.yaml.
    """
    left = [
        f"{name} is still {defaults[name]} (`{where}` shows yours)"
        for name, where in PLACEHOLDERS.items()
        if str(defaults.get(name, "")).startswith("YOUR_")
    ]
    if left:
        raise ConfigError(
            f"workflow/profiles/slurm/config.yaml: {', '.join(left)}; write yours, or delete the line where "
            "your cluster needs none"
        )
    for name in PLACEHOLDERS:
        if name in defaults and not _SLURM_NAME.fullmatch(str(defaults[name])):
            raise ConfigError(
                f"workflow/profiles/slurm/config.yaml: {name} is {defaults[name]!r}; it must be letters, "
                "digits and any of _ . + @ -, or several such names with commas between them"
            )
