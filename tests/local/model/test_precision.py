"""The precision policy, bfloat16 computed on the CPU: what is rounded, what is not, what a checkpoint
keeps."""

import copy

import pytest
import torch
from conftest import make_trajectory
from r3l.baselines.grpo import GRPO
from safetensors.torch import load_file

from r3l.config import TrainConfig, resolve
from r3l.core.batching import rows_of
from r3l.core.errors import EngineError
from r3l.core.method import Batch
from r3l.core.trajectory import Group
from r3l.files.json_files import read_jsonl
from r3l.local import checkpoint
from r3l.local.engine import train
from r3l.local.model import precision
from r3l.local.model.forward import vocabulary_logits, vocabulary_projection
from r3l.local.model.precision import MasterWeights
from r3l.local.training.measures import LogprobMismatch, OffPolicyLogprobs
from r3l.local.training.trainer import Trainer

METHOD = GRPO({})
CONFIG = TrainConfig(steps=1, tasks_per_step=1, lr=1e-4, tokens_per_microbatch=16)


def weight(value):
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def test_updates_too_small_for_bfloat16_add_up_in_the_master_weights():
    """Near 1 bfloat16 steps by 2**-7 = 0.0078: one update of 0.001 is lost to it, four are not."""
    model = weight(1.0)
    master_weights = MasterWeights(model, torch.bfloat16)
    (master,) = master_weights.parameters
    for updates, seen in ((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0078125)):
        with torch.no_grad():
            master += 0.001
        master_weights.copy_to_model()
        assert master.item() == pytest.approx(1 + updates / 1000)
        assert model.weight.dtype == torch.bfloat16 and model.weight.item() == seen


def test_gradients_of_micro_batches_are_added_in_float32():
    """256 + 1 is 256 in bfloat16, which has 8 bits."""
    model = weight(1.0)
    master_weights = MasterWeights(model, torch.bfloat16)
    for gradient in (256.0, 1.0):
        model.weight.grad = torch.full((1, 1), gradient, dtype=torch.bfloat16)
        master_weights.accumulate_gradients()
        assert model.weight.grad is None
    assert master_weights.parameters[0].grad.item() == 257.0


def test_logits_are_float32_sums_of_rounded_factors(nano):
    model = copy.deepcopy(nano[0])
    precision.cast_parameters(model, torch.bfloat16)
    hidden = torch.randn(3, model.config.hidden_size).bfloat16()
    logits = vocabulary_logits(hidden, vocabulary_projection(model))
    expected = hidden.double() @ model.lm_head.weight.double().T
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fast", [True, False])
def test_a_cpu_computes_in_bfloat16_where_it_multiplies_it(monkeypatch, fast):
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: fast)
    wanted = ("float32", "bfloat16", "bfloat16_anywhere")
    found = [precision.compute_dtype(one, torch.device("cpu")) is torch.bfloat16 for one in wanted]
    assert found == [False, fast, True]


