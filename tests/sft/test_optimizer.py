"""Muon for the matrices of the layers, AdamW for the rest: what one step moves, worked out by hand."""

from __future__ import annotations

import torch

from r3l.config import OptimizerConfig
from r3l.local.model.precision import MasterWeights
from r3l.sft.nano_model import build_model, build_tokenizer
from r3l.sft.optimizer import muon_of

LR = 0.01


def test_a_step_moves_matrices_by_orthogonal_updates_and_the_rest_by_the_learning_rate() -> None:
    model = build_model(build_tokenizer(["a b c"]), seed=1, layers=2, hidden_size=64)
    weights = MasterWeights(model)
    before = {name: weight.clone() for name, weight in weights.state_dict().items()}
    generator = torch.Generator().manual_seed(2)
    for weight in weights.parameters:
        weight.grad = torch.randn(weight.shape, generator=generator)
    optimizer = muon_of(weights, OptimizerConfig(lr=LR, weight_decay=0.0))
    optimizer.step()
    moved = {name: weight - before[name] for name, weight in weights.state_dict().items()}
    layers = [name for name, weight in moved.items() if ".layers." in name and weight.ndim == 2]
    assert len(layers) == 2 * 7  # q, k, v, o, gate, up, down
    for name in layers:
        # An orthogonal update scaled by 0.2 sqrt(longer side); five Newton-Schulz steps leave all but the
        # smallest singular values between 0.68 and 1.13.
        scale = 0.2 * max(moved[name].shape) ** 0.5 * LR
        values = torch.linalg.svdvals(moved[name].double()) / scale
        assert values.quantile(0.1) > 0.65 and values.max() < 1.2, name
    for name in moved.keys() - set(layers):  # AdamW's first step: the sign of the gradient, times the rate
        torch.testing.assert_close(moved[name].abs(), torch.full_like(moved[name], LR), rtol=1e-3, atol=0)
