"""The backend on GPUs: Trinity's verl trainer with its own checkpoints; the last one is exported for transformers.

A run takes all GPUs that configs/models plans for its model: those of this machine, of the Slurm job that it is
started in (one node or several), or of the Ray cluster that $RAY_ADDRESS names.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from r3l.config import ClusterConfig, Run
from r3l.core.errors import ConfigError
from r3l.files.digests import write_digests
from r3l.files.writing import write_json_atomic
from r3l.local import checkpoint
from r3l.local.model import lora
from r3l.runs.gpu_locks import visible_gpus
from r3l.trinity.job import NEWEST
from r3l.trinity.processes import LOOPBACK, Environment, Ray

ADDRESS = "RAY_ADDRESS"
CPUS_PER_GPU = 16  # as told to Ray: verl books 3 for each of its GPUs, and waits for ever where there are fewer
JOB_SIZES = ("SLURM_GPUS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES")  # srun would ask for a step as large
EXPORTED = Path("actor", "huggingface")  # of a checkpoint: verl 0.8, fsdp_checkpoint_manager.py
ADAPTER = Path("actor", "lora_adapter")  # with LoRA: Trinity 0.6.0, trainer/verl/workers.py


class Verl:
    """A backend of r3l.trinity.engine."""

    def __init__(self, run: Run, run_dir: Path, job: Path, planned: ClusterConfig, adapter: Path) -> None:
        self.run, self.job, self.planned, self.adapter = run, job, planned, adapter
        self.exported = ADAPTER if run.lora.rank else EXPORTED
        self.checkpoints = run_dir / "checkpoints"

    def check(self, environment: Environment) -> None:
        """Raises ConfigError where the planned GPUs are not here."""
        nodes, each = self.planned.nodes, self.planned.gpus_per_node
        plan = f"model {self.run.model!r} trains on {nodes} x {each} GPUs (nodes x GPUs, configs/models)"
        change = "or plan other nodes, GPUs and engines in `cluster` there"
        if address := os.environ.get(ADDRESS):
            gpus = environment.gpus_of(address)
            if gpus < nodes * each:
                raise ConfigError(f"{plan}, but the Ray cluster at {ADDRESS}={address} has {gpus}; add some, {change}")
            return
        if nodes_of_job() != nodes:
            here = f"a Slurm job with {nodes_of_job()}" if "SLURM_JOB_ID" in os.environ else "one machine"
            raise ConfigError(
                f"{plan}, and this is {here}: start it in a "
                f"Slurm job of {nodes} (`r3l run ... --profile slurm` asks for them), or start Ray on {nodes} and set "
                f"{ADDRESS}, {change}"
            )
        if len(visible_gpus()) < each:
            raise ConfigError(
                f"{plan}, but {len(visible_gpus())} are visible here (`r3l doctor --tier paper` shows them); run it "
                f"where there are as many, {change}. Without a GPU there are the tiers nano and smol"
            )

    def steps_done(self) -> int:
        """Steps of Trinity's newest complete checkpoint; it writes the number after the files."""
        note = self.job / NEWEST
        newest = int(note.read_text(encoding="utf-8")) if note.is_file() else 0
        return max((step for step in self._saved() if step <= newest), default=0)

    def finished(self) -> bool:
        """Whether the weights of the last step have been exported, moved to our checkpoints or not yet."""
        steps = self.run.train.steps
        return self._final().is_dir() or (self.steps_done() >= steps and _whole(self._saved()[steps] / self.exported))

    def drop_after(self, step: int) -> None:
        """Delete checkpoints of later steps.

        Trinity's trainer also saves after an error, under the number of the step that failed.
        """
        for number, folder in self._saved().items():
            if number > step:
                shutil.rmtree(folder)

    def reset_to(self, step: int) -> None:
        """Keep one checkpoint: Trinity forgets to delete those that it did not write in the same process."""
        for number, folder in self._saved().items():
            if number != step:
                shutil.rmtree(folder)

    @contextmanager
    def cluster(self, environment: Environment, config: dict[str, Any], folder: Path) -> Iterator[Ray]:
        """The Ray cluster that $RAY_ADDRESS names; else one on the nodes of this job, or on this machine."""
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
        """Loss metrics of a step.

        ``actor/loss`` is summed over micro-batches and averaged over ranks, for which r3l.trinity.loss compensates, so
        it is the step's loss. The loss's own metrics are means over micro-batches, and named so.
        """
        parts = {k: v for k, v in reported.items() if k.startswith(("actor/loss/", "actor/clip"))}
        means = {f"microbatch/{k.removeprefix('actor/')}": v for k, v in parts.items()}
        return {"loss": reported["actor/loss"], "grad_norm": reported["actor/grad_norm"], **means}

    def collect(self) -> Path:
        """Move the exported weights to our checkpoints. Trinity's own are deleted: only resuming needs them."""
        final = self._final()
        if not final.is_dir():
            exported = self._saved()[self.run.train.steps] / self.exported
            if self.run.lora.rank:
                lora.adopt(exported, self.adapter)
            state = {"step": self.run.train.steps, "fingerprint": self.run.fingerprint(), "totals": {}}
            write_json_atomic(exported / checkpoint.STATE, state)
            write_digests(exported)
            final.parent.mkdir(exist_ok=True)
            os.replace(exported, final)
        for folder in self._saved().values():
            shutil.rmtree(folder)
        return final

    def _final(self) -> Path:
        return self.checkpoints / checkpoint.name_of(self.run.train.steps)

    def _saved(self) -> dict[int, Path]:
        return {int(folder.name.rpartition("_")[2]): folder for folder in self.job.glob("global_step_*")}


