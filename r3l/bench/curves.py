"""``r3l bench curves``: how near decoding and training come to this machine's limit, and what shared beginnings save.

Made-up tokens through the model of a run, by the engine's own forward pass. The limit is the larger of two times: the
operations of all matrix products at the measured matrix rate, and the bytes that have to be read at the measured
bandwidth (the roofline of Williams et al. 2009, doi 10.1145/1498765.1498785).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from r3l.bench.operations import counted
from r3l.bench.rollout import clock
from r3l.bench.roofline import bandwidth_of, bytes_read, matrix_rate_of
from r3l.config import Run, start_of
from r3l.core.errors import ConfigError
from r3l.local.forward import hidden_states, is_supported, pass_of
from r3l.local.fused_decoding import Fused, HeadCache
from r3l.local.logprobs import token_logprobs, tree_logprobs
from r3l.local.packed_decoding import Column, New, RowCache, Storage
from r3l.local.precision import vocabulary_logits
from r3l.local.products import of_height
from r3l.local.session import open_session
from r3l.local.trainer import tree_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Report = dict[str, Any]
Point = dict[str, float]
DECODED = 16  # tokens a row of one measurement


@dataclass(frozen=True)
class Grid:
    """What is measured: ``decoded`` dialogs and ``trained`` rows, each of ``lengths`` tokens.

    ``shared``: groups of ``groups`` rows that share such a part of their ``tokens`` tokens, ``of`` rows in all.
    """

    decoded: Sequence[int] = (1, 8, 32, 128)
    trained: Sequence[int] = (1, 4, 16)
    lengths: Sequence[int] = (64, 256, 512)
    groups: Sequence[int] = (2, 4, 8, 16)
    shared: Sequence[float] = (0.0, 0.3, 0.6, 0.9)
    of: int = 16
    tokens: int = 256


def bench_curves(run: Run, repeats: int, grid: Grid | None = None) -> Report:
    """Medians of ``repeats``. ``decoding``: one token for each of ``rows`` dialogs of ``tokens`` tokens; ``training``:
    forward and backward pass of as many rows; both with their ``share`` of the limit. ``sharing``: seconds of rows
    without a common beginning, and of padded ones, to those of the same rows with one."""
    grid = grid or Grid()
    with open_session(run, start_of(run), trains=True, forward="transformers") as session:
        model = session.model
        if not is_supported(model):
            raise ConfigError(f"r3l bench curves measures the packed forward pass, which {run.model} has not")
        machine = {"flop_per_s": matrix_rate_of(model.device, model.dtype), "bytes_per_s": bandwidth_of(model.device)}
        decoded, trained = ([*product(rows, grid.lengths)] for rows in (grid.decoded, grid.trained))
        words = model.config.vocab_size
        return {
            "model": run.model,
            "device": str(model.device),
            "dtype": str(model.dtype),
            "threads": torch.get_num_threads(),
            "repeats": repeats,
            **machine,
            "decoding": [_point(_Decoding(model, *size), size, repeats, machine) for size in decoded],
            "training": [_point(_Training(model, apart(words, *size), 0), size, repeats, machine) for size in trained],
            "sharing": [_sharing(model, grid, g, share, repeats) for g in grid.groups for share in grid.shared],
        }


class _Decoding:
    """DECODED tokens more for each of ``rows`` dialogs of ``tokens`` tokens."""

    units = DECODED

    def __init__(self, model: Any, rows: int, tokens: int) -> None:
        self._model, self._tokens = model, [k % model.config.vocab_size for k in range(rows)]
        self._fused = pass_of(model, "fused") == "fused"
        caches = HeadCache if self._fused else RowCache
        self._cache = caches([None] * rows, tokens + DECODED, model, Storage())
        self._length = tokens
        weights, cache = bytes_read(model)
        self.bytes = DECODED * weights + rows * cache * sum(range(tokens, tokens + DECODED))

    @torch.no_grad()
    def __call__(self) -> None:
        self._cache.lengths = [self._length] * len(self._tokens)
        for _ in range(DECODED):
            new = self._new()
            with of_height(len(new.ids_N)):
                hidden = hidden_states(self._model, new.ids_N, new.positions_N, new.attend)
                vocabulary_logits(self._model, hidden).double()

    def _new(self) -> New:
        if self._fused:
            return Fused(self._cache, range(len(self._tokens)), [[token] for token in self._tokens])
        column = Column(self._cache, self._tokens)
        self._cache.lengths = [length + 1 for length in self._cache.lengths]
        return column


class _Training:
    """Forward and backward pass of ``ids_B_T``; the first ``unscored`` tokens of a row are read, not trained."""

    units, bytes = 1, 0

    def __init__(self, model: Any, ids_B_T: np.ndarray, unscored: int, padded: bool = False) -> None:
        self._model, self._ids_B_T = model, torch.from_numpy(ids_B_T).to(model.device)
        self._mask_B_T = torch.ones_like(self._ids_B_T, dtype=torch.float32)
        self._mask_B_T[:, :unscored] = 0
        trees = partial(tree_logprobs, tree_of=tree_of(pass_of(model, "fused")))
        self._logprobs: Callable[..., torch.Tensor] = token_logprobs if padded else trees

    def __call__(self) -> None:
        self._model.zero_grad()
        torch.autograd.backward(self._logprobs(self._model, self._ids_B_T, self._mask_B_T).sum())


def apart(words: int, rows: int, tokens: int) -> np.ndarray:
    """Token ids below ``words``, shape (rows, tokens): no two rows share their first two."""
    ids = np.random.default_rng(0).integers(words, size=(rows, tokens))
    ids[:, :2] = _numbers(words, rows)
    return ids


def alike(ids: np.ndarray, words: int, group: int, shared: int) -> np.ndarray:
    """The same rows in groups whose first ``shared`` tokens are those of their first row; the next two differ."""
    ids = ids.copy()
    for row in range(len(ids)):
        ids[row, :shared] = ids[row - row % group, :shared]
    ids[:, shared : shared + 2] = _numbers(words, len(ids))
    return ids


def _numbers(words: int, rows: int) -> np.ndarray:
    return np.stack(np.divmod(np.arange(rows), words), axis=1)


def _sharing(model: Any, grid: Grid, group: int, share: float, repeats: int) -> Point:
    words, shared = model.config.vocab_size, round(share * grid.tokens)
    ids = apart(words, grid.of, grid.tokens)
    arms = {
        "shared": _Training(model, alike(ids, words, group, shared), shared),
        "apart": _Training(model, ids, shared),
        "padded": _Training(model, ids, shared, padded=True),
    }
    seconds = _medians(arms, repeats)
    ratios = {f"ratio/{arm}": seconds[arm] / seconds["shared"] for arm in ("apart", "padded")}
    return {"group": group, "share": share, "seconds": seconds["shared"], **ratios}


def _point(work: Any, size: tuple[int, int], repeats: int, machine: Mapping[str, float]) -> Point:
    """``seconds`` and ``flop`` are of one token a row (decoding) or of the whole pass (training)."""
    with counted() as operations:
        work()
    flop, seconds = sum(operations.values()), _medians({"": work}, repeats)[""]
    least = max(flop / machine["flop_per_s"], work.bytes / machine["bytes_per_s"])
    rows, tokens = size
    return {
        "rows": rows,
        "tokens": tokens,
        "seconds": seconds / work.units,
        "flop": flop / work.units,
        "share": least / seconds,
        "share_of_matrix_rate": flop / machine["flop_per_s"] / seconds,
    }


def _medians(arms: Mapping[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Seconds of each arm, taken in turn, after one round that warms up."""
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(repeats + 1):
        for arm, work in arms.items():
            began = clock()
            work()
            seconds[arm].append(clock() - began)
    return {arm: float(np.median(of_arm[1:])) for arm, of_arm in seconds.items()}


