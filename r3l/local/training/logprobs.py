"""Log-probabilities of sampled tokens under the present model, and how far they are from those of sampling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint

from r3l.config.gpu_memory import CHUNK, LOGITS
from r3l.core.batching import collate, packed_by_prefix, rows_to_score
from r3l.core.method import Batch
from r3l.core.policy import Samples
from r3l.core.trajectory import UNLIKELY, Trajectory
from r3l.local.model import forward
from r3l.local.model.precision import Projection, vocabulary_logits, vocabulary_projection
from r3l.local.training.prefix_tree import PrefixTree


def token_logprobs(model: Any, ids_B_T: torch.Tensor, mask_B_T: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of every masked token given those before it, 0 elsewhere; shape (B, T).

    ``temperature`` is that of sampling: what is optimised is the policy that acted (as the released trainer does).

    The vocabulary projection runs on masked positions only: for a large vocabulary it is most of the memory.
    Padding stands on the right, so plain causal attention never sees it.
    """
    hidden_B_T_H = model.model(input_ids=ids_B_T, use_cache=False).last_hidden_state
    scored_B_T = mask_B_T.bool().clone()
    scored_B_T[:, 0] = False  # nothing stands before the first token
    before_B_T = scored_B_T.roll(-1, dims=1)
    tokens_S = ids_B_T[scored_B_T]
    each_S = torch.arange(len(tokens_S), device=ids_B_T.device)
    logprobs_S = vocabulary_logprobs(model, hidden_B_T_H[before_B_T], each_S, tokens_S, temperature)
    return logprobs_S.new_zeros(ids_B_T.shape).masked_scatter(scored_B_T, logprobs_S)


def tree_logprobs(
    model: Any,
    ids_B_T: torch.Tensor,
    mask_B_T: torch.Tensor,
    temperature: float = 1.0,
    tree_of: type[PrefixTree] = PrefixTree,
) -> torch.Tensor:
    """The same of rows that share their beginnings (``prefix_tree``), attending as in ``tree_of``; shape (B, T).

    Nothing is computed of tokens that stand after a row's last masked one, nor, in the last layer, of those before
    which none is masked.
    """
    scored_B_T = mask_B_T.bool().clone()
    scored_B_T[:, :1] = False  # nothing stands before the first token; there is none where no prompt had room
    rows_S, columns_S = (index.cpu().numpy() for index in scored_B_T.nonzero(as_tuple=True))
    if not len(rows_S):
        return torch.zeros(ids_B_T.shape, device=ids_B_T.device)
    lengths = np.zeros(len(ids_B_T), dtype=np.int64)
    np.maximum.at(lengths, rows_S, columns_S)
    tree = tree_of([row[:length] for row, length in zip(ids_B_T.cpu().numpy(), lengths, strict=True)], ids_B_T.device)
    before_S = np.array([tree.paths[row][column - 1] for row, column in zip(rows_S, columns_S, strict=True)])
    nodes_W, places_S = np.unique(before_S, return_inverse=True)
    wanted_W, where_S = (torch.from_numpy(x).to(ids_B_T.device) for x in (tree.wanted(nodes_W), places_S))
    hidden_W_H = forward.hidden_states(model, tree.ids_N, tree.positions_N, tree.attend, wanted_W)
    logprobs_S = vocabulary_logprobs(model, hidden_W_H, where_S, ids_B_T[scored_B_T], temperature)
    return logprobs_S.new_zeros(ids_B_T.shape).masked_scatter(scored_B_T, logprobs_S)


def scored(
    model: Any,
    trajectories: Sequence[Trajectory],
    samples: Samples,
    temperature: float,
    tokens_per_microbatch: int,
    wanted: forward.Pass,
) -> list[NDArray[np.float32]]:
    """Log-prob under ``model`` of each trainable token of each trajectory, in their order."""
    by_tree, found = forward.pass_of(model, wanted) == "packed", []
    rows = rows_to_score(trajectories, samples)
    of_row = [np.zeros(0, dtype=np.float32)] * len(rows)
    model.eval()
    for part in packed_by_prefix([row.ids for row in rows], tokens_per_microbatch):
        batch = collate([rows[k] for k in part], model.device)
        inputs = (model, batch.ids_B_T, batch.mask_B_T, temperature)
        with torch.no_grad():
            logprobs_B_T = (tree_logprobs(*inputs) if by_tree else token_logprobs(*inputs)).float().cpu().numpy()
        for k, logprobs_T in zip(part, logprobs_B_T, strict=True):
            of_row[k] = logprobs_T[: len(rows[k].ids)][rows[k].mask > 0]
    rows_left = iter(of_row)
    for trajectory in trajectories:
        pieces = len(trajectory.turns) if samples == "turn" else 1
        found.append(np.concatenate([np.zeros(0, dtype=np.float32), *islice(rows_left, pieces)]))
    return found


