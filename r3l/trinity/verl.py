"""The backend for GPUs: Trinity's verl trainer, whose last checkpoint is exported for transformers.

A run uses all GPUs that configs/models plans for its model: GPUs of this machine, of the surrounding
Slurm job (one node or several), or of the Ray cluster at $RAY_ADDRESS.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from r3l.config import ClusterConfig, Run
from r3l.core.errors import ConfigError, EngineError
from r3l.files.digests import write_digests
from r3l.files.writing import write_json_atomic
from r3l.local import checkpoint
from r3l.local.model import lora
from r3l.runs.gpu_locks import visible_gpus
from r3l.runs.run_dir import CHECKPOINTS
from r3l.trinity.config import MISMATCH_MAX, MISMATCH_SUM, MISMATCH_TOKENS
from r3l.trinity.job import NEWEST
from r3l.trinity.processes import LOOPBACK, Ray, TrinityEnvironment

ADDRESS = "RAY_ADDRESS"
CPUS_PER_GPU = 16  # announced to Ray: verl reserves 3 per GPU, and waits forever if there are fewer
JOB_SIZES = ("SLURM_GPUS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES")  # srun reads its defaults here
EXPORTED = Path("actor", "huggingface")  # in a checkpoint: verl 0.8, fsdp_checkpoint_manager.py
ADAPTER = Path("actor", "lora_adapter")  # with LoRA: Trinity 0.6.0, trainer/verl/workers.py
PEAK = "perf/max_memory_allocated_gb"  # of one GPU in an update, in GiB: verl 0.8, engine_workers.py


class Verl:
    """Backend (r3l.trinity.engine) for GPUs: Trinity's verl trainer.

    ``job``: Trinity's folder of the run, with its checkpoints; ``planned``: the GPUs to use; ``adapter``:
    folder of the initial LoRA adapter.
    """

    def __init__(self, run: Run, run_dir: Path, job: Path, planned: ClusterConfig, adapter: Path) -> None:
        self.run = run
        self.job = job
        self.planned = planned
        self.adapter = adapter
        self.exported = ADAPTER if run.lora.rank else EXPORTED
        # The last checkpoint in the local engine's form, made by collect.
        self.final = run_dir / CHECKPOINTS / checkpoint.name_of(run.train.steps)

    def check(self, environment: TrinityEnvironment) -> None:
        """Raise ConfigError unless the planned GPUs are available (at $RAY_ADDRESS, in the job, or here)."""
        nodes = self.planned.nodes
        each = self.planned.gpus_per_node
        plan = f"model {self.run.model!r} trains on {nodes} x {each} GPUs (nodes x GPUs, configs/models)"
        change = "or plan other nodes, GPUs and engines in `cluster` there"
        if address := os.environ.get(ADDRESS):
            gpus = environment.gpus_of(address)
            if gpus < nodes * each:
                raise ConfigError(
                    f"{plan}, but the Ray cluster at {ADDRESS}={address} has {gpus}; add some, {change}",
                )
            return
        # Without a running cluster we start Ray on this machine or in this Slurm job, which must match
        # the plan.
        if nodes_of_job() != nodes:
            here = f"a Slurm job with {nodes_of_job()}" if "SLURM_JOB_ID" in os.environ else "one machine"
            raise ConfigError(
                f"{plan}, and this is {here}: start it in a "
                f"Slurm job of {nodes} (`r3l run ... --profile slurm` requests them), or start Ray on "
                f"{nodes} and set {ADDRESS}, {change}"
            )
        if len(visible_gpus()) < each:
            raise ConfigError(
                f"{plan}, but {len(visible_gpus())} are visible here (`r3l doctor --tier paper` shows "
                f"them); run it on a machine with that many, {change}. One GPU trains with --engine local, "
                "and the tiers nano and smol need none"
            )

    def steps_done(self) -> int:
        """Number of training steps in Trinity's newest complete checkpoint; 0 without one."""
        # Trinity writes the number after the files, so a checkpoint with a higher number is incomplete.
        note = self.job / NEWEST
        # It writes in place, so while a run goes on the number may be missing.
        newest = int((note.read_text(encoding="utf-8") if note.is_file() else "") or 0)
        return max((step for step in self._saved() if step <= newest), default=0)

    def finished(self) -> bool:
        """True if the last step's weights are exported, in Trinity's folder or already in our checkpoints."""
        if self.final.is_dir():
            return True
        steps = self.run.train.steps
        return self.steps_done() >= steps and _complete(self._saved()[steps] / self.exported)

    def drop_after(self, step: int) -> None:
        """Delete Trinity's checkpoints of steps after ``step``."""
        # Trinity's trainer also saves after an error, under the number of the step that failed.
        for number, folder in self._saved().items():
            if number > step:
                shutil.rmtree(folder)

    def reset_to(self, step: int) -> None:
        """Delete all of Trinity's checkpoints except the one of ``step``."""
        # A new trainer counts only its own checkpoints in max_checkpoints_to_keep; older ones pile up.
        for number, folder in self._saved().items():
            if number != step:
                shutil.rmtree(folder)

    @contextmanager
    def cluster(self, environment: TrinityEnvironment, config: dict[str, Any], folder: Path) -> Iterator[Ray]:
        """The Ray cluster at $RAY_ADDRESS; else a new one on the nodes of this Slurm job or on this machine.

        A new one ends with the block. ``folder``: for Ray's logs. If a LoRA run resumes, the path of its
        newest adapter is set in ``config``. Raises EngineError if a new one does not start or the job's other
        nodes do not join it; a cluster at $RAY_ADDRESS is not checked.
        """
        # Trinity's sampler does not look for a checkpoint when it starts, so a resumed run names it here.
        done = self.steps_done() if self.run.lora.rank else 0
        if done:
            config["model"]["lora_configs"][0]["path"] = str((self._saved()[done] / ADAPTER).absolute())
        if address := os.environ.get(ADDRESS):
            yield environment.joined(folder, address)
            return
        sizes = sizes_of_node(self.planned)
        if self.planned.nodes == 1:
            with environment.ray(folder, LOOPBACK, sizes) as ray:
                yield ray
            return
        with environment.ray(folder, own_address(), sizes) as ray, joining_nodes(ray, self.planned):
            yield ray

    def losses(self, reported: Mapping[str, float]) -> dict[str, float]:
        """The local engine's loss metrics (loss, its parts, grad_norm), from what the trainer ``reported``.

        The log-prob mismatch (mean, max) and the peak memory of a GPU (``memory/trainer``, GiB) are added if
        they are reported.
        """
        # verl sums actor/loss over micro-batches and averages it over ranks; r3l.trinity.loss compensates
        # for the average in the loss and in its parts.
        ours = {k.removeprefix("actor/"): v for k, v in reported.items() if k.startswith("actor/")}
        parts = {k: v for k, v in ours.items() if k.startswith(("loss/", "clip"))}
        mismatch = {}
        if tokens := ours.get(MISMATCH_TOKENS, 0.0):
            mismatch["logprob_mismatch/mean"] = ours[MISMATCH_SUM] / tokens
            mismatch["logprob_mismatch/max"] = ours[MISMATCH_MAX]
        peak = {"memory/trainer": ours[PEAK]} if PEAK in ours else {}
        return {"loss": ours["loss"], "grad_norm": ours["grad_norm"], **parts, **mismatch, **peak}

    def check_saves(self) -> None:
        """Raise EngineError if a LoRA run's newest saved adapter has no weights; nothing without LoRA."""
        done = self.steps_done() if self.run.lora.rank else 0
        if not done:
            return
        adapter = self._saved()[done] / ADAPTER
        if not _complete(adapter):
            raise EngineError(
                f"the adapter that verl saved in {adapter} is empty or damaged, so what it learns would be "
                "lost: verl 0.8 saves adapters with peft 0.19 and 0.20 only (`make trinity` installs such a "
                f"version, `r3l doctor --tier {self.run.tier}` shows yours)"
            )

    def collect(self) -> Path:
        """Move the exported weights of the last step to our checkpoints; returns that folder.

        The run must be :meth:`finished`. Trinity's own checkpoints, which only resuming needs, are deleted.
        The call can be repeated after a stop.
        """
        if not self.final.is_dir():
            exported = self._saved()[self.run.train.steps] / self.exported
            if self.run.lora.rank:
                lora.adopt(exported, self.adapter)
            else:
                # Drop the kind of attention that verl trained with: without flash-attn the model could not
                # be loaded.
                config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
                kept = {k: v for k, v in config.items() if k.lstrip("_") != "attn_implementation"}
                if kept != config:
                    write_json_atomic(exported / "config.json", kept)
            state = {"step": self.run.train.steps, "fingerprint": self.run.fingerprint(), "totals": {}}
            write_json_atomic(exported / checkpoint.STATE, state)
            write_digests(exported)
            # Rename last: the folder appears complete or not at all, and a stopped run can collect again.
            self.final.parent.mkdir(exist_ok=True)
            os.replace(exported, self.final)
        for folder in self._saved().values():
            shutil.rmtree(folder)
        return self.final

    def _saved(self) -> dict[int, Path]:
        """Trinity's checkpoints by step, complete or not."""
        return {int(folder.name.rpartition("_")[2]): folder for folder in self.job.glob("global_step_*")}


