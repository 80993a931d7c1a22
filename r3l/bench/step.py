"""``r3l bench step``: one real step (collect and update) by phase, compared with transformers' forward pass.

``packed``: the engine's default. ``transformers``: its forward pass, rows padded, with kept caches. Both draw
from the same addresses and start from the same weights, so they play the same episodes up to rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, get_args
from unittest.mock import patch

import numpy as np

from r3l.bench.measuring import bandwidth_of, clock, machine, matrix_rate_of
from r3l.bench.products import ProductCounter
from r3l.bench.stopwatch import timing
from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import rows_of
from r3l.core.errors import ConfigError
from r3l.core.policy import Phase
from r3l.core.task import Task
from r3l.local.cpu import use_onednn
from r3l.local.engine import collect, score, trainer_of
from r3l.local.sampling.decoding import GenerationRequest
from r3l.local.session import LocalSession, open_session, policy_of
from r3l.local.training.trainer import Trainer
from r3l.runs.gpu_locks import reserved_gpu

Arm = Literal["packed", "transformers"]
ARMS: tuple[Arm, ...] = get_args(Arm)
Report = dict[str, Any]
# Parts of a step that multiply matrices: scoring of teachers' contexts and the update, sampling by purpose.
PARTS = ("score", "update")
SAMPLING_PARTS = tuple(map(str, Phase))


def bench_step(run: Run, repeats: int) -> Report:
    """Time steps 1 to ``repeats`` of ``run``, after one to warm up, with both forward passes of the module.

    Returns ``arms`` (by pass: medians of seconds, tokens and rollouts), ``seconds`` of a step with the packed
    pass, ``seconds_ratio`` (transformers over packed), ``phases`` (seconds by phase of the packed pass, from
    further steps that are not timed as a whole), ``limits`` (of the packed pass: what each part of step 1
    needs of this machine, :meth:`_ArmBench.limits`), and a description of the machine: ``flop_per_s`` of a
    large product of matrices, ``bytes_per_s`` of a large copy, and others. The weights are the same in every
    step. Prints the seconds of each step on stderr as it ends. Waits for a GPU, unless device is cpu. Raises
    ConfigError for compute=vllm, else ConfigError or CheckpointError as r3l.local.session.open_session does.
    """
    if run.compute == "vllm":
        raise ConfigError(
            "r3l bench step compares forward passes of torch: leave compute=vllm out (r3l bench train has it)"
        )
    with (
        reserved_gpu(run.device),
        open_session(run, base_checkpoint_of(run), trains=True, forward_pass="transformers") as session,
    ):
        tasks = session.package.tasks(run.env_settings.train_task_set)

        # Warm up: engines start, caches of simulators fill.
        benches = {arm: _ArmBench(session, arm, tasks) for arm in ARMS}
        for arm, bench in benches.items():
            _tell("warm-up", arm, bench.step(1))

        # The arms take turns, in alternating order, so that a change in the machine's load meets both alike.
        steps: dict[Arm, list[Report]] = {arm: [] for arm in ARMS}
        for number in range(1, repeats + 1):
            for arm in ARMS if number % 2 else reversed(ARMS):
                steps[arm].append(benches[arm].step(number))
                _tell(f"step {number}", arm, steps[arm][-1])

        medians: dict[Arm, Report] = {}
        for arm, of_arm in steps.items():
            medians[arm] = {name: float(np.median([step[name] for step in of_arm])) for name in of_arm[0]}
        device = session.model.device
        dtype = session.model.dtype
        rates = {"flop_per_s": matrix_rate_of(device, dtype), "bytes_per_s": bandwidth_of(device)}
        return {
            "cell": run.cell,
            "device": str(device),
            "dtype": str(dtype),
            "repeats": repeats,
            "seconds": medians["packed"]["seconds/step"],
            "arms": medians,
            "seconds_ratio": ratio_of(steps["transformers"], steps["packed"]),
            "phases": benches["packed"].phases(repeats),
            "limits": benches["packed"].limits(steps["packed"][0], **rates),
            **rates,
            "machine": machine(),
        }


def _tell(step: str, arm: Arm, report: Report) -> None:
    """Print on stderr what a step took, as it ends: with a published model a bench takes many minutes."""
    print(f"{step}, {arm}: {report['seconds/step']:.3g} s", file=sys.stderr)


def ratio_of(steps: Sequence[Report], to: Sequence[Report]) -> float:
    """Median, over steps, of the ratio of ``seconds/step`` in ``steps`` to ``seconds/step`` in ``to``.

    Both hold the metrics of the same steps. Raises ValueError if they have different lengths.
    """
    # Steps differ in work, and the medians of the two arms may be of different steps.
    ratios = [one["seconds/step"] / other["seconds/step"] for one, other in zip(steps, to, strict=True)]
    return float(np.median(ratios))


class _ArmBench:
    """One forward pass on a separate session. The weights are restored after each step."""

    def __init__(self, session: LocalSession, arm: Arm, tasks: Sequence[Task]) -> None:
        run = session.run.model_copy(update={"compute": arm})
        policy = policy_of(run, session.model, session.tokenizer)
        self._session = replace(session, run=run, policy=policy, gather=policy.barrier.gather)
        self._method = build_method(run)
        self._tasks = tasks
        self._weights = {name: value.clone() for name, value in session.model.state_dict().items()}

    def step(self, number: int) -> Report:
        """Seconds of collecting, training and their parts in step ``number``, and its rollouts and tokens."""
        trainer = self._trainer()
        began = clock()
        collected = collect(self._session, self._method, self._tasks, number)
        middle = clock()
        score(self._session, trainer, collected.groups)
        scored = clock()
        metrics = trainer.step(rows_of(self._method, collected.groups, self._session.run.samples))
        ended = clock()
        self._session.model.load_state_dict(self._weights)
        return {
            "seconds/collect": middle - began,
            "seconds/train": ended - middle,
            "seconds/step": ended - began,
            **{f"seconds/{phase}": collected.metrics.get(f"seconds/{phase}", 0.0) for phase in Phase},
            "seconds/score": scored - middle,
            "seconds/update": ended - scored,
            "tokens/generated": collected.ctx.counters["tokens/generated"],
            "rollouts": collected.ctx.counters["rollouts"],
            "logprob_mismatch/mean": metrics.get("logprob_mismatch/mean", 0.0),
        }

    def phases(self, repeats: int) -> dict[str, float]:
        """Median seconds of each phase, named ``collect/...`` and ``train/...``."""
        steps: list[dict[str, float]] = []
        for number in range(1, repeats + 1):
            trainer = self._trainer()
            with timing(self._session.loop) as collecting:
                collected = collect(self._session, self._method, self._tasks, number)
            with timing(self._session.loop) as training:
                score(self._session, trainer, collected.groups)
                trainer.step(rows_of(self._method, collected.groups, self._session.run.samples))
            self._session.model.load_state_dict(self._weights)
            steps.append(
                {f"collect/{phase}": value for phase, value in collecting.seconds.items()}
                | {f"train/{phase}": value for phase, value in training.seconds.items()}
            )
        names = sorted({name for step in steps for name in step})
        return {name: float(np.median([step.get(name, 0.0) for step in steps])) for name in names}

    def limits(self, taken: Report, flop_per_s: float, bytes_per_s: float) -> dict[str, Report]:
        """Products of matrices in step 1 by part, and their shares of this machine's rates.

        ``taken``: seconds of that step (:meth:`step`). Each part has ``flop``, ``bytes``, ``seconds``,
        ``share_of_matrix_rate`` (flop / seconds / ``flop_per_s``) and ``share_of_bandwidth``. The latter may
        exceed 1 if weights stay in the processor's cache. Left out are parts without a product, and on a GPU
        sampling, whose CUDA graphs hide theirs (see ProductCounter).
        """
        on_cpu = self._session.model.device.type == "cpu"
        counters = {part: ProductCounter() for part in (*(SAMPLING_PARTS if on_cpu else ()), *PARTS)}
        trainer = self._trainer()
        policy = self._session.policy
        sample = policy.sample

        def counted(requests: list[GenerationRequest]) -> None:
            with counters.get(requests[0].sampling.phase, nullcontext()):
                sample(requests)

        with patch.object(policy, "sample", counted):
            collected = collect(self._session, self._method, self._tasks, 1)
        with counters["score"]:
            score(self._session, trainer, collected.groups)
        with counters["update"]:
            trainer.step(rows_of(self._method, collected.groups, self._session.run.samples))
        self._session.model.load_state_dict(self._weights)
        return {
            part: {
                "flop": counter.flop,
                "bytes": counter.bytes,
                "seconds": taken[f"seconds/{part}"],
                "share_of_matrix_rate": counter.flop / flop_per_s / taken[f"seconds/{part}"],
                "share_of_bandwidth": counter.bytes / bytes_per_s / taken[f"seconds/{part}"],
            }
            for part, counter in counters.items()
            if counter.flop
        }

    def _trainer(self) -> Trainer:
        """A new trainer for every step: optimiser moments would differ between the arms."""
        use_onednn(self._session.run.compute == "packed")
        return trainer_of(self._session, self._method)