def draw(report: Report) -> Figure:
    """Share of the limit over the batch, and the ratio over the shared part, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 2.8), layout="constrained", dpi=160)
    decoding, training, sharing = figure.subplots(1, 3)
    for axes, part, by in ((decoding, "decoding", "context of {:g}"), (training, "training", "rows of {:g}")):
        _lines(axes, report[part], ("rows", "share", "tokens"), by)
        axes.set(title=part, xlabel="rows", ylabel="share of the machine's limit", xscale="log", ylim=(0, 1))
    _lines(sharing, report["sharing"], ("share", "ratio/apart", "group"), "groups of {:g}")
    sharing.set(
        title="a common beginning", xlabel="shared part of a row", ylabel="seconds without / with", ylim=(0, None)
    )
    sharing.axhline(1, color="#999999", linewidth=0.6)
    for axes in (decoding, training, sharing):
        axes.tick_params(labelsize=7)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _lines(axes: Any, points: Sequence[Point], keys: tuple[str, str, str], label: str) -> None:
    """A line for each value of the third of ``keys``, of the second over the first."""
    x, y, by = keys
    for value in sorted({point[by] for point in points}):
        line = [point for point in points if point[by] == value]
        axes.plot([p[x] for p in line], [p[y] for p in line], marker="o", markersize=3, label=label.format(value))
