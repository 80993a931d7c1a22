"""The advantage adapter: the groups of a whole step become the rows that the trainer reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trinity.algorithm.advantage_fn import AdvantageFn
from trinity.buffer.operators import ExperienceOperator
from trinity.common.experience import Experience

from r3l.config import Run, build_method, locate, validate
from r3l.core.batching import TrajectoryRow, microbatches, rows_of, trainable_rows
from r3l.core.errors import ConfigError
from r3l.core.files import append_jsonl
from r3l.core.render import load_tokenizer
from r3l.runs import step_metrics
from r3l.runs import trajectory_log as trajectories
from r3l.trinity.experience import Explored, training_batch, unpack


class MethodAdvantage(AdvantageFn, ExperienceOperator):
    """Runs in Trinity's experience pipeline, on everything that one step explored.

    ``experiences``: how many the trainer reads for a step; ``folder``: where trajectories are kept for readers.
    """

    def __init__(self, run: Mapping[str, Any], experiences: int, folder: str) -> None:
        self.run = validate(Run, run, "advantage_fn_args.run")
        self.method = build_method(self.run)
        self.experiences = experiences
        self.file = Path(folder) / trajectories.FILE
        self._decode: trajectories.Decode | None = None

    def __call__(self, exps: list[Experience], **kwargs: Any) -> tuple[list[Experience], dict[str, float]]:
        """As :meth:`process`; the name that Trinity's advantage functions have."""
        return self.process(exps)

    def process(self, exps: list[Experience]) -> tuple[list[Experience], dict[str, float]]:
        """The experiences of a step to those that train, and the step's metrics as the local engine counts them."""
        found = unpack(exps)
        kept = [f for f in found if self.method.keep(f.groups)]
        groups = [group for f in kept for group in f.groups]
        rows = rows_of(self.method, groups, self.run.samples)
        useful = self._weighed(trainable_rows(self.method, rows))
        step = int(exps[0].eid.batch)
        if step in trajectories.kept_steps(self.run.train.steps):
            self._keep(step, kept)
        counters: Counter[str] = Counter({"sampling_rounds": 1})
        for explored in found:
            counters.update(explored.counters)
        metrics = {
            "step": step,
            **step_metrics.of_groups(groups, [t for f in found for t in f.trajectories], len(found) - len(kept)),
            **step_metrics.of_rows(rows),
            **counters,
            "dropped/tasks": self.run.train.tasks_per_step - len(found),
            **step_metrics.of_training(rows, useful),
        }
        return training_batch(useful, self.experiences, exps[0].info["model_version"]), metrics

    def _weighed(self, rows: list[TrajectoryRow]) -> list[TrajectoryRow]:
        """Rows as they train. Trinity's trainers pack as they like: a released micro-batch is one row here."""
        if len(rows) > self.experiences:
            raise ConfigError(
                f"step has {len(rows)} rows that train, but buffer.train_batch_size is {self.experiences}: "
                f"{self.run.method_code} promises too few in max_samples"
            )
        return [row for part in microbatches(rows, 0, self.method.loss_agg) for row in part]

    def _keep(self, step: int, kept: Sequence[Explored]) -> None:
        if self._decode is None:
            self._decode = load_tokenizer(locate(self.run.model)).decode
        tasks, explored = [f.groups for f in kept], [t for f in kept for t in f.trajectories]
        for line in trajectories.lines(self.method, tasks, explored, self._decode):
            append_jsonl(self.file, {"step": step, "method": self.run.method, **line})

    @classmethod
    def compute_in_trainer(cls) -> bool:
        """No: a step's groups are seen together in the pipeline only."""
        return False

    @classmethod
    def default_args(cls) -> dict[str, Any]:
        """None: the configuration names them all (r3l.trinity.config)."""
        return {}
