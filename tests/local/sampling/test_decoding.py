"""Decoding a batch: queued responses begin in the rows of finished ones; caches, blocks, shared prompts."""

from collections import defaultdict

import pytest
import torch

from r3l.core.policy import Sampling
from r3l.files.paths import STORED_MODELS
from r3l.local.checkpoint import load_model
from r3l.local.kernels.cpu_kernel_decoder import KernelCache, KernelDecoder
from r3l.local.sampling import packed_decoding
from r3l.local.sampling.cuda_graphs import GraphDecoder, GraphStorage
from r3l.local.sampling.decoding import GenerationRequest, RequestQueue
from r3l.local.sampling.packed_decoding import PackedDecoder, RowCache, Storage
from r3l.local.sampling.policy import SamplingProgress

LENGTHS = 3 * [33] + [100] + 18 * [33]  # tokens of each response; the long one leaves free rows on both sides


@pytest.fixture(scope="module")
def model():
    return load_model(str(STORED_MODELS / "math-1.5m"), torch.device("cpu"), "packed")[0]


def dialogs(later):
    """Each may have 130 tokens in all, from the ninth on ``later``; some open alike."""
    columns = [130] * 8 + [later] * 14
    return [
        GenerationRequest(
            None,
            list(range(5 + row % 7, 5 + row % 7 + most - length)),
            Sampling(max_tokens=length),
            set(),
            row,
        )
        for row, (length, most) in enumerate(zip(LENGTHS, columns, strict=True))
    ]


@pytest.mark.parametrize(("later", "passes"), [(130, 102), (140, 135)])
@pytest.mark.parametrize("decoder", [PackedDecoder, KernelDecoder, GraphDecoder])
@torch.inference_mode()
def test_queued_responses_begin_in_the_rows_of_finished_ones(model, decoder, later, passes):
    """Eight rows. While the long response takes 100 passes, seven, seven and seven short ones are
    served: 102 with a pass for the prompts of the second and the third seven. Where later dialogs are longer
    they have seven rows: seven, six, six and two are served, and the two go on for 32 passes after the long
    one: 100 + 3 + 32. Batches that wait for their longest took 100 + 33 + 33."""
    storage = GraphStorage() if decoder is GraphDecoder else Storage()
    apart, together, counts = dialogs(later), dialogs(later), defaultdict(float)
    for request in apart:
        PackedDecoder(Storage(), model, [request], 0, defaultdict(float)).run()
    queue = RequestQueue(together, budget=8 * 130)
    while queue:
        decoder(storage, model, queue.take_batch(), 0, counts).run(queue=queue)
    assert counts["forwards"] == passes
    for one, other in zip(together, apart, strict=True):
        assert len(one.ids) == one.sampling.max_tokens
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        torch.testing.assert_close(one.state, other.state, atol=1e-4, rtol=1e-4)


def test_queued_requests_never_make_a_batch_too_large():
    """100 tokens are two rows of 50, or one of up to 100 or more."""
    lengths = [50, 200, 30, 50, 60]
    requests = [
        GenerationRequest(None, [1] * (length - 1), Sampling(max_tokens=1), set(), 0) for length in lengths
    ]
    queue = RequestQueue(requests, budget=100)
    assert [request.columns() for request in queue.take_batch()] == [50, 30]
    assert [request.columns() for request in queue.take_fitting(free=2, rows=2)] == [50]
    assert queue.take_fitting(free=1, rows=2) == queue.take_fitting(free=0, rows=1) == []
    assert [[request.columns() for request in queue.take_batch()] for _ in range(2)] == [[60], [200]]
    assert not queue


def test_the_time_left_counts_queued_requests():
    """One response of four has ended after the first token and 10 of 1 s, two have 5 and 1 of 20 tokens, one
    waits: 15 + 19 + 20 may still come, in two rows. One end in 9 tokens: the three that are left are likely
    to take 9 each in two rows, 13.5, as is the longer of two (9 x (1 + 1/2))."""
    requests = [
        GenerationRequest(None, [], Sampling(max_tokens=20), {9}, 0, ids=[1] * have, turn=have)
        for have in (5, 1, 0)
    ]
    progress = SamplingProgress(
        [*requests, GenerationRequest(None, [], Sampling(max_tokens=20), {9}, 0, ids=[1, 2, 9])]
    )
    progress.steps, progress.rows = 11, 9
    assert progress.line(live=2, seconds=10) == (
        "rollout, turn 5: 1 of 4 responses ended, 9 tokens, about 14 s left of it, 27 s at most"
    )
    progress = SamplingProgress(requests)
    progress.steps, progress.rows = 11, 6
    assert progress.line(live=2, seconds=10) == (
        "rollout, turn 5: 0 of 3 responses ended, 6 tokens, 27 s left of it at most"
    )
    # With drafts three rows of passes sampled these six tokens.
    progress.rows = 3
    assert progress.line(live=2, seconds=10).endswith("6 tokens, 14 s left of it at most")


