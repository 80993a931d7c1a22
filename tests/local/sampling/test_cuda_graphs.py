"""r3l/local/sampling/cuda_graphs.py: on a CPU all but the capture (examples/gpu_check.py runs it on a
GPU)."""

from collections import defaultdict

import pytest
import torch

from r3l.core.policy import Sampling
from r3l.files.paths import STORED_MODELS
from r3l.local.checkpoint import load_model
from r3l.local.sampling.cuda_graphs import GraphDecoder, GraphStorage
from r3l.local.sampling.decoding import GenerationRequest
from r3l.local.sampling.packed_decoding import PackedDecoder, Storage

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


@pytest.fixture(params=["cpu", GPU])
def model(request):
    return load_model(str(STORED_MODELS / "math-1.5m"), torch.device(request.param), "packed")[0]


def dialogs(count, first=0):
    """Rows that end at different times, so that the caches move, and pass column 128, so that there are two
    graphs."""
    return [
        GenerationRequest(None, list(range(5, 100 + row)), Sampling(max_tokens=4 + 5 * row), frozenset(), row)
        for row in range(first, first + count)
    ]


def turns(decoder, storage, model):
    """A batch of 12, a second turn of the odd ones of these (in smaller caches), and a larger batch."""
    first, larger = dialogs(12), dialogs(18, first=2)
    decoder(storage, model, first, 0, defaultdict(float)).run()
    second = [
        GenerationRequest(one.state, [one.ids[-1], 7, 9], Sampling(max_tokens=6), frozenset(), 50 + row)
        for row, one in enumerate(first)
        if row % 2
    ]
    for batch in (second, larger):
        decoder(storage, model, batch, 0, defaultdict(float)).run()
    return [*first, *second, *larger]


@torch.inference_mode()
def test_graphs_sample_what_the_operations_sample_one_by_one(model):
    storage = GraphStorage()
    graphs = turns(GraphDecoder, storage, model)
    for again in (
        graphs,
        turns(GraphDecoder, storage, model),
    ):  # by graphs and in memory that other batches left
        for one, other in zip(again, turns(PackedDecoder, Storage(), model), strict=True):
            assert len(one.ids) == other.sampling.max_tokens
            assert one.ids == other.ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            torch.testing.assert_close(one.state, other.state, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_graphs_serve_one_batch_after_another(model):
    storage = GraphStorage()
    for _ in range(2):  # in the first the larger batch has taken more memory
        turns(GraphDecoder, storage, model)
    graphs = dict(storage._graphs)
    turns(GraphDecoder, storage, model)
    assert storage._graphs == graphs
    assert {rows for _, _, rows, *_ in graphs} == {8, 16, 24}
    storage.clear()
    assert not storage._graphs and storage._flat is None
