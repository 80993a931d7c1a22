"""On another device than the CPU: nothing is made on the wrong one, and the numbers are those of the CPU."""

import copy

import pytest
import torch
from conftest import make_trajectory
from local.second_device import DEVICE, second_device
from local.test_policy import talk
from r3l.baselines.grpo import GRPO

from r3l.config import TrainConfig
from r3l.core.batching import rows_of
from r3l.core.trajectory import Group
from r3l.local.policy import LocalPolicy
from r3l.local.trainer import Trainer
from r3l.sft.nano_model import build_model

METHOD = GRPO({})


@pytest.fixture(scope="module")
def nano(nano):
    """A smaller one: every operation is taken apart here."""
    return build_model(nano[1], seed=0, layers=1, hidden_size=64).eval(), nano[1]


def moved(model):
    there = copy.deepcopy(model).to(DEVICE)
    there.tie_weights()  # a real device keeps the one tensor
    return there


def test_sampling(nano, monkeypatch):
    # Before torch 2.13 inference mode lets no tensor subclass be made.
    monkeypatch.setattr(LocalPolicy, "sample", torch.no_grad()(LocalPolicy.sample.__wrapped__))

    def sampled(model):
        return talk(LocalPolicy(model, nano[1], 512, tokens_per_batch=200, forward="packed"), dialogs=2, turns=2)

    here = sampled(nano[0])
    with second_device():
        there = sampled(moved(nano[0]))
    for (a, *_), (b, conversation, _) in zip(here, there, strict=True):
        assert [x.response_ids for x in a] == [x.response_ids for x in b]
        for x, y in zip(a, b, strict=True):
            assert x.logprobs == pytest.approx(y.logprobs, abs=1e-5)
        assert all(layer.device == DEVICE for layer in conversation._state)


@pytest.mark.parametrize(("forward", "recompute"), [("packed", True), ("transformers", False)])
def test_training(nano, forward, recompute):
    """The memory probe, two updates under a KL to a reference, with a sampler that lags behind."""
    config = TrainConfig(
        steps=2, tasks_per_step=1, lr=1e-3, tokens_per_microbatch=24, gradient_checkpointing=recompute, sync_interval=2
    )
    group = Group(make_trajectory(1).task, [make_trajectory(3, 1.0), make_trajectory(2)])
    method = GRPO({"kl_coef": 0.1})
    rows = rows_of(method, [group])

    def trainer_of(model):
        reference = copy.deepcopy(nano[0]).to(model.device)
        sampler = copy.deepcopy(model)
        return Trainer(model, method, config, reference, sampler=sampler, forward=forward)

    def trained(model):
        trainer = trainer_of(model)
        trainer.probe_memory(12)
        metrics = [trainer.step(rows), trainer.step(rows)]
        return trainer, metrics, trainer.kl_to_reference(rows), trainer.logprob_mismatch(rows).mean

    here, metrics_here, *further_here = trained(copy.deepcopy(nano[0]))
    with second_device():
        there, metrics_there, *further_there = trained(moved(nano[0]))
        assert further_there == pytest.approx(further_here, rel=1e-3)
        for a, b in zip(metrics_here, metrics_there, strict=True):
            assert a == pytest.approx(b, rel=1e-4, abs=1e-6)
        for name, weight in here.model.state_dict().items():
            torch.testing.assert_close(there.model.state_dict()[name].cpu(), weight, rtol=1e-3, atol=1e-5)