@torch.inference_mode()
def test_long_dialogs_are_encoded_in_parts(model, monkeypatch):
    """Prompts of 97 and 30 tokens, then a second turn of up to 50 more: the same in parts of 40 tokens and of
    blocks of 300 scores as at once."""
    at_once, in_parts = ([dialogs(130)[k] for k in range(3, 22)] for _ in range(2))
    counts = {}
    for name, requests in (("at once", at_once), ("in parts", in_parts)):
        if name == "in parts":
            monkeypatch.setattr(packed_decoding, "SCORES", 300)
            monkeypatch.setattr(packed_decoding, "ACTIVATIONS", 40 * model.config.intermediate_size)
        counts[name] = defaultdict(float)
        for turn in range(2):
            if turn:
                for k, request in enumerate(requests):
                    request.pending, request.ids, request.logprobs = list(range(7, 10 + 2 * k)), [], []
            PackedDecoder(Storage(), model, requests, 0, counts[name]).run()
    assert counts["in parts"]["forwards"] > counts["at once"]["forwards"]
    assert counts["in parts"]["encoded"] == counts["at once"]["encoded"]
    for one, other in zip(in_parts, at_once, strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("decoder", [PackedDecoder, KernelDecoder, GraphDecoder])
@torch.inference_mode()
def test_a_shared_beginning_of_prompts_is_encoded_once(model, decoder):
    """150 tokens, then 1, 2, 2 (the same) and 10 of their own; a dialog that goes on has 3 more. 150 + 1 + 2
    + 10 + 3 are encoded; of prompts with less in common every token."""
    tokens = [token % 40 + 5 for token in range(150)]

    def requests(shared):
        going_on = GenerationRequest(None, [5, 6, 7], Sampling(max_tokens=4), set(), 0)
        PackedDecoder(Storage(), model, [going_on], 0, defaultdict(float)).run()
        going_on.pending, going_on.ids, going_on.logprobs = [going_on.ids[-1], 8, 9], [], []
        own = [[7], [8, 9], [8, 9], list(range(9, 19))]
        return [
            GenerationRequest(None, shared + o, Sampling(max_tokens=9), set(), k) for k, o in enumerate(own)
        ] + [going_on]

    for shared, encoded in ((tokens, 166), (tokens[:50], 3 * 50 + 16)):
        together, apart, counts = requests(shared), requests(shared), defaultdict(float)
        decoder(GraphStorage() if decoder is GraphDecoder else Storage(), model, together, 0, counts).run()
        assert counts["encoded"] == encoded
        for one, other in zip(together, apart, strict=True):
            PackedDecoder(Storage(), model, [other], 0, defaultdict(float)).run()
            assert one.ids == other.ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            torch.testing.assert_close(one.state, other.state, atol=1e-4, rtol=1e-4)


def test_no_block_has_more_scores_than_its_limit(monkeypatch):
    """At most 60 scores: rows of 5 and 4 new tokens have 5 queries of 5 columns each, 50 in all. A row of 5
    after 25 others has 30 columns, so two queries a block."""
    monkeypatch.setattr(packed_decoding, "SCORES", 60)
    blocks = list(packed_decoding.attending_together([5, 4, 20], [0, 0, 10]))
    assert blocks[0] == ([1, 0], 0, 5)
    assert blocks[1:] == [([2], first, 2) for first in range(0, 20, 2)]
    assert list(packed_decoding.attending_together([5], [25])) == [([0], 0, 2), ([0], 2, 2), ([0], 4, 1)]
    assert list(packed_decoding.attending_together([2], [99])) == [([0], 0, 1), ([0], 1, 1)]


@pytest.mark.parametrize("caches", [RowCache, KernelCache])
def test_rows_of_a_cache_move_within_its_memory(model, caches):
    """Copied as well, the caches of 64 responses of a 1.5B model did not fit into 24 GB."""
    storage = Storage()
    storage.take((2**22,), model)  # room for what follows
    cache = caches(6, 40, model, storage)
    held = [torch.randn(*cache.row(0).shape[:3], 30 + row, cache.row(0).shape[4]) for row in range(6)]
    for row, state in enumerate(held):
        cache.put(row, state)
    start = cache.layers.untyped_storage().data_ptr()
    cache.keep_rows([0, 2, 5, 3])
    cache.reserve(150)
    assert cache.layers.shape[2] == 4 and cache.layers.shape[4] >= 150
    for row, before in enumerate([0, 2, 5, 3]):
        assert torch.equal(cache.row(row), held[before])
    assert cache.layers.untyped_storage().data_ptr() == start
