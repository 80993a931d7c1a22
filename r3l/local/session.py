"""A loaded run: model, policy, environment workers, dialogue. Shared by training and evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from r3l.config import Run, dialogue_of
from r3l.core.environment import Dialogue, EnvironmentPackage
from r3l.core.pool import EnvironmentPool, find_package
from r3l.core.rollout import Arena
from r3l.core.seeds import Address
from r3l.local.checkpoint import load_model
from r3l.local.policy import LocalPolicy
from r3l.training import arena_of

T = TypeVar("T")


@dataclass
class Session:
    """What exploring needs, alive for the length of a command."""

    run: Run
    model: Any
    tokenizer: Any
    policy: LocalPolicy
    pool: EnvironmentPool
    package: EnvironmentPackage
    dialogue: Dialogue
    loop: asyncio.AbstractEventLoop

    def arena(self, address: Address, temperature: float) -> Arena:
        """A fresh arena (its own budget meter) whose draws are seeded under ``address``."""
        gather = self.policy.lockstep.gather
        return arena_of(self.run, self.policy, self.pool, self.dialogue, gather, address, temperature)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to completion on this session's event loop."""
        return self.loop.run_until_complete(coroutine)


@contextmanager
def open_session(run: Run, model: str) -> Iterator[Session]:
    """Load ``model`` and start the workers; closes them at the end."""
    torch.set_num_threads(run.threads)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    package = find_package(run.env)
    network, tokenizer = load_model(model, device)
    pool = EnvironmentPool(run.env, run.workers, run.env_settings.options)
    try:
        with asyncio.Runner() as runner:  # its end cancels what an error has left waiting
            policy = LocalPolicy(network, tokenizer, run.sampling.max_context, samples=run.samples)
            dialogue = dialogue_of(run)
            yield Session(run, network, tokenizer, policy, pool, package, dialogue, runner.get_loop())
    finally:
        pool.close()
