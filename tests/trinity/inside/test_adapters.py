"""Adapters with Trinity's own objects: rows, advantages, masks and losses equal the local engine's.

These tests run in Trinity's environment, started by tests/trinity/test_plugin.py, else are skipped.
"""

import asyncio
import logging
from collections import Counter
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

pytest.importorskip("trinity.algorithm", reason="no Trinity in this environment (make trinity)")

from trinity.algorithm import ADVANTAGE_FN, POLICY_LOSS_FN
from trinity.buffer.operators.experience_operator import ensure_v1_operator
from trinity.common.experience import Experience, group_by
from trinity.trainer.tinker.utils import to_tinker_input

from r3l.config import build_method, names, resolve
from r3l.core.batching import collate, microbatches, rows_of, trainable_rows, weighted_as_released
from r3l.core.errors import NonFiniteError
from r3l.core.trajectory import Objective
from r3l.files.json_files import read_jsonl
from r3l.local.session import open_session
from r3l.local.training.logprobs import token_logprobs
from r3l.runs.steps import REFUSED
from r3l.trinity.config import ADVANTAGE, LOSS, LOSS_WITH_REFERENCE
from r3l.trinity.experience import CollectedTask, pack, unpack
from r3l.trinity.scoring import score
from r3l.trinity.sizes import experiences_per_step

METHODS = [name for name in names("methods") if build_method(resolve("nano", "alfworld", name, 0)).trains]
# Tasks whose attempts differ in reward.
TASKS = ("house-look_at_obj_in_light-r6-o8-s113", "house-pick_and_place_simple-r6-o8-s84")
CPU = torch.device("cpu")


def run_of(method):
    """A run with transformers' model, which Trinity trains and which computes the losses below."""
    overrides = ["train.tasks_per_step=2", "workers=0", "compute=transformers"]
    return resolve("nano", "alfworld", method, 0, overrides=overrides)


@pytest.fixture(scope="module", params=METHODS)
def collected(request):
    """Run, model, and two tasks collected by the local engine with the real base checkpoint."""
    run = run_of(request.param)
    method = build_method(run)
    with open_session(run, run.model) as session:
        tasks = {task.id: task for task in session.package.tasks(run.env_settings.train_task_set)}
        results = []
        for position, task in enumerate(tasks[name] for name in TASKS):
            ctx = session.rollout_context((0, "train", 1), 0.7)
            (groups,) = session.concurrently(partial(method.explore, ctx=ctx), [task])
            asyncio.run(score(groups, Scorer(session.model), run.samples, 1 << 20, 0.7))
            results.append(CollectedTask(task, position, groups, ctx.trajectories, dict(ctx.counters)))
        return run, session.model, results


class Scorer:
    """The policy that Trinity's workflow asks for log-probs."""

    def __init__(self, model):
        self.model = model

    async def logprobs(self, ids, temperature, frozen=False):  # nothing has trained yet: the same weights
        ids_1_T = torch.tensor([ids])
        with torch.no_grad():
            return token_logprobs(self.model, ids_1_T, torch.ones_like(ids_1_T), temperature)[0].tolist()


def through_the_pipeline(run, tasks):
    """Result of the advantage operator; experiences are out of order and serialised, as in Trinity."""
    packed = [e for f in reversed(tasks) for e in pack(f)]
    for experience in packed:
        experience.eid.batch = 1
        experience.info["model_version"] = 0
    arrived = Experience.deserialize_many(Experience.serialize_many(packed))
    count = experiences_per_step(run, build_method(run))
    operator = ADVANTAGE_FN.get(ADVANTAGE)
    with TemporaryDirectory() as folder:  # for the trajectory log, which has its own test
        adapter = operator(run=run.model_dump(mode="json"), experiences=count, folder=folder)
        return asyncio.run(ensure_v1_operator(adapter).process(arrived))


