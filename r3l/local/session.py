"""A loaded run: model, policy, environment workers, dialogue. Shared by training and evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from r3l.config import Run, dialogue_of, environment_of
from r3l.core.environment import Dialogue
from r3l.core.pool import EnvironmentPool
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.envs.base.package import EnvironmentPackage
from r3l.local.checkpoint import load_model
from r3l.local.decoding import FixedStep
from r3l.local.policy import LocalPolicy
from r3l.local.precision import MasterWeights, compute_dtype, device_of, lower
from r3l.runs.context import rollout_context
from r3l.runs.preemption import StopSignals, stop_signals

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass
class Session:
    """What exploring needs, alive for the length of a command. ``master_weights``: the weights to train, where it
    does."""

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

    def spread(
        self,
        ctx: RolloutContext,
        ask: Callable[[RolloutContext, Item], Coroutine[Any, Any, T]],
        items: Sequence[Item],
        count: int | None = None,
    ) -> list[T]:
        """``ask`` about every item, concurrently; answers in their order.

        With several lanes (``count``, by default the run's) each takes a share of the items, with barriers of its own:
        while one samples, the environments of the others step. The ctx's counters are common to all.
        """
        count = count or self.run.sampling.lanes
        lanes = [ctx] if count == 1 else [self._lane(ctx) for _ in range(count)]

        async def share(k: int) -> list[T]:
            found: list[T] = await lanes[k].gather(*[ask(lanes[k], item) for item in items[k::count]])
            return found

        async def everyone() -> list[list[T]]:
            return await asyncio.gather(*[share(k) for k in range(count)])

        shares = self.wait(everyone())
        return [shares[i % count][i // count] for i in range(len(items))]

    def _lane(self, ctx: RolloutContext) -> RolloutContext:
        policy = self.policy.lane()
        return replace(ctx, policy=policy, gather=policy.barrier.gather)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to completion on this session's event loop. Raises Preempted where an order to stop comes first."""
        task = self.loop.create_task(coroutine)
        with self.stop_signals.cancelling(task):
            return self.loop.run_until_complete(task)


def policy_of(run: Run, network: Any, tokenizer: Any, step: FixedStep | None, keep_cache: bool = True) -> LocalPolicy:
    """The policy that samples as ``run`` says; ``step`` and ``keep_cache`` are LocalPolicy's."""
    return LocalPolicy(
        network,
        tokenizer,
        run.sampling.max_context,
        keep_cache=keep_cache,
        samples=run.samples,
        budget=run.sampling.tokens_per_batch,
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
    lower(network, dtype)
    pool = EnvironmentPool(package, run.workers, run.env_settings.options)
    try:
        with stop_signals() as received, asyncio.Runner() as runner:  # its end cancels what an error has left waiting
            step = FixedStep(device) if run.sampling.decoding == "compiled" else None
            policy = policy_of(run, network, tokenizer, step)
            dialogue = dialogue_of(run)
            yield Session(
                run, network, master_weights, tokenizer, policy, pool, package, dialogue, runner.get_loop(), received
            )
    finally:
        pool.close()
