"""Seconds of a step by phase: a benchmark times the engine's functions, each without its callees."""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from r3l.bench.measuring import clock
from r3l.chat.token_dialog import TokenDialog
from r3l.local.kernels import cpu_kernel_decoder
from r3l.local.model import forward
from r3l.local.sampling import cuda_graphs, decoding, packed_decoding
from r3l.local.training import logprobs, prefix_tree, trainer

TimedFunction = tuple[Any, str]  # (module or class, name of the function there)
CACHE_METHODS = ("__init__", "put", "row", "keep_rows", "copy_beginnings")
PHASES: Mapping[str, Sequence[TimedFunction]] = {
    "layers": [
        (forward, "hidden_states"),
        (decoding.ReferenceDecoder, "_forward"),
        (cuda_graphs.Graph, "logits"),  # with attention and vocabulary: one graph decodes a token
    ],
    "attention": [
        (forward, "attention"),
        (prefix_tree, "attention"),
        (cpu_kernel_decoder.KernelTokens, "attend"),
        (cpu_kernel_decoder.KernelTree, "attend"),
    ],
    "vocabulary": [(packed_decoding, "vocabulary_logits"), (logprobs, "vocabulary_logprobs")],
    "sampling": [(decoding.Decoder, "_sample")],
    "caches": [(packed_decoding.RowCache, name) for name in CACHE_METHODS],
    "dialogs": [(TokenDialog, "_advance"), (TokenDialog, "_accept")],
    "batching": [(trainer, "collate"), (prefix_tree.PrefixTree, "__init__"), (trainer, "batches_by_prefix")],
    "backward": [(torch.autograd, "backward")],
    "optimiser": [(trainer.Trainer, "optimizer_step")],
}
WAITING = "waiting"  # for environments
REST = "rest"


class Stopwatch:
    """Measures seconds by phase, for one thread, from its creation on; ``seconds``: by phase so far.

    Time outside every phase is REST. The clock waits for the GPU, which slows the measured code down.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._phases = [REST]
        self._since = clock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block's time to ``name`` instead of the phase around it."""
        self._charge()
        self._phases.append(name)
        try:
            yield
        finally:
            self._charge()
            self._phases.pop()

    def _charge(self) -> None:
        # The clock waits for the GPU: otherwise its work counts in the phase that first reads the result.
        now = clock()
        self.seconds[self._phases[-1]] += now - self._since
        self._since = now


@contextmanager
def timing(loop: asyncio.AbstractEventLoop) -> Iterator[Stopwatch]:
    """Time the block by phase; yields the Stopwatch, which is complete after the block.

    Until then the functions of PHASES are replaced by ones that are timed. WAITING is the time that ``loop``
    waits for input, REST everything else.
    """
    watch = Stopwatch()
    functions = []
    for phase, of_phase in PHASES.items():
        functions += [(owner, name, phase) for owner, name in of_phase]
    functions.append((vars(loop)["_selector"], "select", WAITING))

    def timed(function: Any, phase: str) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with watch.phase(phase):
                return function(*args, **kwargs)

        return call

    with ExitStack() as stack:
        for owner, name, phase in functions:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), phase)))
        yield watch
        # Entering a phase charges the time since the last change.
        with watch.phase(REST):
            pass
