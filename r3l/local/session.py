"""A loaded run: model, policy, environment workers, dialogue. Shared by training and evaluation."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from r3l.config import Run, dialogue_of, environment_of
from r3l.core.concurrency import Item, T
from r3l.core.environment import Dialogue
from r3l.core.pool import EnvironmentPool
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.envs.base.package import EnvironmentPackage
from r3l.local.checkpoint import load_model
from r3l.local.decoding import FixedStep
from r3l.local.policy import LocalPolicy
from r3l.local.precision import MasterWeights, cast_parameters, compute_dtype, device_of
from r3l.runs.context import rollout_context
from r3l.runs.preemption import StopSignals, stop_signals


@dataclass
class Session:
    """What playing episodes needs, alive for the length of a command.

    ``policy.model`` samples: ``model`` itself, or a copy where the sampling weights lag behind (train.sync_interval).
    ``master_weights``: the weights to train, where it trains.
    """

    run: Run
    model: Any
    master_weights: MasterWeights | None
    tokenizer: Any
    policy: LocalPolicy
    pool: EnvironmentPool
    package: EnvironmentPackage[Any]
    dialogue: Dialogue
    loop: asyncio.AbstractEventLoop
    stop_signals: StopSignals

    def rollout_context(self, address: Address, temperature: float) -> RolloutContext:
        """A fresh rollout context (its own budget meter) whose draws are seeded under ``address``."""
        gather = self.policy.barrier.gather
        return rollout_context(self.run, self.policy, self.pool, self.dialogue, gather, address, temperature)

    def concurrently(self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Sequence[Item]) -> list[T]:
        """``play`` of every item at the same time, their responses sampled in common batches; results in order."""
        return self.wait(self.policy.barrier.gather(play, items))

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to completion on this session's event loop. Raises Preempted where an order to stop comes first."""
        task = self.loop.create_task(coroutine)
        with self.stop_signals.cancelling(task):
            return self.loop.run_until_complete(task)


def policy_of(run: Run, model: Any, tokenizer: Any, step: FixedStep | None, use_cache: bool = True) -> LocalPolicy:
    """The policy that samples from ``model`` as ``run`` says; ``step`` and ``use_cache`` are LocalPolicy's."""
    return LocalPolicy(
        model,
        tokenizer,
        run.sampling.max_context,
        samples=run.samples,
        use_cache=use_cache,
        tokens_per_batch=run.sampling.tokens_per_batch,
        step=step,
    )


@contextmanager
def open_session(run: Run, model: str, trains: bool = False) -> Iterator[Session]:
    """Load ``model`` and start the workers; closes them at the end."""
    torch.set_num_threads(run.threads)
    device = device_of(run.device)
    torch.use_deterministic_algorithms(device.type == "cpu")  # cumsum, which samples, has no such form on a GPU
    package = environment_of(run.env)
    network, tokenizer = load_model(model, device)
    dtype = compute_dtype(run.compute_dtype, device)
    master_weights = MasterWeights(network, dtype) if trains else None
    cast_parameters(network, dtype)
    sampler = copy.deepcopy(network) if trains and run.train.sync_interval > 1 else network
    step = FixedStep(device) if run.sampling.decoding == "compiled" else None
    pool = EnvironmentPool(package, run.workers, run.env_settings.options)
    try:
        with stop_signals() as received, asyncio.Runner() as runner:  # its end cancels what an error has left waiting
            yield Session(
                run=run,
                model=network,
                master_weights=master_weights,
                tokenizer=tokenizer,
                policy=policy_of(run, sampler, tokenizer, step),
                pool=pool,
                package=package,
                dialogue=dialogue_of(run),
                loop=runner.get_loop(),
                stop_signals=received,
            )
    finally:
        pool.close()
