"""Check that our sampler computes a model of a foreign architecture as transformers' class does.

Models outside the packed pass's family are sampled by the reference decoder (transformers' layers on our
caches). There, layers with another kind of cache or mask would silently give other log-probs.
"""

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
    """Sample two short dialogs from ``model``; raise ConfigError if its log-probs differ from ours.

    ``model``: a causal LM of transformers. "Differ" means: at one token by more than the limit in
    r3l.local.model.precision:LIMITS. Any exception of the model is a ConfigError too. Sets evaluation mode.
    """
    model.eval()
    # Two dialogs of different lengths and two turns, so that padding, caches and positions take part.
    prompts = ([1, 2, 3], [4, 5, 6, 7, 8])
    sampling = Sampling(max_tokens=3)
    first_turns = [GenerationRequest(None, ids, sampling, set(), seed) for seed, ids in enumerate(prompts)]
    differences: list[torch.Tensor] = []
    try:
        with torch.inference_mode(), _short_window(model.config):
            ReferenceDecoder(model, first_turns, 0, defaultdict(float)).run()

            # The second turn goes on from the caches; its prompt is token 9, after the last sampled token,
            # which is not encoded yet.
            second_turns = [
                GenerationRequest(first.state, [first.ids[-1], 9], sampling, set(), first.seed)
                for first in first_turns
            ]
            ReferenceDecoder(model, second_turns, 0, defaultdict(float)).run()

            # The model's own log-probs of the second responses, by one forward pass over each dialog.
            for first, second in zip(first_turns, second_turns, strict=True):
                dialog = torch.tensor([[*first.pending, *first.ids, 9, *second.ids]], device=model.device)
                logits = model(input_ids=dialog).logits[0, -len(second.ids) - 1 : -1].double()
                sampled = torch.tensor(second.ids, device=model.device)
                own = logits.log_softmax(-1).gather(1, sampled[:, None])[:, 0]
                differences.append(own - torch.tensor(second.logprobs, device=model.device))
    except Exception as error:  # noqa: BLE001 - a class may raise anything about a cache that is not its own
        reason = f"{type(error).__name__}: {error}"
    else:
        limit = LIMITS.get(model.dtype, LIMITS[torch.float32])[1]
        gap = float(torch.cat(differences).abs().max())
        reason = f"its log-probs would differ by {gap:.2g} nats" if not gap < limit else ""  # NaN, too
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
