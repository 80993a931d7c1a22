"""Check that the reference decoder computes a model of another architecture as its own class does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from r3l.core.errors import ConfigError
from r3l.core.policy import Sampling
from r3l.local.model.precision import LIMITS
from r3l.local.sampling.decoding import GenerationRequest, ReferenceDecoder


def check_architecture(model: Any) -> None:
    """Raise ConfigError if the reference decoder fails on ``model``, or gives other log-probs than it."""
    model.eval()
    # Two dialogs of different lengths and two turns, so that padding, caches and positions take part.
    prompts = ([1, 2, 3], [4, 5, 6, 7, 8])
    sampling = Sampling(max_tokens=3)
    requests = [GenerationRequest(None, ids, sampling, set(), seed) for seed, ids in enumerate(prompts)]
    try:
        with torch.inference_mode(), _short_window(model.config):
            ReferenceDecoder(model, requests, 0, defaultdict(float)).run()
            dialogs = [[*request.pending, *request.ids, 9] for request in requests]  # 9: the second prompt
            again = [
                GenerationRequest(request.state, dialog[-2:], request.sampling, set(), request.seed)
                for request, dialog in zip(requests, dialogs, strict=True)
            ]
            ReferenceDecoder(model, again, 0, defaultdict(float)).run()
            pairs = zip(dialogs, again, strict=True)
            gap = max(_gap(model, [*dialog, *r.ids], r.logprobs) for dialog, r in pairs)
    except Exception as error:  # noqa: BLE001 - a class may raise anything about a cache that is not its own
        reason = f"{type(error).__name__}: {error}"
    else:
        limit = LIMITS.get(model.dtype, LIMITS[torch.float32])[1]
        reason = f"its log-probs would differ by {gap:.2g} nats" if not gap < limit else ""
    if reason:
        raise ConfigError(
            f"r3l cannot compute models of architecture {model.config.model_type!r} ({model.name_or_path}): "
            f"{reason}. Serve it, with vLLM for example, and evaluate it by --server URL"
        )


@contextmanager
def _short_window(config: Any) -> Iterator[None]:
    """Inside, a sliding window has 4 tokens, so that it matters in short dialogs."""
    window = getattr(config, "sliding_window", None)
    if window:
        config.sliding_window = 4
    try:
        yield
    finally:
        if window:
            config.sliding_window = window


def _gap(model: Any, ids: list[int], logprobs: list[float]) -> float:
    """Largest |``logprobs`` of the last tokens - those of the model's own forward pass| (nats)."""
    output = model(input_ids=torch.tensor([ids], device=model.device))
    logits = output.logits[0, -len(logprobs) - 1 : -1].double()
    own = logits.log_softmax(-1).gather(1, torch.tensor(ids[-len(logprobs) :], device=model.device)[:, None])
    return float((own[:, 0] - torch.tensor(logprobs, device=model.device)).abs().max())