def vocabulary_logprobs(
    model: Any, hidden_W_H: torch.Tensor, where_S: torch.Tensor, tokens_S: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log-probability of each of ``tokens_S`` after the hidden state that ``where_S`` says, shape (S,).

    Logits of all tokens over a large vocabulary would be the largest tensors of training: 10 GB for 4,000 tokens over
    150,000 words, with their gradients. So where they take more than CHUNK they are computed for some hidden states at
    a time, and once more in the backward pass instead of being kept.
    """
    projection = vocabulary_projection(model)
    rows = max(1, CHUNK // (LOGITS * len(projection.weight_V_H)))
    if len(hidden_W_H) <= rows:
        return _logprobs(hidden_W_H, projection, where_S, tokens_S, temperature)
    order_S = where_S.argsort()
    firsts = torch.arange(0, len(hidden_W_H), rows)
    bounds = torch.searchsorted(where_S[order_S].cpu(), firsts[1:])
    parts = [
        checkpoint(
            *(_logprobs, hidden_W_H[first : first + rows], projection),
            *(where_S[chosen] - first, tokens_S[chosen], temperature),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for first, chosen in zip(firsts.tolist(), order_S.tensor_split(bounds), strict=True)
    ]
    return torch.cat(parts)[order_S.argsort()]


def _logprobs(
    hidden_W_H: torch.Tensor, projection: Projection, where_S: torch.Tensor, tokens_S: torch.Tensor, temperature: float
) -> torch.Tensor:
    logits_W_V = vocabulary_logits(hidden_W_H, projection) / temperature
    return logits_W_V[where_S, tokens_S] - torch.logsumexp(logits_W_V, dim=-1)[where_S]


class LogprobMismatch:
    """|log-prob in training - log-prob in sampling| (nats), over tokens that the policy sampled in this context.

    The weights are the same until the step's one update, so all of it is numerical error; an importance ratio or a KL
    cannot be known better than this.
    """

    def __init__(self) -> None:
        self.sum, self.max, self.tokens = 0.0, 0.0, 0

    def add(self, batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Count a micro-batch, without rows whose log-probs nobody sampled, or under another context."""
        sampled_B_T = batch.mask_B_T.bool() & ~(batch.sft_B | batch.off_policy_B)[:, None]
        if sampled_B_T.any():
            differences = (logprobs_B_T.detach() - batch.old_logprobs_B_T)[sampled_B_T].abs()
            self.sum, self.max = self.sum + differences.sum().item(), max(self.max, differences.max().item())
            self.tokens += len(differences)

    @property
    def mean(self) -> float:
        """In nats; 0 where no token counted."""
        return self.sum / max(self.tokens, 1)

    def metrics(self) -> dict[str, float]:
        """``logprob_mismatch/mean`` and ``/max`` (nats); {} where no token counted."""
        return {"logprob_mismatch/mean": self.mean, "logprob_mismatch/max": self.max} if self.tokens else {}


class TaughtLogprobs:
    """How unlikely, to the policy that learns them, the tokens are that it would not have sampled here itself.

    *Distilled* ones were sampled under a hint that their row no longer shows, *imitated* ones are learned by SFT.
    A policy gradient without an importance ratio pushes each of them with full weight, however unlikely it is.
    """

    def __init__(self) -> None:
        self.logprobs: dict[str, list[torch.Tensor]] = {"distilled": [], "imitated": []}
        self.hinted: list[torch.Tensor] = []

    def add(self, batch: Batch, logprobs_B_T: torch.Tensor) -> None:
        """Count a micro-batch; its old log-probs of distilled tokens are those under the hint."""
        trained_B_T = batch.mask_B_T.bool() & (batch.weight_B_T != 0)
        distilled_B_T = trained_B_T & (batch.off_policy_B & ~batch.sft_B)[:, None]
        self.hinted.append(batch.old_logprobs_B_T[distilled_B_T].cpu())
        for name, chosen_B_T in (("distilled", distilled_B_T), ("imitated", trained_B_T & batch.sft_B[:, None])):
            self.logprobs[name].append(logprobs_B_T.detach()[chosen_B_T].float().cpu())

    def metrics(self) -> dict[str, float]:
        """``NAME/nll`` and ``NAME/nll_p99`` (mean and 99th percentile of -log p, nats), ``NAME/unlikely`` (share below
        -5) and ``distilled/hint_gap`` (log p with the hint less log p without, mean, nats); none where nothing counted.
        """
        found = {}
        for name, parts in self.logprobs.items():
            logprobs_S = torch.cat(parts).numpy() if parts else np.zeros(0)
            if len(logprobs_S):
                found[f"{name}/nll"] = float(-logprobs_S.mean())
                found[f"{name}/nll_p99"] = float(np.quantile(-logprobs_S, 0.99))
                found[f"{name}/unlikely"] = float((logprobs_S < UNLIKELY).mean())
        if "distilled/nll" in found:
            found["distilled/hint_gap"] = float(torch.cat(self.hinted).mean()) + found["distilled/nll"]
        return found
