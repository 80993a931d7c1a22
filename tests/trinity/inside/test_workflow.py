"""The workflow collects the local engine's tokens, with a stand-in for Trinity's vLLM actor.

The stand-in has the actor's interface and samples with the Learner, by the seeds of the requests. Ray and
the real actor run in tests/trinity/test_end_to_end.py.
"""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tinker", reason="no Trinity in this environment (make trinity)")

from tinker import types
from trinity.common.workflows import Task

from r3l.config import build_method, resolve
from r3l.core.rollout import play_group
from r3l.local.session import open_session
from r3l.trinity.experience import unpack
from r3l.trinity.learner import Learner, SampleRequest
from r3l.trinity.workflow import MethodWorkflow, synced_version


class Rollouts:
    """A ModelWrapper with ``actor.sample.remote`` that samples with ``learner``."""

    def __init__(self, learner):
        self.learner = learner
        self.config = SimpleNamespace(engine_type="vllm")
        self.model = SimpleNamespace(sample=SimpleNamespace(remote=self.sample))

    async def get_lora_request_async(self):
        return None  # these runs train without LoRA

    async def sample(self, prompt, num_samples, params, lora_request=None):
        request = SampleRequest(prompt.to_ints(), params.max_tokens, params.temperature, params.seed)
        ((ids, logprobs),) = self.learner.sample([request])
        arrays = {"tokens_np": np.asarray(ids, np.int32), "logprobs_np": np.asarray(logprobs, np.float32)}
        return types.SampleResponse(sequences=[types.SampledSequence(stop_reason="stop", **arrays)])

    @property
    async def model_version_async(self):
        return 2


def run_of(env, **more):
    overrides = ["workers=0", *(f"{key}={value}" for key, value in more.items())]
    return resolve("nano", env, "r3l", 0, overrides=[*overrides, "method_settings.group_size=4"])


def experiences(run, run_dir, task, step, evaluates=False):
    trinity_task = Task(
        workflow=MethodWorkflow,
        raw_task={"id": task.id},
        workflow_args={"run": run.model_dump(mode="json")},
        batch_id=step,
        task_id=3,
        is_eval=evaluates,
    )
    workflow = trinity_task.to_workflow(Rollouts(Learner(run, run_dir)))
    workflow.set_repeat_times(2, 0)
    return asyncio.run(workflow.run_async())


# In mathematics a turn is a line of a response.
@pytest.mark.parametrize("env", ["alfworld", "math", "webshop"])
def test_a_task_is_collected_as_in_the_local_engine(env, tmp_path):
    run = run_of(env)
    with open_session(run, run.model) as session:
        task = session.package.tasks(run.env_settings.train_task_set)[0]
        ctx = session.rollout_context((0, "train", 3), run.sampling.temperature)
        (groups,) = session.concurrently(lambda task: build_method(run).explore(task, ctx), [task])
    (result,) = unpack(experiences(run, tmp_path, task, step=3))
    assert result.position == 3 and result.task.id == task.id
    for ours, theirs in zip(result.groups, groups, strict=True):
        assert ours.objective == theirs.objective
        for a, b in zip(ours.trajectories, theirs.trajectories, strict=True):
            assert a.token_ids().tolist() == b.token_ids().tolist()
            assert a.credit_mask().tolist() == b.credit_mask().tolist()
            assert a.old_logprobs() == pytest.approx(b.old_logprobs(), abs=1e-5)
            for name in ("kind", "reward", "success", "stop_reason"):
                assert getattr(a, name) == getattr(b, name)
    counted = dict(result.counters)
    assert counted.pop("weights/behind") == 0  # step 3 samples with weights after two updates
    counted.pop("tokens/cut", None), counted.pop("dropped/workers")
    assert counted.pop("teacher/contexts", 0) == counted.pop("teacher/with_feedback", 0)
    assert counted == {key: value for key, value in ctx.counters.items() if key != "sampling_rounds"}


def test_an_evaluation_has_the_episodes_of_r3l_evaluate(tmp_path):
    run = run_of("alfworld")
    with open_session(run, run.model) as session:
        task = session.package.tasks(run.env_settings.test_task_set)[5]
        ctx = session.rollout_context((0, "evaluation"), run.evaluation.temperature)
        (expected,) = session.concurrently(lambda task: play_group(ctx, task, 2), [task])
    episodes = experiences(run, tmp_path, task, step="0/alfworld-test", evaluates=True)
    assert [e.tokens.tolist() for e in episodes] == [t.token_ids().tolist() for t in expected]
    assert [e.metrics["success"] for e in episodes] == [t.success for t in expected]


def test_weights_are_synced_at_the_interval():
    assert [synced_version(step, 1) for step in (1, 2, 3)] == [0, 1, 2]
    assert [synced_version(step, 3) for step in (1, 2, 3, 4, 6, 7)] == [0, 0, 0, 3, 3, 6]
