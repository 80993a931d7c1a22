"""`r3l bench curves`: made-up rows, operations and bytes by hand, and the verb itself."""

import numpy as np
import pytest

from r3l.bench import curves
from r3l.bench.operations import counted
from r3l.config import resolve
from r3l.local.kv_cache import head_size


def shared_length(a, b):
    return int(np.argmin(np.append(a == b, False)))


def test_made_up_rows_share_what_they_are_to_share():
    rows = curves.apart(words=10, rows=12, tokens=8)
    assert rows.shape == (12, 8) and rows.max() < 10
    assert all(shared_length(rows[a], rows[b]) < 2 for a in range(12) for b in range(a))
    groups = curves.alike(rows, 10, group=4, shared=5)
    lengths = {(a // 4 == b // 4, shared_length(groups[a], groups[b])) for a in range(12) for b in range(a)}
    assert {length for together, length in lengths if together} <= {5, 6}  # 10 and 11 begin with 1, 0 and 1, 1
    assert all(length < 2 for together, length in lengths if not together)
    assert (curves.alike(rows, 10, group=4, shared=0) == rows).all()


def test_operations_and_bytes_of_decoding_by_hand(nano):
    """A token passes every weight matrix once and the vocabulary's once: 2 operations a weight. Attention: 2 operations
    a column, number of a head and head, for the scores and again for the values; columns 9 to 24 after 8 tokens."""
    model = nano[0]
    config, size = model.config, head_size(model.config)
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
    matrices += config.vocab_size * config.hidden_size * config.tie_word_embeddings
    columns = sum(range(9, 25))
    attention = 4 * columns * config.num_hidden_layers * config.num_attention_heads * size
    decoding = curves._Decoding(model, 3, 8)
    with counted() as operations:
        decoding()
    assert operations == {"linear": 3 * 2 * matrices * 16, "attention": 3 * attention}
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * size * 4
    weights = sum(p.numel() for p in model.parameters()) * 4
    assert decoding.bytes == 16 * weights + 3 * cached * sum(range(8, 24))


def test_a_share_of_the_limit_by_hand(monkeypatch):
    """No operation, 6 bytes at 2 a second: 3 s at least. Its two tokens take 12 s: 6 each, a quarter of the limit."""
    times = iter([0.0, 5.0, 10.0, 22.0])
    monkeypatch.setattr(curves, "clock", lambda: next(times))

    class Work:
        units, bytes = 2, 6

        def __call__(self):
            pass

    point = curves._point(Work(), (1, 4), 1, {"flop_per_s": 1.0, "bytes_per_s": 2.0})
    assert point == {"rows": 1, "tokens": 4, "seconds": 6, "flop": 0, "share": 0.25, "share_of_matrix_rate": 0}


def test_every_measurement_runs():
    grid = curves.Grid((1, 2), (2,), (8,), (2,), (0.0, 0.5), of=4, tokens=8)
    report = curves.bench_curves(resolve("nano", "math", "grpo", 0), 1, grid)
    assert [(p["rows"], p["tokens"]) for p in report["decoding"]] == [(1, 8), (2, 8)]
    one, two = (p["flop"] for p in report["decoding"])
    assert two == 2 * one and all(p["share"] > 0 for p in report["decoding"] + report["training"])
    assert [(p["group"], p["share"]) for p in report["sharing"]] == [(2, 0.0), (2, 0.5)]


@pytest.mark.parametrize("shared", [0, 3])
def test_shared_rows_train_as_rows_do_that_stand_alone(nano, shared):
    """The pass that is timed gives the gradient that padded rows give."""
    model = nano[0]
    ids = curves.alike(curves.apart(model.config.vocab_size, 4, 8), model.config.vocab_size, 4, shared)
    gradients = []
    for padded in (False, True):
        curves._Training(model, ids, shared, padded)()
        gradients.append(model.model.embed_tokens.weight.grad.clone())
    model.zero_grad()
    assert np.allclose(*gradients, atol=1e-4) and gradients[0].abs().max() > 0.01
