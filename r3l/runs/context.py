"""The rollout context of a run: what any method explores with, on whichever engine."""

from __future__ import annotations

from r3l.config import Run
from r3l.core.environment import Dialogue
from r3l.core.policy import Phase, Policy, Sampling
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.processes.gather import Gather
from r3l.processes.pool import EnvironmentPool


def progress(run: Run, step: int) -> float:
    """The share of training that is done before step ``step`` (from 1): 0 in the first step, 1 in the last."""
    return (step - 1) / max(run.train.steps - 1, 1)


def rollout_context(
    run: Run,
    policy: Policy,
    pool: EnvironmentPool,
    dialogue: Dialogue,
    gather: Gather,
    address: Address,
    temperature: float,
) -> RolloutContext:
    """A fresh rollout context (its own budget meter) whose draws are seeded under ``address``."""
    s = run.sampling
    return RolloutContext(
        policy=policy,
        pool=pool,
        dialogue=dialogue,
        sampling=Sampling(temperature, s.max_tokens, stop=dialogue.stop),
        feedback_sampling=Sampling(temperature, s.feedback_max_tokens, phase=Phase.FEEDBACK),
        address=address,
        gather=gather,
    )
