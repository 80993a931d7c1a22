"""The advantage adapter: turns the groups of a step into the rows that the trainer reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trinity.algorithm.advantage_fn import AdvantageFn
from trinity.buffer.operators import ExperienceOperator
from trinity.common.experience import Experience

from r3l.config import Run, build_method, locate, validate
from r3l.core.batching import rows_of, trainable_rows, weighted_as_released
from r3l.core.errors import ConfigError
from r3l.core.method_validation import keep_checked
from r3l.core.pretrained import load_tokenizer
from r3l.files.json_files import append_jsonl
from r3l.runs import steps, trajectory_log
from r3l.runs.steps import keeping_batch
from r3l.trinity.experience import training_batch, unpack


class MethodAdvantage(AdvantageFn, ExperienceOperator):
    """Operator in Trinity's experience pipeline that computes the method's advantages, one step per call.

    ``run``: the resolved run as a dict; ``experiences``: number of experiences that the trainer reads per
    step; ``folder``: where the trajectory log is written.
    """

    def __init__(self, run: Mapping[str, Any], experiences: int, folder: str) -> None:
        self.run = validate(Run, run, "advantage_fn_args.run")
        self.method = build_method(self.run)
        self.experiences = experiences
        self.file = Path(folder) / trajectory_log.FILE
        self._decode: trajectory_log.Decode | None = None

    def __call__(self, exps: list[Experience], **kwargs: Any) -> tuple[list[Experience], dict[str, float]]:
        """Turn one step's trajectories into training rows (:meth:`process`), in the form Trinity calls."""
        return self.process(exps)

    def process(self, exps: list[Experience]) -> tuple[list[Experience], dict[str, float]]:
        """Turn the collected trajectories of one step (``exps``) into the rows that the trainer reads.

        Returns (exactly ``experiences`` rows, a number given at creation, with advantages, padded with empty
        ones; the step's metrics, under the local engine's names). Writes to the trajectory log in the steps
        that are logged. Raises ConfigError if the step has more rows than the trainer reads, EngineError if
        most rollouts ended in the environment's own error, NonFiniteError (rows are kept in a file) for a
        number that is not finite.
        """
        # The method may drop a task, for example if all of its rewards are equal.
        tasks = unpack(exps)
        accepted = [collected for collected in tasks if keep_checked(self.method, collected.groups)]
        groups = [group for collected in accepted for group in collected.groups]
        trajectories = [trajectory for collected in tasks for trajectory in collected.trajectories]

        step = int(exps[0].eid.batch)
        steps.check_failed_episodes(self.run, step, trajectories)

        # Weights of tokens. Trinity's trainers choose their own micro-batches, so for methods whose
        # weights depend on them a micro-batch is one row (a budget of 1). If a number is not finite, the
        # rows are kept on disk.
        rows = rows_of(self.method, groups, self.run.samples)
        with keeping_batch(self.run, step, self.file.parent, rows):
            trainable = trainable_rows(self.method, rows)
            if len(trainable) > self.experiences:
                raise ConfigError(
                    f"step has {len(trainable)} rows that train, but buffer.train_batch_size is "
                    f"{self.experiences}: {self.run.method_code} promises too few in max_samples"
                )
            if self.method.loss_agg == "microbatch_released":
                trainable = weighted_as_released(trainable, 1)

        # Log and metrics: counters come from the runners, one set per task.
        if step in trajectory_log.logged_steps(self.run.train.steps):
            if self._decode is None:
                self._decode = load_tokenizer(locate(self.run.model)).decode
            in_groups = [collected.groups for collected in accepted]
            played = [trajectory for collected in accepted for trajectory in collected.trajectories]
            for line in trajectory_log.lines(self.method, in_groups, played, self._decode):
                append_jsonl(self.file, {"step": step, "method": self.run.method, **line})
        counters: Counter[str] = Counter({"sampling_rounds": 1})
        for collected in tasks:
            counters.update(collected.counters)
        metrics = {
            "step": step,
            **steps.group_metrics(groups, trajectories, len(tasks) - len(accepted)),
            **steps.row_metrics(rows),
            **counters,
            "dropped/tasks": self.run.train.tasks_per_step - len(tasks),
            **steps.update_metrics(rows, trainable),
        }
        return training_batch(trainable, self.experiences, exps[0].info["model_version"]), metrics

    @classmethod
    def compute_in_trainer(cls) -> bool:
        """False: Trinity computes advantages in the pipeline, where all groups of a step are together."""
        return False

    @classmethod
    def default_args(cls) -> dict[str, Any]:
        """{}: Trinity adds no arguments, since the configuration names them all (r3l.trinity.config)."""
        return {}
