"""The workflow for all methods and environments; a call collects one task in a runner of Trinity."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import ray
from trinity.common.constants import SyncMethod
from trinity.common.experience import Experience
from trinity.common.models.model import ModelWrapper
from trinity.common.workflows import Workflow
from trinity.manager.synchronizer import Synchronizer

from r3l.config import Run, build_method, dialogue_of, environment_of, locate, validate
from r3l.core.environment import Dialogue
from r3l.core.errors import EngineError
from r3l.core.method import Method
from r3l.core.method_validation import explore_checked
from r3l.core.pretrained import load_tokenizer
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import unique
from r3l.endpoint.judge import judging
from r3l.processes.barrier import together
from r3l.processes.pool import EnvironmentPool
from r3l.runs import steps
from r3l.runs.session import finished_share, rollout_context
from r3l.trinity.experience import CollectedTask, pack
from r3l.trinity.policy import TrinityPolicy
from r3l.trinity.scoring import score
from r3l.trinity.tasksets import OCCURRENCE, TASK_KEY

POLL = 0.05  # seconds between two queries for new weights; our choice
SYNC_TIMEOUT = 600.0  # seconds to wait for new weights; our choice


@dataclass(frozen=True)
class Setting:
    """Everything that a runner process of Trinity needs for all its tasks, loaded once.

    ``tasks``: all training and test tasks by id; ``train_tasks``: the training set. ``dialogue``: prompts and
    parsing of the environment; ``pool``: its worker processes.
    """

    run: Run
    method: Method
    tasks: Mapping[str, Task]
    train_tasks: Sequence[Task]
    dialogue: Dialogue
    pool: EnvironmentPool
    tokenizer: Any


@lru_cache(maxsize=1)
def _setting(run_json: str) -> Setting:
    """The setting of a run, given as JSON text since a cache key must be hashable."""
    run = validate(Run, json.loads(run_json), "workflow_args.run")
    package = environment_of(run.env)
    train_tasks = package.tasks(run.env_settings.train_task_set)
    tested = [task for task_set in run.env_settings.tested().values() for task in package.tasks(task_set)]
    tasks = {task.id: task for task in (*train_tasks, *tested)}
    pool = EnvironmentPool(package, run.workers, run.env_settings.options)
    tokenizer = load_tokenizer(locate(run.model))
    return Setting(run, build_method(run), tasks, train_tasks, dialogue_of(run), pool, tokenizer)


class MethodWorkflow(Workflow):
    """Workflow of Trinity that collects one task by the method; in an evaluation it plays plain episodes.

    ``workflow_args.run`` is the resolved run. Trinity's batch id is the step, so the seed addresses are
    the local engine's.
    """

    can_repeat = True  # one call makes all rollouts of a task, and the method decides how many
    is_async = True

    def set_repeat_times(self, repeat_times: int, run_id_base: int) -> None:
        """Set how many episodes an evaluation plays and the number of the first; training ignores both."""
        self.repeat_times = repeat_times
        self.first = run_id_base

    async def run_async(self) -> list[Experience]:
        """Sample the task's trajectories, score teachers, and return all as experiences.

        They have the form of r3l.trinity.experience:pack, with the task's counters.
        """
        setting = _setting(json.dumps(self.task.workflow_args["run"], sort_keys=True))
        row = self.task.raw_task
        task = replace(setting.tasks[row[TASK_KEY]], occurrence=row.get(OCCURRENCE, 0))
        position = int(self.task.task_id)
        if self.task.is_eval:
            ctx = self._context(setting, ("evaluation",), setting.run.evaluation.temperature)
            episodes = await play_group(ctx, task, self.repeat_times, self.first)
            return pack(CollectedTask(task, position, [], episodes))

        # Training: sample with the weights that the local engine would have at this step.
        step = int(self.task.batch_id)
        version = await wait_for_weights(self.model, synced_version(step, setting.run.train.sync_interval))
        ctx = self._context(setting, ("train", step), setting.run.sampling.temperature)
        ctx.progress = finished_share(setting.run, step)
        ctx.tasks = setting.train_tasks

        # Explore, and count engines that were lost meanwhile.
        lost = setting.pool.lost  # the pool counts over all tasks of this process
        async with judging(setting.run, ctx):
            groups = await explore_checked(setting.method, task, ctx)
        ctx.counters["dropped/workers"] += setting.pool.lost - lost
        ctx.counters["weights/behind"] += step - 1 - version

        # Teachers: whether their contexts hold the hint, and the log-probs that sampling did not give.
        taught = unique([t for group in groups for t in group.trajectories if t.taught])
        if taught:
            ctx.counters.update(steps.teacher_metrics(taught, setting.tokenizer))
        scored = await score(
            groups,
            ctx.policy,  # type: ignore[arg-type]
            setting.run.samples,
            setting.run.sampling.max_context,
            ctx.sampling.temperature,
            frozen=setting.method.teacher == "frozen",
        )
        ctx.counters.update(scored)
        return pack(CollectedTask(task, position, groups, ctx.played(), ctx.counters))

    def _context(self, setting: Setting, where: tuple[str | int, ...], temperature: float) -> RolloutContext:
        """Context of a task's rollouts; ``where``: the part of its seed address after the run's seed."""
        run = setting.run
        policy = TrinityPolicy(self.model, setting.tokenizer, run.sampling.max_context, run.samples)
        ctx = rollout_context(
            run.sampling,
            policy,
            setting.pool,
            setting.dialogue,
            together,
            address=(run.seed, *where),
            temperature=temperature,
        )
        policy.meter = ctx.counters
        return ctx


def synced_version(step: int, interval: int) -> int:
    """Number of updates in the weights that sample step ``step`` (from 1), synced every ``interval``."""
    return (step - 1) // interval * interval


async def wait_for_weights(model: ModelWrapper, version: int) -> int:
    """Make sure that ``model`` has the weights after ``version`` updates; returns the version that it has.

    With the tinker backend it fetches them, and waits up to SYNC_TIMEOUT (600) seconds, after which it raises
    EngineError. With verl it waits for nothing.
    """
    # After a restart Trinity's explorer waits for the trainer's first weights only if they come by NCCL.
    # With tinker it would sample with the base checkpoint, then stay a step behind for the rest of the
    # run. So fetch the weights here.
    if model.config.engine_type != "tinker":
        return int(await model.model_version_async)
    synchronizer = Synchronizer.get_actor(namespace=ray.get_runtime_context().namespace)
    waited = 0.0
    # The version is negative until the first weights have come, which is version 0 here.
    while max(await model.model_version_async, 0) < version:
        if await synchronizer.get_latest_model_version.remote() >= version:
            await model.sync_model_weights(version, SyncMethod.MEMORY)
        elif waited > SYNC_TIMEOUT:
            raise EngineError(
                f"the weights of step {version} did not come within {SYNC_TIMEOUT:g} s; see the trainer's log"
            )
        await asyncio.sleep(POLL)
        waited += POLL
    return max(int(await model.model_version_async), 0)
