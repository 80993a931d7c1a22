"""Rejection sampling: the model's own reflections become SFT examples where their guided retry succeeded.

R3L plays them (r3l.algorithm): attempts, reflections on the failures, guided retries. The examples are what
it would imitate, a reflection and the retry that succeeded under it, with the tokens that were sampled.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np

from r3l.algorithm import R3L
from r3l.config import environment_of
from r3l.config.sft_recipe import ExampleKind, SampledPhase, SFTConfig
from r3l.core.errors import DataError
from r3l.core.method_validation import explored
from r3l.core.policy import Policy
from r3l.core.rollout import Gather, RolloutContext
from r3l.core.task import with_occurrences
from r3l.core.trajectory import Objective, Trajectory, TrajectoryKind
from r3l.local.model.precision import cast_parameters, compute_dtype
from r3l.local.sampling.policy import LocalPolicy
from r3l.processes.barrier import outside_event_loop
from r3l.processes.pool import EnvironmentPool
from r3l.processes.progress import progress
from r3l.runs.session import rollout_context
from r3l.sft.checkpoint import SFTModel
from r3l.sft.examples import SFTExample

AT_ONCE = 64  # attempts that are played at once; our choice, as tier smol
INVALID = "reflection/invalid/"  # prefix of the counters of invalid reflections, by reason


def play(
    model: SFTModel, config: SFTConfig, number: int, workers: int
) -> tuple[list[tuple[ExampleKind, SFTExample]], dict[str, Any]]:
    """Play phase ``number`` (from 0), a sampled one, with ``model`` as it is.

    Returns (examples with their kinds, counts as of :func:`counted`). Reflections are of the kind to which
    the recipe gives a share of tokens: under compact prompts the kind of episodes. ``workers``: environment
    processes; they change no result. Raises DataError if no reflection is kept.
    """
    phase = config.phases[number]
    assert isinstance(phase, SampledPhase)

    # SFT trains in its recipe's type on any CPU. Samples are drawn in a run's type: in float32, by our
    # kernels, on a CPU that does not multiply bfloat16.
    network = model.network
    dtype = compute_dtype(config.compute_dtype, network.device)
    if network.dtype != dtype:
        network = copy.deepcopy(network)
        cast_parameters(network, dtype)

    s = phase.sampling
    policy = LocalPolicy(network, model.tokenizer, s.max_context, tokens_per_batch=s.tokens_per_batch)
    with closing(policy):
        imitated, counts = explore(policy, policy.barrier.gather, config, number, workers)
        policy.release()
    if not counts["kept"]:
        raise DataError(
            f"phase {number + 1} of recipe {config.name} has nothing to teach, since no reflection led to a "
            f"retry that succeeded ({sentence(counts)}); give it more tasks or attempts, or teach the phases "
            "before it longer"
        )
    of_reflections = ExampleKind.EPISODE if config.prompts == "compact" else ExampleKind.REFLECTION
    examples: list[tuple[ExampleKind, SFTExample]] = []
    for t in imitated:
        kind = of_reflections if t.kind is TrajectoryKind.REFLECTION else ExampleKind.RETRY
        examples.append((kind, example_of(t, config.prompt_weight)))
    return examples, counts


def explore(
    policy: Policy, gather: Gather, config: SFTConfig, number: int, workers: int
) -> tuple[list[Trajectory], dict[str, Any]]:
    """Have R3L explore the tasks of sampled phase ``number`` with ``policy``, concurrently by ``gather``.

    Returns (the kept reflections and their retries, counts). Draws are seeded by the recipe's seed, the
    phase, task and attempt. Shows progress.
    """
    phase = config.phases[number]
    assert isinstance(phase, SampledPhase)
    method = R3L(
        {
            "retries": phase.reflections,
            "group_size": phase.attempts * (1 + phase.reflections),
            "reflect_when": "failed_only",
            "sft_trigger": "solved_improve",
            "guidance": config.guidance,
        }
    )

    # The tasks of demonstrations, which are in no split. One that comes twice gets its own noise.
    package = environment_of(config.env)
    task_of = package.demonstrator(config.task_sets).task
    numbers = range(phase.first_task, phase.first_task + phase.tasks)
    tasks = with_occurrences(map(task_of, numbers), Counter())

    # Explore some at a time, for memory.
    size = max(1, AT_ONCE // phase.attempts)
    imitated: list[Trajectory] = []
    with (
        closing(EnvironmentPool(package, workers, config.options)) as pool,
        outside_event_loop(),
        asyncio.Runner() as runner,
        progress("tasks: attempts, reflections, retries", len(tasks)) as advance,
    ):
        address = (config.seed, "rejection sampling", number)
        temperature = phase.sampling.temperature
        ctx = rollout_context(phase.sampling, policy, pool, config.dialogue(), gather, address, temperature)
        for first in range(0, len(tasks), size):
            batch = tasks[first : first + size]
            for groups in runner.run(gather(lambda task: explored(method, task, ctx), batch)):
                for group in groups:
                    if group.objective is Objective.SFT:
                        imitated += group.trajectories
            advance(f"{_kept(imitated)} reflections kept", len(batch))
    return imitated, counted(ctx, imitated)


def example_of(t: Trajectory, prompt_weight: float) -> SFTExample:
    """The example that imitates the trainable turns of ``t``; each prompt token has ``prompt_weight``."""
    weight_T = np.where(t.response_mask() > 0, t.credit_mask(), prompt_weight)
    return SFTExample(t.token_ids().astype(np.int32), weight_T.astype(np.float32))


def counted(ctx: RolloutContext, imitated: list[Trajectory]) -> dict[str, Any]:
    """Counts of a sampled phase: ``attempts``, ``solved`` ones, ``reflections`` on failures, ``kept`` ones.

    ``dropped``: the other reflections, by reason. The argument ``imitated``: the kept reflections and their
    retries.
    """
    counters = ctx.counters
    bases = [t for t in ctx.trajectories if t.kind is TrajectoryKind.BASE]
    kept = _kept(imitated)
    perfect = counters["reflection/outcome/success"]
    dropped = {
        "finds nothing to improve": perfect,
        "retry failed": counters["retry/count"] - kept,
        "error of the environment": counters["reflection/valid"] - perfect - counters["retry/count"],
    }
    for name, count in sorted(counters.items()):
        if name.startswith(INVALID):
            dropped[f"invalid: {name.removeprefix(INVALID)}"] = count
    return {
        "attempts": len(bases),
        "solved": sum(t.success for t in bases),
        "reflections": int(counters["reflection/count"]),
        "kept": kept,
        "dropped": {reason: int(count) for reason, count in dropped.items() if count},
    }


def sentence(counts: dict[str, Any]) -> str:
    """The counts of :func:`counted` as one line of text.

    Example: "8 attempts, 3 solved; 5 reflections on failures: kept (2), retry failed (3)".
    """
    dropped = "".join(f", {reason} ({count})" for reason, count in counts["dropped"].items())
    return (
        f"{counts['attempts']} attempts, {counts['solved']} solved; {counts['reflections']} reflections on "
        f"failures: kept ({counts['kept']}){dropped}"
    )


def _kept(imitated: list[Trajectory]) -> int:
    return sum(t.kind is TrajectoryKind.REFLECTION for t in imitated)
