"""``r3l bench step``: one real step (collect and update) by the engine, by phase, beside other ways to compute it.

``fused``: the engine's own forward pass, ``packed``: the same by torch's operations alone (both of docs/engine.md).
``transformers``: that of transformers, padded, with kept caches.
``reencoded``: the same without caches, as trainers do that ask a generate function for each turn of a dialog. All draw
from the same addresses and start from the same weights, so they play the same episodes but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from r3l.bench.operations import counted
from r3l.bench.rollout import clock
from r3l.bench.roofline import bandwidth_of, matrix_rate_of
from r3l.bench.stopwatch import timing
from r3l.config import Run, build_method, start_of
from r3l.core.batching import rows_of
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.local.engine import collect, trainer_of
from r3l.local.forward import forward_of
from r3l.local.products import use_onednn
from r3l.local.session import Session, open_session, policy_of
from r3l.local.trainer import Trainer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arm = Literal["fused", "packed", "transformers", "reencoded"]
ARMS: tuple[Arm, ...] = get_args(Arm)
Report = dict[str, Any]
COMPUTING = ("layers", "attention", "vocabulary", "backward")  # phases whose work is matrix products


def bench_step(run: Run, repeats: int, arms: Sequence[Arm] = ARMS) -> Report:
    """Time steps 1 to ``repeats`` of ``run`` in each of ``arms`` in turn. Seconds are medians over the steps, and so
    are their ratios to the first arm.

    ``phases`` and ``limit`` are of the first arm, from further steps that are not timed as a whole: seconds of each
    phase, and the share of this machine's measured matrix rate that its products reached.
    """
    if run.compute == "vllm":
        raise ConfigError("r3l bench step compares forward passes of torch: leave compute=vllm out (r3l bench train)")
    with open_session(run, start_of(run), trains=True, forward="transformers") as session:
        tasks = session.package.tasks(run.env_settings.train_task_set)
        of_arms = {arm: _Arm(session, arm, tasks) for arm in arms}
        for of_arm in of_arms.values():
            of_arm.step(1)  # engines start, caches of simulators fill
        seconds: dict[Arm, list[Report]] = {arm: [] for arm in arms}
        for number in range(1, repeats + 1):
            for arm in arms if number % 2 else reversed(arms):
                seconds[arm].append(of_arms[arm].step(number))
        first = of_arms[arms[0]]
        report: Report = {
            "cell": run.cell,
            "device": str(session.model.device),
            "repeats": repeats,
            "arms": {arm: _medians(of_arm) for arm, of_arm in seconds.items()},
            "phases": first.phases(repeats),
            "limit": first.limit(repeats),
        }
    return report | {"seconds_ratio": {arm: ratio_of(seconds[arm], seconds[arms[0]]) for arm in arms}}


def ratio_of(steps: Sequence[Report], to: Sequence[Report]) -> float:
    """The median over steps of the ratio of their seconds, each with the same step of the other arm: steps differ in
    work, so medians of the arms may be of different ones."""
    return float(np.median([a["seconds/step"] / b["seconds/step"] for a, b in zip(steps, to, strict=True)]))


class _Arm:
    """One way to compute steps, on a session of its own view; the weights are put back after each step."""

    def __init__(self, session: Session, arm: Arm, tasks: Sequence[Task]) -> None:
        forward: Any = "transformers" if arm == "reencoded" else arm
        run = session.run.model_copy(update={"compute": "transformers" if forward == "transformers" else "packed"})
        policy = policy_of(run, session.model, session.tokenizer, None, use_cache=arm != "reencoded")
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

    def limit(self, repeats: int) -> Report:
        """Operations of step 1 by kind, the rates of this machine, and the share of them that the products reach."""
        device, counted = self._session.model.device, self._operations()
        rate = matrix_rate_of(device, self._session.model.dtype)
        rounds = [self._timed_step(1) for _ in range(repeats)]
        least = {part: sum(kinds.values()) / rate for part, kinds in counted.items()}
        taken = {part: float(np.median([_computing(of_step, part) for of_step in rounds])) for part in counted}
        return {
            "flop": counted,
            "flop_per_s": rate,
            "bytes_per_s": bandwidth_of(device),
            "least_seconds": least,
            "share_of_matrix_rate": {part: least[part] / taken[part] for part in least},
        }

    def _operations(self) -> dict[str, dict[str, int]]:
        trainer = self._trainer()
        with counted() as collecting:
            collected = collect(self._session, self._method, self._tasks, 1)
        rows = rows_of(self._method, collected.groups, self._session.run.samples)
        with counted() as training:
            trainer.step(rows)
        self._session.model.load_state_dict(self._weights)
        return {"collect": collecting, "train": training}

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
        use_onednn(forward_of(self._session.run) == "fused")
        return trainer_of(self._session, self._method)


def _computing(seconds: Mapping[str, float], part: str) -> float:
    return sum(seconds.get(f"{part}/{phase}", 0.0) for phase in COMPUTING)


def _medians(steps: Sequence[Report]) -> Report:
    return {name: float(np.median([step[name] for step in steps])) for name in steps[0]}


def draw(report: Report) -> Figure:
    """The phases of a step, and the seconds of each arm, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.8), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, width_ratios=[2, 3])
    arms = list(report["arms"])
    collect_s, train_s = ([report["arms"][arm][f"seconds/{part}"] for arm in arms] for part in ("collect", "train"))
    left.barh(arms, collect_s, label="collect", color="#4477AA")
    left.barh(arms, train_s, left=collect_s, label="train", color="#EE6677")
    left.set_xlabel("seconds of a step")
    left.invert_yaxis()
    left.legend(frameon=False, fontsize=7)
    phases = sorted(((name, value) for name, value in report["phases"].items() if value > 0), key=lambda x: -x[1])
    right.barh([name for name, _ in phases], [value for _, value in phases], color="#777777")
    right.set_xlabel(f"seconds of a step by phase ({arms[0]})")
    right.invert_yaxis()
    for axes in (left, right):
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    shares = report["limit"]["share_of_matrix_rate"]
    reached = ", ".join(f"{part} {100 * share:.0f} %" for part, share in shares.items())
    figure.suptitle(f"{report['cell']}: products reach {reached} of the measured matrix rate", fontsize=8)
    return figure