def _complete(exported: Path) -> bool:
    """True if the folder has weights, and each file the tensors and the length that its header states."""
    files = list(exported.glob("*.safetensors"))
    try:
        tensors = 0
        for file in files:
            with safe_open(file, framework="np") as opened:
                tensors += len(opened.keys())
    except SafetensorError:
        return False
    return tensors > 0


def nodes_of_job() -> int:
    """Number of nodes of the Slurm job in which this process runs; 1 outside a job."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if "SLURM_JOB_ID" in os.environ else 1


def own_address() -> str:
    """This node's IP address for other nodes: the address of the default route, as Ray itself finds it.

    Without a route it is the address of the host name.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))  # sends nothing, since the socket is a datagram socket
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def sizes_of_node(planned: ClusterConfig) -> dict[str, int]:
    """GPUs and CPUs (16 per GPU) of each node, as options of `ray start`: num-gpus, num-cpus."""
    return {"num-gpus": planned.gpus_per_node, "num-cpus": CPUS_PER_GPU * planned.gpus_per_node}


@contextmanager
def joining_nodes(ray: Ray, planned: ClusterConfig) -> Iterator[None]:
    """Start Ray by `srun` on the Slurm job's other nodes, which join the cluster ``ray`` for the block.

    ``planned``: number of nodes and GPUs per node. Raises EngineError if they do not join.
    """
    # One task on each node but this one, with all resources of the job on that node. --overlap: we are in
    # a step of the job already, and it holds all resources. Without --cpu-bind=none Ray and its children
    # would share a core.
    head = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    others = planned.nodes - 1
    srun = [
        "srun",
        "--overlap",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        f"--nodes={others}",
        f"--ntasks={others}",
        "--ntasks-per-node=1",
        f"--exclude={head}",
    ]
    start = [
        ray.environment.program("ray"),
        "start",
        f"--address={ray.address}",
        "--block",
        *(f"--{k}={v}" for k, v in sizes_of_node(planned).items()),
        "--disable-usage-stats",
    ]
    # The step must not inherit the sizes of the job: srun would request as many nodes and tasks for the step.
    variables = {name: value for name, value in ray.variables.items() if name not in JOB_SIZES}
    with ray.process([*srun, *start], "ray_nodes.log", variables) as joined:
        ray.wait(joined, "ray_nodes.log", planned.nodes)
        yield
