"""``r3l bench step``: one real step (collect and update) by phase, beside the reference pass of transformers.

``packed``: the default. ``transformers``: its forward pass, rows padded, with kept caches.
Both draw from the same addresses and start from the same weights, so they play the same episodes but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from r3l.bench.measuring import clock, machine, matrix_rate_of
from r3l.bench.stopwatch import timing
from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import rows_of
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.local.cpu import use_onednn
from r3l.local.engine import collect, trainer_of
from r3l.local.session import LocalSession, open_session, policy_of
from r3l.local.training.trainer import Trainer

Arm = Literal["packed", "transformers"]
ARMS: tuple[Arm, ...] = get_args(Arm)
Report = dict[str, Any]


def bench_step(run: Run, repeats: int) -> Report:
    """Time steps 1 to ``repeats`` of ``run`` in both ways in turn. Seconds are medians over the steps, and so is their
    ratio. ``phases``: seconds of each phase of the packed pass, from further steps that are not timed as a whole.
    """
    if run.compute == "vllm":
        raise ConfigError("r3l bench step compares forward passes of torch: leave compute=vllm out (r3l bench train)")
    with open_session(run, base_checkpoint_of(run), trains=True, forward="transformers") as session:
        tasks = session.package.tasks(run.env_settings.train_task_set)
        of_arms = {arm: _Arm(session, arm, tasks) for arm in ARMS}
        for of_arm in of_arms.values():
            of_arm.step(1)  # engines start, caches of simulators fill
        seconds: dict[Arm, list[Report]] = {arm: [] for arm in ARMS}
        for number in range(1, repeats + 1):
            for arm in ARMS if number % 2 else reversed(ARMS):
                seconds[arm].append(of_arms[arm].step(number))
        device, dtype = session.model.device, session.model.dtype
        arms = {arm: _medians(of_arm) for arm, of_arm in seconds.items()}
        return {
            "cell": run.cell,
            "device": str(device),
            "dtype": str(dtype),
            "repeats": repeats,
            "seconds": arms["packed"]["seconds/step"],
            "arms": arms,
            "seconds_ratio": ratio_of(seconds["transformers"], seconds["packed"]),
            "phases": of_arms["packed"].phases(repeats),
            "flop_per_s": matrix_rate_of(device, dtype),
            "machine": machine(),
        }


def ratio_of(steps: Sequence[Report], to: Sequence[Report]) -> float:
    """The median over steps of the ratio of their seconds, each with the same step of the other arm: steps differ in
    work, so medians of the arms may be of different ones."""
    return float(np.median([a["seconds/step"] / b["seconds/step"] for a, b in zip(steps, to, strict=True)]))


class _Arm:
    """One way to compute steps, on a session of its own view; the weights are put back after each step."""

    def __init__(self, session: LocalSession, arm: Arm, tasks: Sequence[Task]) -> None:
        run = session.run.model_copy(update={"compute": arm})
        policy = policy_of(run, session.model, session.tokenizer)
        self._session = replace(session, run=run, policy=policy, gather=policy.barrier.gather)
        self._method, self._tasks = build_method(run), tasks
        self._weights = {name: value.clone() for name, value in session.model.state_dict().items()}

    def step(self, number: int) -> Report:
        """Seconds of collecting and of training step ``number``, and what was played in it."""
        trainer = self._trainer()
        began = clock()
        collected = collect(self._session, self._method, self._tasks, number)
        middle = clock()
        metrics = trainer.step(rows_of(self._method, collected.groups, self._session.run.samples))
        ended = clock()
        self._session.model.load_state_dict(self._weights)
        return {
            "seconds/collect": middle - began,
            "seconds/train": ended - middle,
            "seconds/step": ended - began,
            "tokens/generated": collected.ctx.counters["tokens/generated"],
            "rollouts": collected.ctx.counters["rollouts"],
            "logprob_mismatch/mean": metrics.get("logprob_mismatch/mean", 0.0),
        }

    def phases(self, repeats: int) -> dict[str, float]:
        """Seconds of a step by phase, ``collect/`` and ``train/``; medians."""
        rounds = [self._timed_step(number) for number in range(1, repeats + 1)]
        names = sorted({name for of_step in rounds for name in of_step})
        return {name: float(np.median([of_step.get(name, 0.0) for of_step in rounds])) for name in names}

    def _timed_step(self, number: int) -> dict[str, float]:
        trainer, seconds = self._trainer(), dict[str, float]()
        with timing(self._session.loop) as watch:
            collected = collect(self._session, self._method, self._tasks, number)
        seconds |= {f"collect/{phase}": value for phase, value in watch.seconds.items()}
        with timing(self._session.loop) as watch:
            trainer.step(rows_of(self._method, collected.groups, self._session.run.samples))
        self._session.model.load_state_dict(self._weights)
        return seconds | {f"train/{phase}": value for phase, value in watch.seconds.items()}

    def _trainer(self) -> Trainer:
        use_onednn(self._session.run.compute == "packed")
        return trainer_of(self._session, self._method)


def _medians(steps: Sequence[Report]) -> Report:
    return {name: float(np.median([step[name] for step in steps])) for name in steps[0]}
