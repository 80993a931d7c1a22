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
from r3l.core.pretrained import load_tokenizer
from r3l.core.validation import kept
from r3l.files.json_files import append_jsonl
from r3l.runs import steps, trajectory_log
from r3l.runs.steps import keeping_batch
from r3l.trinity.experience import CollectedTask, training_batch, unpack


class MethodAdvantage(AdvantageFn, ExperienceOperator):
    """Runs in Trinity's experience pipeline, on everything that one step collected.

    ``experiences``: how many the trainer reads for a step; ``folder``: where trajectories are kept for readers.
    """

    def __init__(self, run: Mapping[str, Any], experiences: int, folder: str) -> None:
        self.run = validate(Run, run, "advantage_fn_args.run")
        self.method = build_method(self.run)
        self.experiences = experiences
        self.file = Path(folder) / trajectory_log.FILE
        self._decode: trajectory_log.Decode | None = None

    def __call__(self, exps: list[Experience], **kwargs: Any) -> tuple[list[Experience], dict[str, float]]:
        """As :meth:`process`; the name that Trinity's advantage functions have."""
        return self.process(exps)

    def process(self, exps: list[Experience]) -> tuple[list[Experience], dict[str, float]]:
        """The experiences that train, made from those of a step, and its metrics as the local engine counts them."""
        tasks = unpack(exps)
        accepted = [collected for collected in tasks if kept(self.method, collected.groups)]
        groups = [group for collected in accepted for group in collected.groups]
        played = [trajectory for collected in tasks for trajectory in collected.trajectories]
        rows = rows_of(self.method, groups, self.run.samples)
        step = int(exps[0].eid.batch)
        with keeping_batch(self.run, step, self.file.parent, rows):
            trainable = self._weighed(trainable_rows(self.method, rows))
        if step in trajectory_log.logged_steps(self.run.train.steps):
            self._log_trajectories(step, accepted)
        counters: Counter[str] = Counter({"sampling_rounds": 1})
        for collected in tasks:
            counters.update(collected.counters)
        metrics = {
            "step": step,
            **steps.group_metrics(groups, played, len(tasks) - len(accepted)),
            **steps.row_metrics(rows),
            **counters,
            "dropped/tasks": self.run.train.tasks_per_step - len(tasks),
            **steps.update_metrics(rows, trainable),
        }
        return training_batch(trainable, self.experiences, exps[0].info["model_version"]), metrics

    def _weighed(self, rows: list[TrajectoryRow]) -> list[TrajectoryRow]:
        """With weights. Trinity's trainers choose their micro-batches, so a released micro-batch is one row here."""
        if len(rows) > self.experiences:
            raise ConfigError(
                f"step has {len(rows)} rows that train, but buffer.train_batch_size is {self.experiences}: "
                f"{self.run.method_code} promises too few in max_samples"
            )
        return [row for part in microbatches(rows, 0, self.method.loss_agg) for row in part]

    def _log_trajectories(self, step: int, accepted: Sequence[CollectedTask]) -> None:
        if self._decode is None:
            self._decode = load_tokenizer(locate(self.run.model)).decode
        groups = [collected.groups for collected in accepted]
        played = [trajectory for collected in accepted for trajectory in collected.trajectories]
        for line in trajectory_log.lines(self.method, groups, played, self._decode):
            append_jsonl(self.file, {"step": step, "method": self.run.method, **line})

    @classmethod
    def compute_in_trainer(cls) -> bool:
        """No: a step's groups are seen together in the pipeline only."""
        return False

    @classmethod
    def default_args(cls) -> dict[str, Any]:
        """None: the configuration names them all (r3l.trinity.config)."""
        return {}
