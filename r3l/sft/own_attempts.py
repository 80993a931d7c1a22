"""SFT examples from the model's own attempts: its reflections that helped, and the critic's on its failures.

- Rejection sampling (:func:`play_sampled`): R3L plays (r3l.algorithm): attempts, reflections on the failures,
  guided retries. The examples are what it would imitate, a reflection and the retry that succeeded under it,
  with the tokens that were sampled.
- Critiqued failures (:func:`play_critiqued`): the environment's critic reflects on each failure, as in DAgger
  an expert labels what the learner does (arXiv 1011.0686).
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np

from r3l.algorithm import R3L
from r3l.config import environment_of
from r3l.config.sft_recipe import CritiquedFailures, ExampleKind, SampledPhase, ScriptedPhase, SFTConfig
from r3l.core.errors import DataError
from r3l.core.method_validation import explore_checked
from r3l.core.policy import Policy
from r3l.core.rollout import Gather, RolloutContext, play
from r3l.core.task import Task, with_occurrences
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind
from r3l.feedback.feedback import FeedbackSource, ParsedReflection
from r3l.local.model.precision import cast_parameters, compute_dtype
from r3l.local.sampling.policy import LocalPolicy
from r3l.processes.barrier import outside_event_loop
from r3l.processes.pool import EnvironmentPool
from r3l.processes.progress import progress
from r3l.reflection import Reflection, ReflectionSettings, reflect
from r3l.runs.session import rollout_context
from r3l.sft.checkpoint import SFTModel
from r3l.sft.examples import SFTExample

AT_ONCE = 64  # attempts that are played at once; our choice, as tier smol
INVALID = "reflection/invalid/"  # prefix of the counters of invalid reflections, by reason

Examples = list[tuple[ExampleKind, SFTExample]]
OnTask = Callable[[Task, RolloutContext], Coroutine[Any, Any, list[Trajectory]]]


def play_sampled(
    model: SFTModel, config: SFTConfig, number: int, workers: int
) -> tuple[Examples, dict[str, Any]]:
    """Play phase ``number`` (from 0), a sampled one, with ``model`` as it is.

    Returns (examples with their kinds, counts as of :func:`counted`). Reflections are of the kind to which
    the recipe gives a share of tokens: under compact prompts the kind of episodes. ``workers``: environment
    processes; they change no result. Raises DataError if no reflection is kept.
    """
    phase = config.phases[number]
    assert isinstance(phase, SampledPhase)
    with _policy_of(model, config, phase) as policy:
        imitated, counts = explore(policy, policy.barrier.gather, config, number, workers)
    if not counts["kept"]:
        raise DataError(
            f"phase {number + 1} of recipe {config.name} has nothing to teach, since no reflection led to a "
            f"retry that succeeded ({sentence(counts)}); give it more tasks or attempts, or teach the phases "
            "before it longer"
        )
    of_reflections = ExampleKind.EPISODE if config.prompts == "compact" else ExampleKind.REFLECTION
    examples: Examples = []
    for t in imitated:
        kind = of_reflections if t.kind is TrajectoryKind.REFLECTION else ExampleKind.RETRY
        examples.append((kind, example_of(t, config.prompt_weight)))
    return examples, counts


def play_critiqued(
    model: SFTModel, config: SFTConfig, number: int, workers: int
) -> tuple[Examples, dict[str, Any]]:
    """Play the critiqued failures of phase ``number`` (from 0) with ``model`` as it is.

    Returns (examples of kind reflection, counts as of :func:`counted`). ``workers``: as in
    :func:`play_sampled`. Raises DataError if the critic reflected on no failure.
    """
    phase = config.phases[number]
    assert isinstance(phase, ScriptedPhase) and phase.critiqued
    with _policy_of(model, config, phase.critiqued) as policy:
        reflections, counts = criticise(policy, policy.barrier.gather, config, number, workers)
    if not reflections:
        raise DataError(
            f"phase {number + 1} of recipe {config.name}: the critic of {config.env} reflected on no failure "
            f"({sentence(counts)}); give critiqued more tasks or attempts, or leave it out"
        )
    return [(ExampleKind.REFLECTION, example_of(t, config.prompt_weight)) for t in reflections], counts


@contextmanager
def _policy_of(
    model: SFTModel, config: SFTConfig, played: SampledPhase | CritiquedFailures
) -> Iterator[LocalPolicy]:
    """``model`` as a policy that samples within the limits of ``played``; freed with the block.

    SFT trains in its recipe's type on any CPU. Samples are drawn in a run's type: in float32, by our kernels,
    on a CPU that does not multiply bfloat16.
    """
    network = model.network
    dtype = compute_dtype(config.compute_dtype, network.device)
    if network.dtype != dtype:
        network = copy.deepcopy(network)
        cast_parameters(network, dtype)
    s = played.sampling
    policy = LocalPolicy(network, model.tokenizer, s.max_context, tokens_per_batch=s.tokens_per_batch)
    with closing(policy):
        yield policy
        policy.release()


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

    async def imitated(task: Task, ctx: RolloutContext) -> list[Trajectory]:
        groups: list[Group] = await explore_checked(method, task, ctx)
        return [t for group in groups if group.objective is Objective.SFT for t in group.trajectories]

    address = (config.seed, "rejection sampling", number)
    kept, ctx = _on_tasks(imitated, phase, policy, gather, config, address, workers)
    valid, perfect, retries = (
        ctx.counters[name] for name in ("reflection/valid", "reflection/outcome/success", "retry/count")
    )
    dropped = {
        "finds nothing to improve": perfect,
        "retry failed": retries - _kept(kept),
        "error of the environment": valid - perfect - retries,
    }
    return kept, counted(ctx, kept, dropped)


def criticise(
    policy: Policy, gather: Gather, config: SFTConfig, number: int, workers: int
) -> tuple[list[Trajectory], dict[str, Any]]:
    """Have ``policy`` play the critiqued failures of phase ``number``, and the critic reflect on them.

    Returns (the critic's valid reflections, counts). Draws and progress as in :func:`explore`.
    """
    phase = config.phases[number]
    assert isinstance(phase, ScriptedPhase) and phase.critiqued
    failures = phase.critiqued
    settings = ReflectionSettings.model_validate(
        {"feedback": FeedbackSource.ENVIRONMENT, "guidance": config.guidance}
    )

    async def reflections(task: Task, ctx: RolloutContext) -> list[Trajectory]:
        written: list[Reflection] = []
        for episode in await ctx.gather(partial(play, ctx, task), range(failures.attempts)):
            t = episode.trajectory
            if t.turns and not t.failed and not t.success and ctx.dialogue.critique(episode.transcript()):
                written.append(await reflect(ctx, episode, settings))
            await episode.close()
        return [r.trajectory for r in written if isinstance(r.parsed, ParsedReflection)]

    address = (config.seed, "critiqued failures", number)
    kept, ctx = _on_tasks(reflections, failures, policy, gather, config, address, workers)
    return kept, counted(ctx, kept, {})


def _on_tasks(
    on_task: OnTask,
    played: SampledPhase | CritiquedFailures,
    policy: Policy,
    gather: Gather,
    config: SFTConfig,
    address: tuple[int, str, int],
    workers: int,
) -> tuple[list[Trajectory], RolloutContext]:
    """Call ``on_task`` for the tasks of ``played``, which are of demonstrations and in no split.

    Returns (what it kept, the context with its counters). ``address``: seeds all draws. Shows progress.
    """
    # A task that comes twice gets its own noise.
    package = environment_of(config.env)
    task_of = package.demonstrator(config.task_sets).task
    numbers = range(played.first_task, played.first_task + played.tasks)
    tasks = with_occurrences(map(task_of, numbers), Counter())

    # Play some at a time, for memory.
    size = max(1, AT_ONCE // played.attempts)
    kept: list[Trajectory] = []
    with (
        closing(EnvironmentPool(package, workers, config.options)) as pool,
        outside_event_loop(),
        asyncio.Runner() as runner,
        progress("tasks: attempts and reflections", len(tasks)) as advance,
    ):
        s = played.sampling
        ctx = rollout_context(s, policy, pool, config.dialogue(), gather, address, s.temperature)
        for first in range(0, len(tasks), size):
            batch = tasks[first : first + size]
            for of_task in runner.run(gather(lambda task: on_task(task, ctx), batch)):
                kept += of_task
            advance(f"{_kept(kept)} reflections kept", len(batch))
    return kept, ctx


def example_of(t: Trajectory, prompt_weight: float) -> SFTExample:
    """The example that imitates the trainable turns of ``t``; each prompt token has ``prompt_weight``."""
    weight_T = np.where(t.response_mask() > 0, t.credit_mask(), prompt_weight)
    return SFTExample(t.token_ids().astype(np.int32), weight_T.astype(np.float32))


def counted(ctx: RolloutContext, kept: list[Trajectory], dropped: dict[str, float]) -> dict[str, Any]:
    """Counts of what was played: ``attempts``, ``solved`` ones, ``reflections`` on failures, ``kept`` ones.

    ``dropped``: the other reflections, by reason: those given, and the reasons of invalid ones. The argument
    ``kept``: the kept reflections, of rejection sampling with their retries.
    """
    counters = ctx.counters
    bases = [t for t in ctx.trajectories if t.kind is TrajectoryKind.BASE]
    for name, count in sorted(counters.items()):
        if name.startswith(INVALID):
            dropped[f"invalid: {name.removeprefix(INVALID)}"] = count
    return {
        "attempts": len(bases),
        "solved": sum(t.success for t in bases),
        "reflections": int(counters["reflection/count"]),
        "kept": _kept(kept),
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
