"""The backend for CPUs: Trinity's tinker trainer, with weights, optimizer and checkpoints in this process.

The Learner is the local engine's model; the Server exposes it to Trinity through the Tinker protocol.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from r3l.config import Run, build_method, locate
from r3l.local import checkpoint
from r3l.runs.run_dir import CHECKPOINTS
from r3l.trinity.learner import Learner
from r3l.trinity.processes import LOOPBACK, Ray, TrinityEnvironment
from r3l.trinity.server import Server
from r3l.trinity.sizes import experiences_per_step

SIZES = {
    "num-cpus": 16,  # more than the machine may have: each of Ray's actors reserves one and mostly waits
    "object-store-memory": 300_000_000,  # bytes; our choice, far above a step's experiences at nano
}


class Tinker:
    """Backend (r3l.trinity.engine) for machines without GPUs: our own Learner trains, behind a Server.

    ``job``: Trinity's folder of the run; checkpoints are in ``run_dir/checkpoints``.
    """

    def __init__(self, run: Run, run_dir: Path, job: Path) -> None:
        self.run = run
        self.run_dir = run_dir
        self.job = job
        self.checkpoints = run_dir / CHECKPOINTS

    @cached_property
    def learner(self) -> Learner:
        """The model, loaded from the newest checkpoint at first use and kept."""
        return Learner(self.run, self.run_dir)

    def check(self, environment: TrinityEnvironment) -> None:
        """Nothing to check: a CPU run needs only Trinity's environment, which exists."""

    def steps_done(self) -> int:
        """Number of training steps in the newest good checkpoint; 0 without one.

        Raises CheckpointError if all are damaged, or of another run.
        """
        start = checkpoint.last_good(self.checkpoints)
        return int(checkpoint.read_state(start, self.run.fingerprint())["step"]) if start else 0

    def finished(self) -> bool:
        """True if the last step's checkpoint exists; CheckpointError as in :meth:`steps_done`."""
        return self.steps_done() >= self.run.train.steps

    def drop_after(self, step: int) -> None:
        """Delete checkpoints of steps after ``step``."""
        for folder in self.checkpoints.glob("step-*"):
            if folder.name > checkpoint.name_of(step):
                shutil.rmtree(folder)

    def reset_to(self, step: int) -> None:
        """Write the name of our checkpoint of ``step`` into the file where Trinity's trainer looks for it."""
        path = self.job / f"global_step_{step}" / "remote_checkpoint_path.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"tinker://run/weights/{checkpoint.name_of(step)}", encoding="utf-8")

    @contextmanager
    def cluster(self, environment: TrinityEnvironment, config: dict[str, Any], folder: Path) -> Iterator[Ray]:
        """Start r3l's own Tinker server, whose model trains on this machine, and a Ray cluster of one node.

        Writes the server's address into ``config``. Both end with the block.
        """
        with Server(self.learner, locate(self.run.model)) as server:
            config["model"]["tinker"]["base_url"] = server.url
            variables = {"TINKER_API_KEY": server.key, "TINKER_BASE_URL": server.url}
            with environment.ray(folder, LOOPBACK, SIZES, variables) as ray:
                yield ray

    def losses(self, reported: Mapping[str, float]) -> dict[str, float]:
        """The loss metrics of a step as the local engine logs them, from what Trinity ``reported``.

        ``actor/NAME`` is a mean over the step's experiences; NAME becomes their sum, ``final_loss`` being
        ``loss``. ``grad_norm`` stays as it is, and nothing else is kept.
        """
        # Trinity's means are over all experiences, also over the empty ones that pad a step.
        experiences = experiences_per_step(self.run, build_method(self.run))
        metrics = {}
        for key, mean in reported.items():
            if key.startswith("actor/"):
                name = key.removeprefix("actor/")
                metrics["loss" if name == "final_loss" else name] = mean * experiences
        return {**metrics, "grad_norm": reported["grad_norm"]}

    def check_saves(self) -> None:
        """Nothing to check: the local engine writes these checkpoints, complete or not at all."""

    def collect(self) -> Path:
        """The folder of the last checkpoint; for a run without steps the base checkpoint is saved now."""
        return checkpoint.last_good(self.checkpoints) or self.learner.save()