def test_packed_tasks_are_unpacked_unchanged(collected):
    _, _, tasks = collected
    packed = [e for f in tasks for e in pack(f)]
    arrived = Experience.deserialize_many(Experience.serialize_many(packed))
    again = unpack(arrived)
    for a, b in zip(tasks, again, strict=True):
        assert (a.task, a.position, a.counters) == (b.task, b.position, b.counters)
        assert len(a.trajectories) == len(b.trajectories)
        for x, y in zip(a.groups, b.groups, strict=True):
            assert (x.objective, x.baseline, x.weight) == (y.objective, y.baseline, y.weight)
            assert list(x.returns_G()) == list(y.returns_G())
            for s, t in zip(x.trajectories, y.trajectories, strict=True):
                assert s.token_ids().tolist() == t.token_ids().tolist()
                assert s.credit_mask().tolist() == t.credit_mask().tolist()
                assert s.old_logprobs() == pytest.approx(t.old_logprobs(), abs=1e-7)
                for name in ("kind", "member", "reward", "stop_reason"):
                    assert getattr(s, name) == getattr(t, name)
                assert (s.restart_turn, s.trainable) == (t.restart_turn, t.trainable)
                assert (s.parsed and s.parsed.as_json()) == (t.parsed and t.parsed.as_json())
                assert [u.response for u in s.turns] == [u.response for u in t.turns]
    of_one_task = [e for e in pack(tasks[0]) if e.info["r3l"]["kind"] == "base"]
    # Trinity's ids distinguish the members of a group.
    assert all(len(runs) == 1 for runs in group_by(of_one_task, "run").values())


def test_rows_are_those_of_the_local_engine_and_a_step_has_a_fixed_number(collected):
    run, _, tasks = collected
    method = build_method(run)
    kept = [f for f in tasks if method.keep(f.groups)]
    rows = trainable_rows(method, rows_of(method, [g for f in kept for g in f.groups]))
    trained, metrics = through_the_pipeline(run, tasks)
    assert len(trained) == experiences_per_step(run, method) >= len(rows)
    ours = []
    for row in rows:
        advantages = np.broadcast_to(row.advantage, row.ids.shape).tolist()
        ours.append((tuple(row.ids), row.sft, row.mask.sum(), advantages))
    theirs = [
        (tuple(e.tokens.tolist()), e.info["sft"], e.action_mask.sum(), e.advantages.tolist())
        for e in trained[: len(rows)]
    ]
    for a, b in zip(sorted(ours), sorted(theirs), strict=True):
        assert a[:3] == b[:3] and a[3][len(a[3]) - len(b[3]) :] == pytest.approx(b[3], rel=1e-6)
    assert not any(e.action_mask.any() for e in trained[len(rows) :])
    assert metrics["rows/trained"] == len(rows) and metrics["dropped/tasks"] == 0
    assert metrics["rollouts"] == sum(f.counters["rollouts"] for f in tasks)


def local_loss(run, model, tasks):
    """The local trainer's loss, and per row the absolute gradients of its tokens' log-probs."""
    method = build_method(run)
    kept = [f for f in tasks if method.keep(f.groups)]
    rows = trainable_rows(method, rows_of(method, [g for f in kept for g in f.groups]))
    total, gradients = 0.0, Counter()
    if method.loss_agg == "microbatch_released":
        rows = weighted_as_released(rows, 1)  # every row is a micro-batch of Trinity's
    for part in microbatches(rows, 4096):
        batch = collate(part, CPU)
        with torch.no_grad():
            logprobs = token_logprobs(model, batch.ids_B_T, batch.mask_B_T, 0.7) * 1.01  # as if updated
        if method.kl_coef > 0:
            object.__setattr__(batch, "ref_logprobs_B_T", logprobs / 1.01)
        logprobs.requires_grad_()
        loss, _ = method.loss(batch, logprobs)
        loss.backward()
        total += loss.item()
        for row, gradient in zip(part, logprobs.grad, strict=True):
            gradients[tuple(row.ids), row.sft] += gradient[: len(row.ids)].abs().sum().item()
    return total, gradients


def logprobs_of(model, experience):
    ids = experience.tokens.long()[None]
    mask = torch.zeros_like(ids)
    mask[0, experience.prompt_length :] = experience.action_mask
    with torch.no_grad():
        return token_logprobs(model, ids, mask, 0.7)[0, experience.prompt_length :]


