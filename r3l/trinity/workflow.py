"""The one workflow: any method on any environment, a task at a time, in Trinity's runner processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
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
from r3l.core.pretrained import load_tokenizer
from r3l.core.rollout import RolloutContext, play_group
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory
from r3l.core.validation import explored
from r3l.endpoint.judge import judging
from r3l.processes.gather import together
from r3l.processes.pool import EnvironmentPool
from r3l.runs.session import finished_share, rollout_context
from r3l.trinity.config import OCCURRENCE, TASK_KEY
from r3l.trinity.experience import CollectedTask, pack
from r3l.trinity.policy import TrinityPolicy

POLL = 0.05  # seconds between two queries for new weights; our choice
SYNC_TIMEOUT = 600.0  # seconds; our choice


@dataclass(frozen=True)
class Setting:
    """What exploring needs; kept for the life of a runner process."""

    run: Run
    method: Method
    tasks: Mapping[str, Task]
    dialogue: Dialogue
    pool: EnvironmentPool
    tokenizer: Any


@lru_cache(maxsize=1)
def _setting(run_json: str) -> Setting:
    run = validate(Run, json.loads(run_json), "workflow_args.run")
    package = environment_of(run.env)
    task_sets = (run.env_settings.train_task_set, *run.env_settings.tested().values())
    tasks = {task.id: task for task_set in task_sets for task in package.tasks(task_set)}
    pool = EnvironmentPool(package, run.workers, run.env_settings.options)
    tokenizer = load_tokenizer(locate(run.model))
    return Setting(run, build_method(run), tasks, dialogue_of(run), pool, tokenizer)


class MethodWorkflow(Workflow):
    """``method.explore`` of a task; for an evaluation plain episodes.

    ``workflow_args.run`` is the resolved run. Trinity's batch id is the step, so that draws have the same addresses as
    in the local engine.
    """

    can_repeat = True  # a call makes all of a task's rollouts, and the method decides how many
    is_async = True

    def set_repeat_times(self, repeat_times: int, run_id_base: int) -> None:
        """The number of episodes of an evaluation; exploring does not use it."""
        self.repeat_times, self.first = repeat_times, run_id_base

    async def run_async(self) -> list[Experience]:
        """The task's experiences (see r3l.trinity.experience)."""
        setting = _setting(json.dumps(self.task.workflow_args["run"], sort_keys=True))
        row = self.task.raw_task
        task = replace(setting.tasks[row[TASK_KEY]], occurrence=row.get(OCCURRENCE, 0))
        position = int(self.task.task_id)
        if self.task.is_eval:
            ctx = self._context(setting, ("evaluation",), setting.run.evaluation.temperature)
            played = await play_group(ctx, task, self.repeat_times, self.first)
            return pack(CollectedTask(task, position, [], played))
        step = int(self.task.batch_id)
        version = await wait_for_weights(self.model, synced_version(step, setting.run.train.sync_interval))
        ctx = self._context(setting, ("train", step), setting.run.sampling.temperature)
        ctx.progress = finished_share(setting.run, step)
        lost = setting.pool.lost
        async with judging(setting.run, ctx):
            groups = await explored(setting.method, task, ctx)
        ctx.counters["dropped/workers"] += setting.pool.lost - lost
        ctx.counters["weights/behind"] += step - 1 - version
        groups = await _rescored(groups, ctx.policy, ctx.sampling.temperature)  # type: ignore[arg-type]
        return pack(CollectedTask(task, position, groups, ctx.played(), ctx.counters))

    def _context(self, setting: Setting, where: tuple[str | int, ...], temperature: float) -> RolloutContext:
        run = setting.run
        policy = TrinityPolicy(self.model, setting.tokenizer, run.sampling.max_context, run.samples)
        ctx = rollout_context(
            run, policy, setting.pool, setting.dialogue, together, address=(run.seed, *where), temperature=temperature
        )
        policy.meter = ctx.counters
        return ctx


def synced_version(step: int, interval: int) -> int:
    """The number of updates in the weights that step ``step`` (from 1) samples with."""
    return (step - 1) // interval * interval


async def wait_for_weights(model: ModelWrapper, version: int) -> int:
    """Wait until ``model`` samples with the weights of ``version`` updates; returns the version that it has.

    After a restart Trinity's explorer does not wait for the trainer's first weights unless they are sent by NCCL: it
    would sample with the base checkpoint, and stay a step behind from then on. So they are fetched here.
    """
    if model.config.engine_type != "tinker":
        return int(await model.model_version_async)
    synchronizer = Synchronizer.get_actor(namespace=ray.get_runtime_context().namespace)
    waited = 0.0
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


async def _rescored(groups: list[Group], policy: TrinityPolicy, temperature: float) -> list[Group]:
    """Old log-probs of what was sampled under another context: the sampling policy's under this one."""

    async def rescored(t: Trajectory) -> Trajectory:
        if not t.rescore:
            return t
        logprobs = await policy.logprobs(t.token_ids().tolist(), temperature)
        turns, at = [], 0
        for turn in t.turns:
            at += len(turn.prompt_ids)
            end = at + len(turn.response_ids)
            turns.append(replace(turn, logprobs=tuple(logprobs[at:end])))
            at = end
        return replace(t, turns=turns)

    return [replace(group, trajectories=await together(rescored, group.trajectories)) for group in groups]
