"""What a job asks of the machine (configs/resources.yaml), in its cluster's words (workflow/profiles/)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from r3l.config import Run, Strict, gpu_cluster, validate, variant
from r3l.core.errors import ConfigError
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml

FILE = CONFIGS / "resources.yaml"
PLACEHOLDERS = {  # in workflow/profiles/slurm/config.yaml: the command that shows the value
    "slurm_account": "sacctmgr show associations user=$USER format=account,partition,qos",
    "slurm_partition": "sinfo --summarize",
    "qos": "sacctmgr show associations user=$USER format=account,partition,qos",
}
JobKind = Literal["train", "evaluate"]


class JobResources(Strict):
    """What the jobs of these names ask for; a name that is left out is any."""

    rule: JobKind | None = None
    tier: str | None = None
    env: str | None = None
    model: str | None = None
    method: str | None = None
    mem_mb: int | None = Field(None, ge=1, description="memory of the job, on each node")
    runtime: int | None = Field(None, ge=1, description="minutes that a job may ask for at most")
    gpu: int | None = Field(None, ge=0, description="GPUs of the job, on all its nodes together")
    nodes: int | None = Field(None, ge=1)
    cpus: int | None = Field(None, ge=1, description="default: the run's threads")

    def matches(self, names: Mapping[str, str]) -> bool:
        return all(getattr(self, key) in (None, name) for key, name in names.items())


class ResourceRequest(Strict):
    """What one job asks for. ``parts``: jobs of ``runtime`` minutes that it is expected to take, one after another."""

    mem_mb: int
    runtime: int
    gpu: int
    nodes: int
    cpus: int
    parts: int = 1


class Walltime(Strict):
    """What a training of known hours asks for."""

    start: int = Field(ge=0, description="minutes before the first step")
    margin: float = Field(ge=1, description="times the estimated hours")

    def minutes(self, hours: float) -> int:
        return self.start + math.ceil(60 * self.margin * hours)


class ResourceConfig(Strict):
    """configs/resources.yaml: of the entries that match a job the later ones are laid over the earlier."""

    jobs: list[JobResources] = Field(min_length=1)
    walltime: Walltime
    sources: dict[str, str]


def load() -> ResourceConfig:
    return validate(ResourceConfig, read_yaml(FILE), "configs/resources.yaml")


def requested_resources(config: ResourceConfig, kind: JobKind, run: Run, hours: float | None = None) -> ResourceRequest:
    """What a job of ``kind`` for ``run`` asks for. Raises ConfigError where no entry says so.

    ``hours``: expected of it; it then asks for the walltime of these, up to the entries' ``runtime``. GPUs and nodes of
    a training on the trinity engine are those that configs/models plans, whatever the entries say: its configuration is
    made for them.
    """
    model, method = Path(run.model).name, variant(run.method)[0]
    names = {"rule": kind, "tier": run.tier, "env": run.env, "model": model, "method": method}
    values: dict[str, Any] = {"cpus": run.threads}
    for entry in config.jobs:
        if entry.matches(names):
            values |= entry.model_dump(exclude=set(names), exclude_none=True)
    if kind == "train" and (planned := gpu_cluster(run)):
        values |= {"nodes": planned.nodes, "gpu": planned.nodes * planned.gpus_per_node}
    if hours is not None and "runtime" in values:
        needed = config.walltime.minutes(hours)
        values |= {"parts": math.ceil(needed / values["runtime"]), "runtime": min(needed, values["runtime"])}
    request = validate(ResourceRequest, values, f"configs/resources.yaml, {kind} of {run.cell}")
    if request.gpu % request.nodes:
        raise ConfigError(
            f"configs/resources.yaml, {kind} of {run.cell}: key 'gpu' has value {request.gpu}, which cannot be shared "
            f"equally by {request.nodes} nodes; make it a multiple"
        )
    return request


def snakemake_resources(request: ResourceRequest, gres: str | None) -> dict[str, int | str | None]:
    """Snakemake's words for a request; ``gres``: ask for GPUs of this name on every node, not for a number of GPUs."""
    return {
        "mem_mb": request.mem_mb,
        "runtime": request.runtime,
        "nodes": request.nodes,
        "gpu": None if gres or not request.gpu else request.gpu,
        "gres": f"{gres}:{request.gpu // request.nodes}" if gres and request.gpu else None,
    }


def check_profile(defaults: Mapping[str, str]) -> None:
    """Raises ConfigError where the default resources of a profile are still placeholders (words in capitals)."""
    for name, where in PLACEHOLDERS.items():
        if defaults.get(name, "").startswith("YOUR_"):
            raise ConfigError(
                f"workflow/profiles/slurm/config.yaml: {name} is still {defaults[name]}; write yours (`{where}` shows "
                "it), or delete the line where your cluster asks for none"
            )
