"""A session that plays a run's episodes: policy, environment workers, event loop and stop signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3l.config import Run, SamplingConfig, dialogue_of, environment_of
from r3l.core.environment import Dialogue
from r3l.core.policy import Phase, Policy, Sampling
from r3l.core.rollout import Gather, Item, RolloutContext, T
from r3l.core.seeds import Address
from r3l.core.trajectory import Trajectory
from r3l.envs.base.package import EnvironmentPackage
from r3l.processes.barrier import outside_event_loop
from r3l.processes.pool import EnvironmentPool
from r3l.runs.preemption import StopSignals, stop_signals


def finished_share(run: Run, step: int) -> float:
    """The finished share of training at step ``step`` (from 1), linear: 0 in the first, 1 in the last step.

    0 if there is only one step.
    """
    return (step - 1) / max(run.train.steps - 1, 1)


def rollout_context(
    sampling: SamplingConfig,
    policy: Policy,
    pool: EnvironmentPool,
    dialogue: Dialogue,
    gather: Gather,
    address: Address,
    temperature: float,
) -> RolloutContext:
    """A new rollout context, with its own budget counters and with draws seeded under ``address``.

    ``sampling``: limits in tokens; its own temperature is not used, but ``temperature``. ``gather``: plays
    episodes concurrently.
    """
    return RolloutContext(
        policy=policy,
        pool=pool,
        dialogue=dialogue,
        sampling=Sampling(temperature, sampling.max_tokens, stop=dialogue.stop),
        feedback_sampling=Sampling(temperature, sampling.feedback_max_tokens, phase=Phase.FEEDBACK),
        address=address,
        gather=gather,
    )


@dataclass
class PlaySession:
    """A run's policy, environment workers and dialogue; open_play_session opens and closes it.

    ``gather`` plays episodes concurrently. An evaluation plays ``batches_at_once`` batches of ``batch``
    episodes at the same time.
    """

    run: Run
    policy: Policy
    gather: Gather
    pool: EnvironmentPool
    package: EnvironmentPackage[Any]
    dialogue: Dialogue
    loop: asyncio.AbstractEventLoop
    stop_signals: StopSignals
    batch: int
    batches_at_once: int = 1

    def take_counts(self) -> dict[str, float]:
        """A server's counts of requests and retries since the last call; {} for a local policy."""
        return {}

    def conditions(self) -> dict[str, Any]:
        """Conditions of scores of a policy at a server besides the run's settings; {} for a local one."""
        return {}

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]] | None:
        """Log-probs of each trajectory's trainable tokens, in nats at the sampling temperature.

        One array per trajectory, a value per token. None if the policy cannot compute them, as at a server.
        """
        return None

    def rollout_context(self, address: Address, temperature: float) -> RolloutContext:
        """A new rollout context, with its own budget counters and with draws seeded under ``address``."""
        return rollout_context(
            self.run.sampling,
            self.policy,
            self.pool,
            self.dialogue,
            self.gather,
            address,
            temperature,
        )

    def concurrently(self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Sequence[Item]) -> list[T]:
        """Play every item concurrently; results in the order of ``items``.

        Blocks until all have ended. Raises Preempted on a stop signal or Ctrl-C.
        """
        return self.wait(self.gather(play, items))

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` to its end on this session's loop.

        Raises Preempted if a stop signal or Ctrl-C comes first.
        """
        task = self.loop.create_task(coroutine)
        with self.stop_signals.cancelling(task):
            try:
                return self.loop.run_until_complete(task)
            except KeyboardInterrupt:
                # A second Ctrl-C, raised in the middle of some coroutine: cancel those that wait for it, then
                # let them end.
                task.cancel()
                with suppress(KeyboardInterrupt, asyncio.CancelledError):
                    self.loop.run_until_complete(task)
                raise


@contextmanager
def open_play_session(run: Run, policy: Policy, gather: Gather) -> Iterator[PlaySession]:
    """Start the environment workers (processes) of ``run`` and yield a session; both end with the block.

    In the block stop signals (SIGTERM and the like) cancel what the session plays. ``gather`` plays episodes
    concurrently, so that their responses are sampled together. Raises ConfigError if packages of the
    environment are missing.
    """
    package = environment_of(run.env)
    package.check_installed()
    pool = EnvironmentPool(package, run.workers, run.env_settings.options)
    try:
        # Leaving the runner cancels what still waits after an error.
        with stop_signals() as received, outside_event_loop(), asyncio.Runner() as runner:
            loop = runner.get_loop()
            yield PlaySession(
                run, policy, gather, pool, package, dialogue_of(run), loop, received, run.evaluation.batch
            )
    finally:
        pool.close()
