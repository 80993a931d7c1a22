"""What SFT draws, minimises and merges, and the recipes that it refuses."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sft_phases import phase

from r3l import config
from r3l.config import OptimizerConfig
from r3l.config import sft_recipe as recipes
from r3l.config.sft_recipe import ExampleKind
from r3l.core.errors import ConfigError, DataError
from r3l.files.paths import STORED_MODELS
from r3l.local.model import precision
from r3l.local.training.trainer import Trainer
from r3l.sft.checkpoint import SFTModel
from r3l.sft.examples import SFTExample
from r3l.sft.training import WeightedCrossEntropy, build, draw, rows_of


def test_the_examples_of_a_step_are_those_that_the_stored_models_saw():
    """Lengths of the examples drawn at steps 0 and 7, as the recipes of the stored models drew them."""
    examples = {
        kind: [
            SFTExample(np.zeros(n + 1, dtype=np.int32), np.ones(n + 1, dtype=np.float32)) for n in range(50)
        ]
        for kind in ExampleKind
    }
    changes = {"tokens_per_step": 200, "retry_share": 0.4}
    nano = recipes.load_config("puzzles-1.5m").model_copy(update=changes)
    assert [len(x.ids) for x in draw(examples, nano, nano.phases[0], 0)] == [44, 41, 50, 24, 24, 4, 9, 26]
    assert [len(x.ids) for x in draw(examples, nano, nano.phases[0], 7)] == [
        29,
        21,
        35,
        25,
        45,
        26,
        7,
        20,
        25,
        8,
    ]


@pytest.mark.parametrize(
    ("decay_steps", "expected"),
    [
        (4, [0.5, 1, 1, 0.525, 0.05, 0.05, 0.05, 0.05]),  # stays at its end
        (8, [0.5, 1, 1, 0.936362, 0.7625, 0.525, 0.2875, 0.113638]),
    ],
)
def test_the_learning_rate_warms_up_and_never_rises_again(
    recipe, tmp_path, monkeypatch, decay_steps, expected
):
    rates = []
    step = Trainer.step

    def recorded(self, rows, lr):
        rates.append(lr)
        return step(self, rows, lr=lr)

    monkeypatch.setattr(Trainer, "step", recorded)
    recipe({**phase(0, 1.0), "tasks": 2, "steps": 8, "decay_steps": decay_steps, "warmup_steps": 2})
    build("tiny", tmp_path / "h", workers=0)
    assert rates == pytest.approx(expected, abs=1e-6)


def test_a_step_minimises_the_weighted_mean_cross_entropy(nano):
    """Over all tokens but the first of each example, whatever the micro-batches."""
    rng = np.random.default_rng(0)
    examples = [
        SFTExample(rng.integers(5, 200, n).astype(np.int32), rng.choice([0, 0.25, 1], n).astype(np.float32))
        for n in (9, 30, 17, 5)
    ]
    model = copy.deepcopy(nano[0])
    config = OptimizerConfig(lr=1e-3, tokens_per_microbatch=40)
    trainer = Trainer(model, WeightedCrossEntropy(), config)
    metrics = trainer.step(rows_of(examples), lr=0.0)
    total, weights = 0.0, 0.0
    for example in examples:
        ids, weight = torch.from_numpy(example.ids).long(), torch.from_numpy(example.weight)[1:]
        losses = torch.nn.functional.cross_entropy(
            nano[0](ids[None]).logits[0, :-1], ids[1:], reduction="none"
        )
        total, weights = total + (losses * weight).sum(), weights + weight.sum()
    assert metrics["loss"] == pytest.approx((total / weights).item(), rel=1e-5)
    gradients = torch.autograd.grad(total / weights, list(nano[0].parameters()))
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm().item()
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), nano[0].parameters(), strict=True)
    )  # lr 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_tokens": 1}, r"2 of 2 exceed max_tokens \(1\). In the recipe, raise max_tokens"),
        ({"retry_share": 1, "guidance": "none"}, "the share of episode examples is 0. .* change retry_share"),
    ],
)
def test_a_phase_whose_examples_cannot_be_drawn_is_one_paragraph(recipe, tmp_path, settings, reason):
    recipe({**phase(0, 1e-3), "tasks": 2}, **settings)
    with pytest.raises(DataError, match=f"recipe tiny, phase 1: no example can be drawn: {reason}") as error:
        build("tiny", tmp_path / "h", workers=0)
    assert "\n" not in str(error.value) and not (tmp_path / "h").exists()


def test_an_adapter_is_taught_and_merged_into_the_weights_of_its_base(recipe, tmp_path):
    """Projections differ from the base by a matrix of the adapter's rank, all else by nothing."""
    recipe(phase(0, 1e-2), model="math-1.5m", optimizer="adamw", lora={"rank": 2, "alpha": 4})
    manifest = build("tiny", tmp_path / "out", workers=0)
    taught = load_file(tmp_path / "out" / "model.safetensors")
    assert manifest["parameters"] == sum(weight.numel() for weight in taught.values())
    base = load_file(STORED_MODELS / "math-1.5m" / "model.safetensors")
    assert taught.keys() == base.keys()
    changed = {name for name in base if not torch.equal(taught[name], base[name])}
    assert changed == {name for name in base if name.endswith("_proj.weight")}
    for name in changed:
        singular = torch.linalg.svdvals((taught[name] - base[name]).double())
        assert singular[1] > 1e-6 and singular[2] < 1e-6
    adapter = load_file(tmp_path / "out" / "lora" / "adapter_model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB")
    expected = (base[f"{name}.weight"].double() + 4 / 2 * b @ a).float()
    assert torch.equal(taught[f"{name}.weight"], expected)
    assert config.model_identity(str(tmp_path / "out"))["sha256"]  # the folder is a model as any other


@pytest.mark.parametrize(("fast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_passes_are_bfloat16_only_where_the_processor_multiplies_it(recipe, monkeypatch, fast, dtype):
    """Elsewhere torch multiplies them at 1 GFLOP/s, float32 at 153 (measured on two cores with AVX2)."""
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: fast)
    recipe(phase(0, 1e-2), model="math-1.5m", compute_dtype="bfloat16")
    model = SFTModel.load(recipes.load_config("tiny"))
    assert {parameter.dtype for parameter in model.network.parameters()} == {dtype}
    assert {weight.dtype for weight in model.master_weights.state_dict().values()} == {torch.float32}


def test_an_adapter_without_a_base_is_refused(recipe):
    recipe(phase(0, 1e-2), lora={"rank": 2}, optimizer="adamw")
    with pytest.raises(ConfigError, match="lora.rank needs a model"):
        recipes.load_config("tiny")


def test_a_sharpened_adapter_is_refused_before_it_is_trained(recipe):
    recipe(phase(0, 1e-2), lora={"rank": 2}, optimizer="adamw", model="webshop-1.5m", sharpness=1.5)
    with pytest.raises(ConfigError, match="sharpness scales the weights of a nano model"):
        recipes.load_config("tiny")


@pytest.mark.parametrize("size", [32, 96])
def test_a_size_whose_heads_cannot_share_two_keys_is_refused(recipe, size):
    recipe(phase(0, 1e-2), hidden_size=size)
    with pytest.raises(ConfigError, match="hidden_size"):
        recipes.load_config("tiny")
