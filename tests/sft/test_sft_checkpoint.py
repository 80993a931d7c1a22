"""The checkpoint that SFT makes."""

import pytest
import torch

from r3l.sft.checkpoint import SFTModel
from r3l.sft.recipe import load_config


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_a_sharpened_model_has_logits_times_the_factor(compute_dtype):
    config = load_config("alfworld-1.5m-hints").model_copy(update={"compute_dtype": compute_dtype})
    model = SFTModel.load("alfworld-1.5m-hints", config)
    ids = torch.arange(5, 25)[None]
    before, weights = model.network(ids).logits, model.master_weights.state_dict()
    weights = {name: weight.clone() for name, weight in weights.items()}
    model.sharpen(1.5)
    torch.testing.assert_close(model.network(ids).logits, 1.5 * before, rtol=2e-2, atol=0.1)
    changed = [name for name, weight in model.master_weights.state_dict().items() if not weight.equal(weights[name])]
    assert changed == ["model.norm.weight"]