def _whole(exported: Path) -> bool:
    """Whether there are weights and all are complete: their headers say how long files are."""
    files = list(exported.glob("*.safetensors"))
    try:
        for file in files:
            with safe_open(file, framework="np"):
                pass
    except SafetensorError:
        return False
    return bool(files)


def nodes_of_job() -> int:
    """Nodes of the Slurm job; 1 outside of one."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if "SLURM_JOB_ID" in os.environ else 1


def own_address() -> str:
    """The address under which other nodes reach this one: that of the default route, as Ray itself finds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def sizes_of_node(planned: ClusterConfig) -> dict[str, int]:
    """What Ray is told of each node."""
    return {"num-gpus": planned.gpus_per_node, "num-cpus": CPUS_PER_GPU * planned.gpus_per_node}


@contextmanager
def joining_nodes(ray: Ray, planned: ClusterConfig) -> Iterator[None]:
    """The job's other nodes belong to ``ray`` until the end of the block; `srun` starts Ray there.

    Raises EngineError where they do not join.
    """
    head = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    command = join_command(ray.environment.program("ray"), ray.address, planned, head)
    with ray.process(command, "ray_nodes.log", step_variables(ray.variables)) as others:
        ray.wait(others, "ray_nodes.log", planned.nodes)
        yield


def join_command(ray: str, address: str, planned: ClusterConfig, head: str) -> list[str]:
    """Starts ``ray`` once on each node of the job but ``head``, with all that the job has there.

    ``--overlap``: this command runs in a step of the job already, which holds everything. Without ``--cpu-bind=none``
    Ray and all that it starts would share one core.
    """
    others = planned.nodes - 1
    step = [f"--nodes={others}", f"--ntasks={others}", "--ntasks-per-node=1", f"--exclude={head}"]
    start = [
        ray,
        "start",
        f"--address={address}",
        "--block",
        *(f"--{k}={v}" for k, v in sizes_of_node(planned).items()),
    ]
    return ["srun", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1", *step, *start, "--disable-usage-stats"]


def step_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """What the step inherits: everything but the sizes of the whole job."""
    return {name: value for name, value in variables.items() if name not in JOB_SIZES}