def test_a_step_in_bfloat16_on_a_cpu(tmp_path):
    """It is computed in another type (the entropy differs from the fourth digit on, not the second), sampling
    and training agree within the limit that r3l preflight sets, and what it leaves is float32."""
    steps = {}
    for dtype in ("float32", "bfloat16_anywhere"):
        changes = ["train.steps=1", "train.tasks_per_step=2", f"compute_dtype={dtype}"]
        train(resolve("nano", "math", "grpo", 0, overrides=changes), tmp_path / dtype)
        (steps[dtype],) = read_jsonl(tmp_path / dtype / "metrics.jsonl")
        weights = load_file(tmp_path / dtype / "checkpoints" / checkpoint.name_of(1) / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    ratio = steps["bfloat16_anywhere"]["entropy"] / steps["float32"]["entropy"]
    assert 1e-4 < abs(ratio - 1) < 0.1
    assert steps["bfloat16_anywhere"]["logprob_mismatch/mean"] < precision.LIMITS[torch.bfloat16][0]


def test_a_step_computed_in_bfloat16_moves_the_master_weights_and_resumes_exactly(nano, tmp_path):
    model = copy.deepcopy(nano[0])
    start = copy.deepcopy(model.state_dict())
    trainer = Trainer(model, METHOD, CONFIG, master_weights=MasterWeights(model, torch.bfloat16))
    rows = rows_of(METHOD, [Group(make_trajectory(1).task, [make_trajectory(3, 1.0), make_trajectory(2)])])
    metrics = trainer.step(rows)
    master_weights = trainer.master_weights.state_dict()
    assert metrics["grad_norm"] > 0 and any(
        not torch.equal(master_weights[name], start[name]) for name in master_weights
    )
    for name, computed in model.named_parameters():
        assert torch.equal(computed, master_weights[name].bfloat16())

    saved = checkpoint.save(tmp_path, trainer, nano[1], "f", {})
    stored = load_file(saved / "model.safetensors")
    assert all(torch.equal(stored[name], master_weights[name]) for name in master_weights)
    again, _ = checkpoint.load_model(str(saved), torch.device("cpu"))
    resumed = Trainer(again, METHOD, CONFIG, master_weights=MasterWeights(again, torch.bfloat16))
    checkpoint.load_trainer(saved, resumed, 1)
    for one in (trainer, resumed):
        one.step(rows)
    assert all(
        torch.equal(a, b)
        for a, b in zip(trainer.master_weights.parameters, resumed.master_weights.parameters, strict=True)
    )


def batch_of(mask_B_T, old_B_T, sft_B, off_policy_B):
    return Batch(
        ids_B_T=mask_B_T.long(),
        mask_B_T=mask_B_T,
        weight_B_T=mask_B_T,
        old_logprobs_B_T=old_B_T,
        advantages_B_T=torch.ones(3),
        teacher_logprobs_B_T=old_B_T,
        taught_B=off_policy_B,
        sft_B=sft_B,
        off_policy_B=off_policy_B,
    )


def test_the_mismatch_counts_what_was_sampled_in_this_context():
    """Row 0 counts (0.5 and 0.25; its last token is masked); sft and off-policy rows do not."""
    old_B_T = torch.tensor([[0.0, -1.0, -2.0, -9.0]] * 3)
    new = torch.tensor([[0.0, -1.5, -1.75, -1.0]] * 3)
    mask_B_T = torch.tensor([[0.0, 1.0, 1.0, 0.0]] * 3)
    sft_B, off_policy_B = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    batch = batch_of(mask_B_T, old_B_T, sft_B, off_policy_B)
    mismatch = LogprobMismatch()
    mismatch.add(batch, new)
    assert mismatch.metrics() == {"logprob_mismatch/mean": 0.375, "logprob_mismatch/max": 0.5}
    assert LogprobMismatch().metrics() == {}


def test_taught_tokens_are_counted_without_their_hint():
    """Row 0 was sampled here, row 1 is distilled (-1 and -7 after -0.5 and -2 with the hint), row 2 is
    imitated."""
    mask_B_T = torch.tensor([[0.0, 1.0, 1.0]] * 3)
    old_B_T = torch.tensor([[0.0, -1.0, -1.0], [0.0, -0.5, -2.0], [0.0, 0.0, 0.0]])
    new_B_T = torch.tensor([[0.0, -9.0, -9.0], [0.0, -1.0, -7.0], [0.0, -3.0, -3.0]])
    sft_B, off_policy_B = torch.tensor([False, False, True]), torch.tensor([False, True, False])
    batch = batch_of(mask_B_T, old_B_T, sft_B, off_policy_B)
    taught = OffPolicyLogprobs()
    taught.add(batch, new_B_T)
    expected = {
        "distilled/nll": 4,
        "distilled/nll_p99": 6.94,
        "distilled/unlikely": 0.5,
        "distilled/hint_gap": 2.75,
    }
    expected |= {"imitated/nll": 3, "imitated/nll_p99": 3, "imitated/unlikely": 0}
    assert taught.metrics() == pytest.approx(expected)
    assert OffPolicyLogprobs().metrics() == {}


def test_probing_the_memory_changes_nothing(nano):
    model = copy.deepcopy(nano[0])
    trainer = Trainer(model, METHOD, CONFIG)
    trainer.probe_memory(8)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), nano[0].parameters(), strict=True))


def test_without_the_memory_a_run_goes_on_with_checkpointing(nano, monkeypatch, caplog):
    """Once, and it is logged; if that is not enough either, the error says what to lower."""
    tried = []

    def token_logprobs(trainer, model, ids_B_T, mask_B_T):
        tried.append([layer.gradient_checkpointing for layer in model.model.layers])
        if len(tried) != 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return model.lm_head.weight.sum()[None]

    monkeypatch.setattr(Trainer, "token_logprobs", token_logprobs)
    trainer = Trainer(copy.deepcopy(nano[0]), METHOD, CONFIG)
    trainer.probe_memory(8)
    assert not any(tried[0]) and all(tried[1]) and "train.gradient_checkpointing=true" in caplog.text
    assert all(p.grad is None for p in trainer.model.parameters())
    with pytest.raises(
        EngineError, match="out of GPU memory in probing .* lower train.tokens_per_microbatch"
    ):
        trainer.probe_memory(8)
    assert len(tried) == 3


def test_frozen_weights_can_be_rounded_alone(nano):
    model = copy.deepcopy(nano[0])
    model.lm_head.weight.requires_grad_(False)
    precision.cast_parameters(model, torch.bfloat16, frozen_alone=True)
    assert all((p.dtype == torch.float32) == p.requires_grad for p in model.parameters())
