"""Where the seconds of a step go: functions of the engine, timed while a bench runs, each less those it calls."""

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

Place = tuple[Any, str]
PHASES: Mapping[str, Sequence[Place]] = {
    "layers": [
        (forward, "hidden_states"),
        (decoding.ReferenceDecoder, "_forward"),
        (cuda_graphs.Graph, "logits"),  # with its attention and vocabulary: on a GPU a token is one graph
    ],
    "attention": [
        (forward, "attention"),
        (prefix_tree, "attention"),
        (cpu_kernel_decoder.KernelTokens, "attend"),
        (cpu_kernel_decoder.KernelTree, "attend"),
    ],
    "vocabulary": [(packed_decoding, "vocabulary_logits"), (logprobs, "vocabulary_logprobs")],
    "sampling": [(decoding.Decoder, "_sample")],
    "caches": [(packed_decoding.RowCache, name) for name in ("__init__", "put", "row", "keep_rows", "copy_beginnings")],
    "dialogs": [(TokenDialog, "_advance"), (TokenDialog, "_accept")],
    "batching": [(trainer, "collate"), (prefix_tree.PrefixTree, "__init__"), (trainer, "packed_by_prefix")],
    "backward": [(torch.autograd, "backward")],
    "optimiser": [(trainer.Trainer, "optimizer_step")],
}
WAITING = "waiting"  # for environments
REST = "rest"


class Stopwatch:
    """Seconds by phase, of one thread."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._phases = [REST]
        self._since = clock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what runs inside to ``name``, no longer to what surrounds it."""
        self._charge()
        self._phases.append(name)
        try:
            yield
        finally:
            self._charge()
            self._phases.pop()

    def _charge(self) -> None:
        now = clock()  # waits for a GPU, whose work is otherwise charged to who asks for the result
        self.seconds[self._phases[-1]] += now - self._since
        self._since = now


@contextmanager
def timing(loop: asyncio.AbstractEventLoop) -> Iterator[Stopwatch]:
    """Time what runs inside by PHASES; what ``loop`` waits for is WAITING, everything else REST."""
    watch = Stopwatch()
    places = [(owner, name, phase) for phase, of_phase in PHASES.items() for owner, name in of_phase]
    places.append((vars(loop)["_selector"], "select", WAITING))
    with ExitStack() as stack:
        for owner, name, phase in places:
            stack.enter_context(patch.object(owner, name, _timed(getattr(owner, name), watch, phase)))
        yield watch
        with watch.phase(REST):
            pass  # charges what has run since the last change


def _timed(function: Any, watch: Stopwatch, phase: str) -> Any:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with watch.phase(phase):
            return function(*args, **kwargs)

    return timed