def loss_fn(run, backend):
    name = LOSS_WITH_REFERENCE if build_method(run).kl_coef > 0 else LOSS
    return POLICY_LOSS_FN.get(name)(backend=backend, run=run.model_dump(mode="json"))


def test_the_tinker_trainer_sees_the_same_loss_and_gradient(collected):
    """One row per call, as in Trinity's tinker trainer, which sums the losses (r3l.trinity.config)."""
    run, model, tasks = collected
    expected, gradients = local_loss(run, model, tasks)
    assert sum(gradients.values()) > 0  # these tasks have a gradient
    trained, _ = through_the_pipeline(run, tasks)
    _, _, inputs = to_tinker_input(trained, logging.getLogger())
    total, seen = 0.0, Counter()
    for experience, tensors in zip(trained, inputs, strict=True):
        before = logprobs_of(model, experience)
        logprob = (before * 1.01).requires_grad_()
        loss, _ = loss_fn(run, "tinker")(logprob=logprob, ref_logprob=before, **tensors)
        loss.backward()
        total += loss.item()
        seen[tuple(experience.tokens.tolist()), experience.info["sft"]] += logprob.grad.abs().sum().item()
    assert total == pytest.approx(expected, abs=1e-5)
    assert sum(seen.values()) == pytest.approx(sum(gradients.values()), rel=1e-5)
    for key, size in gradients.items():
        assert seen[key] == pytest.approx(size, abs=1e-5)


def test_verls_batch_gives_the_same_loss(collected):
    """Padded rows, as in verl's trainer; ``replicas`` compensates for the average over two ranks."""
    from trinity.trainer.verl.utils import to_data_proto

    run, model, tasks = collected
    expected, _ = local_loss(run, model, tasks)
    trained, _ = through_the_pipeline(run, tasks)
    data = to_data_proto(trained, 0, model, logging.getLogger()).batch
    fn = loss_fn(run, "verl")
    fn.replicas = 2
    width = data["responses"].shape[1]
    before = torch.zeros(len(trained), width)
    for row, experience in enumerate(trained):
        logprob = logprobs_of(model, experience)
        before[row, : len(logprob)] = logprob
    tensors = {key: data[key] for key in fn.select_keys if key in data.keys()}  # noqa: SIM118 - a TensorDict
    tensors |= {"old_log_probs": data["rollout_log_probs"], "ref_log_prob": before}
    halves = [slice(0, len(trained) // 2), slice(len(trained) // 2, None)]  # one half per rank
    losses = []
    for half in halves:
        loss, _ = fn(log_prob=before[half] * 1.01, **{k: v[half] for k, v in tensors.items()})
        losses.append(loss.item())
    assert sum(losses) / 2 == pytest.approx(expected, abs=1e-5)


def test_numbers_that_are_not_finite_are_rejected(collected, tmp_path):
    """A NaN advantage fails in the pipeline, which keeps the rows; a NaN log-prob in the trainer."""
    run, model, tasks = collected
    operator = ADVANTAGE_FN.get(ADVANTAGE)
    adapter = operator(run=run.model_dump(mode="json"), experiences=99, folder=str(tmp_path))
    adapter.method.step_advantages = lambda groups: [np.full(len(g.trajectories), np.nan) for g in groups]
    adapter.method.loss_agg = "token_mean"
    arrived = [e for f in tasks for e in pack(f)]
    for experience in arrived:
        experience.eid.batch, experience.info["model_version"] = 7, 0
    if any(group.objective is Objective.POLICY for f in tasks for group in f.groups):
        message = rf"method {run.method}, step 7: advantage of row 0 \(task house-.* nan"
        with pytest.raises(NonFiniteError, match=message):
            adapter.process(arrived)
        assert len(read_jsonl(tmp_path / REFUSED)) >= 1
    trained, _ = through_the_pipeline(run, tasks)
    _, _, inputs = to_tinker_input(trained, logging.getLogger())
    before = logprobs_of(model, trained[0])
    with pytest.raises(NonFiniteError, match="log-prob in training of row 0 of a micro-batch is nan"):
        loss_fn(run, "tinker")(logprob=before * np.nan, ref_logprob=before, **inputs[0])
