"""Ray on every node of a Slurm job: its head is started here, the others by `srun`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from r3l.config import ClusterConfig
from r3l.trinity.processes import Ray

CPUS_PER_GPU = 16  # that Ray is told of: verl books 3 for each of its GPUs, and waits for ever where there are fewer
OF_THE_JOB = ("SLURM_GPUS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES")  # srun would ask for a step as large


def inside() -> bool:
    """Whether this is a Slurm job."""
    return "SLURM_JOB_ID" in os.environ


def nodes() -> int:
    """How many nodes the job has; outside of one there is this machine."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if inside() else 1


def own_address() -> str:
    """The address under which other nodes reach this one: that of the default route, as Ray itself finds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def sizes(planned: ClusterConfig) -> dict[str, int]:
    """What Ray is told of a node."""
    return {"num-gpus": planned.gpus_per_node, "num-cpus": CPUS_PER_GPU * planned.gpus_per_node}


@contextmanager
def joining(ray: Ray, planned: ClusterConfig) -> Iterator[None]:
    """The other nodes belong to ``ray`` until the end of the block. Raises EngineError where they do not come."""
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
    start = [ray, "start", f"--address={address}", "--block", *(f"--{k}={v}" for k, v in sizes(planned).items())]
    return ["srun", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1", *step, *start, "--disable-usage-stats"]


def step_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """What the step inherits: not the sizes of the whole job."""
    return {name: value for name, value in variables.items() if name not in OF_THE_JOB}
