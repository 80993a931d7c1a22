"""The backend without GPUs: Trinity's tinker trainer; weights, optimiser and checkpoints live in this process.

The Learner is the local engine's model; the Server offers it to Trinity by the Tinker protocol.
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
from r3l.trinity.learner import Learner
from r3l.trinity.processes import LOOPBACK, Environment, Ray
from r3l.trinity.server import Server
from r3l.trinity.sizes import experiences_per_step

SIZES = {
    "num-cpus": 16,  # more than there are: Ray's actors hold one each and mostly wait
    "object-store-memory": 300_000_000,  # bytes; our choice, far above a step's experiences at nano
}


class Tinker:
    """A backend of r3l.trinity.engine."""

    def __init__(self, run: Run, run_dir: Path, job: Path) -> None:
        self.run, self.run_dir, self.job = run, run_dir, job
        self.checkpoints = run_dir / "checkpoints"

    @cached_property
    def learner(self) -> Learner:
        """Loaded from the newest checkpoint when it is first needed."""
        return Learner(self.run, self.run_dir)

    def check(self, environment: Environment) -> None:
        """Nothing is needed beyond the environment."""

    def steps_done(self) -> int:
        """Steps that the newest checkpoint has seen."""
        start = checkpoint.last_good(self.checkpoints)
        return int(checkpoint.read_state(start, self.run.fingerprint())["step"]) if start else 0

    def finished(self) -> bool:
        """Whether the last step's checkpoint is there."""
        return self.steps_done() >= self.run.train.steps

    def drop_after(self, step: int) -> None:
        """Delete checkpoints of later steps."""
        for folder in self.checkpoints.glob("step-*"):
            if folder.name > checkpoint.name_of(step):
                shutil.rmtree(folder)

    def reset_to(self, step: int) -> None:
        """Name our checkpoint in the file where this trainer looks for its own."""
        path = self.job / f"global_step_{step}" / "remote_checkpoint_path.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"tinker://run/weights/{checkpoint.name_of(step)}", encoding="utf-8")

    @contextmanager
    def cluster(self, environment: Environment, config: dict[str, Any], folder: Path) -> Iterator[Ray]:
        """Our server and a Ray of one node; ``config`` gets the server's address."""
        with Server(self.learner, locate(self.run.model)) as server:
            config["model"]["tinker"]["base_url"] = server.url
            variables = {"TINKER_API_KEY": server.key, "TINKER_BASE_URL": server.url}
            with environment.ray(folder, LOOPBACK, SIZES, variables) as ray:
                yield ray

    def losses(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Loss metrics of a step: the trainer averages them over all experiences, empty ones too, while ours add up."""
        experiences = experiences_per_step(self.run, build_method(self.run))
        loss = {k.removeprefix("actor/"): v * experiences for k, v in reported.items() if k.startswith("actor/")}
        return {**{"loss" if k == "final_loss" else k: v for k, v in loss.items()}, "grad_norm": reported["grad_norm"]}

    def collect(self) -> Path:
        """The last checkpoint, which is there already; for a run without steps the base checkpoint."""
        return checkpoint.last_good(self.checkpoints) or self.learner.save()
