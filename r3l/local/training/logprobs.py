"""Log-probabilities of given tokens under a model, by the packed pass or by transformers' pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint

from r3l.config.gpu_memory import CHUNK, LOGITS
from r3l.core.batching import batches_by_length, batches_by_prefix, collate, rows_to_score
from r3l.core.policy import Samples
from r3l.core.trajectory import Trajectory
from r3l.local.model import forward
from r3l.local.model.forward import Projection, vocabulary_logits, vocabulary_projection
from r3l.local.training.prefix_tree import PrefixTree


def token_logprobs(
    model: Any,
    ids_B_T: torch.Tensor,
    mask_B_T: torch.Tensor,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Log-probability (nats) of every masked token given those before it, 0 elsewhere; shape (B, T).

    By the forward pass of transformers' class. Rows are padded on the right. Logits are divided by
    ``temperature``, as in sampling, so that the policy that acted is optimised (as the released trainer
    does). The first token of a row has nothing before it, so it is 0 too.
    """
    # Padding is on the right, so plain causal attention never sees it and no mask is needed.
    hidden_B_T_H = model.model(input_ids=ids_B_T, use_cache=False).last_hidden_state
    scored_B_T = mask_B_T.bool().clone()
    scored_B_T[:, 0] = False  # nothing precedes the first token

    # The hidden state before a token predicts it. The vocabulary projection runs at these positions only:
    # with a large vocabulary its logits are most of the memory.
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
    tree_class: type[PrefixTree] = PrefixTree,
) -> torch.Tensor:
    """Log-probability (nats) of every masked token given those before it, 0 elsewhere; shape (B, T).

    The packed pass computes them: rows with a common beginning share its computation. Up to rounding they are
    the numbers of :func:`token_logprobs`. ``tree_class``: PrefixTree, or its subclass for our CPU kernels.
    """
    scored_B_T = mask_B_T.bool().clone()
    scored_B_T[:, :1] = False  # nothing precedes the first token; T can be 0, if no prompt fitted
    rows_S, columns_S = (index.cpu().numpy() for index in scored_B_T.nonzero(as_tuple=True))
    if not len(rows_S):
        return torch.zeros(ids_B_T.shape, device=ids_B_T.device)

    # Rows end before their last masked token: that token is predicted, and nothing after it is read.
    lengths = np.zeros(len(ids_B_T), dtype=np.int64)
    np.maximum.at(lengths, rows_S, columns_S)
    rows = [row[:length] for row, length in zip(ids_B_T.cpu().numpy(), lengths, strict=True)]
    tree = tree_class(rows, ids_B_T.device)

    # Tokens that follow the same beginning share the node before them: in the last layer, and in the
    # vocabulary projection, each such node is computed once.
    before_S = np.array([tree.paths[row][column - 1] for row, column in zip(rows_S, columns_S, strict=True)])
    nodes_W, index_S = np.unique(before_S, return_inverse=True)
    wanted_W = torch.from_numpy(tree.pad_nodes(nodes_W)).to(ids_B_T.device)
    where_S = torch.from_numpy(index_S).to(ids_B_T.device)
    hidden_W_H = forward.hidden_states(model, tree.ids_N, tree.positions_N, tree.attend, wanted_W)
    logprobs_S = vocabulary_logprobs(model, hidden_W_H, where_S, ids_B_T[scored_B_T], temperature)
    return logprobs_S.new_zeros(ids_B_T.shape).masked_scatter(scored_B_T, logprobs_S)


def trajectory_logprobs(
    model: Any,
    trajectories: Sequence[Trajectory],
    samples: Samples,
    temperature: float,
    tokens_per_microbatch: int,
    forward_pass: forward.Pass,
    tree_class: type[PrefixTree] = PrefixTree,
) -> list[NDArray[np.float32]]:
    """Log-probs (nats) under ``model`` of each trajectory's trainable tokens, one array per trajectory.

    Computed without gradients, in evaluation mode. ``samples``: whether the model reads a trajectory as one
    row, or each turn as a separate row. ``temperature``: divides logits. ``tokens_per_microbatch``: most
    tokens of one pass (a longer row is a pass by itself). ``forward_pass``: the forward pass; transformers'
    if the packed one cannot compute the model. ``tree_class``: see :func:`tree_logprobs`.
    """
    is_packed_pass = forward.pass_of(model, forward_pass) == "packed"
    rows = rows_to_score(trajectories, samples)

    # The packed pass computes what rows have in common once, so those are scored as neighbours; transformers'
    # computes padded rows. Results go back to the rows' own order.
    if is_packed_pass:
        parts = batches_by_prefix([row.ids for row in rows], tokens_per_microbatch)
    else:
        parts = batches_by_length([len(row.ids) for row in rows], tokens_per_microbatch)
    of_row = [np.zeros(0, dtype=np.float32)] * len(rows)
    model.eval()
    for part in parts:
        batch = collate([rows[k] for k in part], model.device)
        with torch.no_grad():
            if is_packed_pass:
                scored_B_T = tree_logprobs(model, batch.ids_B_T, batch.mask_B_T, temperature, tree_class)
            else:
                scored_B_T = token_logprobs(model, batch.ids_B_T, batch.mask_B_T, temperature)
        for k, logprobs_T in zip(part, scored_B_T.float().cpu().numpy(), strict=True):
            of_row[k] = logprobs_T[: len(rows[k].ids)][rows[k].mask > 0]

    # A trajectory that was cut into turns gets the log-probs of all its rows, one after another.
    rows_left = iter(of_row)
    found = []
    for trajectory in trajectories:
        pieces = len(trajectory.turns) if samples == "turn" else 1
        found.append(np.concatenate([np.zeros(0, dtype=np.float32), *islice(rows_left, pieces)]))
    return found


def vocabulary_logprobs(
    model: Any, hidden_W_H: torch.Tensor, where_S: torch.Tensor, tokens_S: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log-probability (nats) of token ``tokens_S[s]`` after hidden state ``where_S[s]``, shape (S,).

    ``hidden_W_H``: last hidden states, which several tokens may share; ``where_S``: indices into it. Logits
    are divided by ``temperature``. Large vocabularies are computed in parts, to bound memory.
    """
    projection = vocabulary_projection(model)
    rows = max(1, CHUNK // (LOGITS * len(projection.weight_V_H)))
    if len(hidden_W_H) <= rows:
        return _projected_logprobs(hidden_W_H, projection, where_S, tokens_S, temperature)

    # Logits of all tokens over a large vocabulary would be the largest tensors of training: 10 GB for 4,000
    # tokens over 150,000 words, with their gradients. So beyond CHUNK they are computed for some hidden
    # states at a time, and again in the backward pass instead of being kept. Tokens are sorted by hidden
    # state, and at last put back.
    order_S = where_S.argsort()
    firsts = torch.arange(0, len(hidden_W_H), rows)
    bounds = torch.searchsorted(where_S[order_S].cpu(), firsts[1:])
    parts = [
        checkpoint(
            _projected_logprobs,
            hidden_W_H[first : first + rows],
            projection,
            where_S[chosen] - first,
            tokens_S[chosen],
            temperature,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for first, chosen in zip(firsts.tolist(), order_S.tensor_split(bounds), strict=True)
    ]
    return torch.cat(parts)[order_S.argsort()]


def _projected_logprobs(
    hidden_W_H: torch.Tensor,
    projection: Projection,
    where_S: torch.Tensor,
    tokens_S: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    """Log-probability (nats) of each token after its hidden state, shape (S,).

    The logits of all W hidden states are in memory at once.
    """
    logits_W_V = vocabulary_logits(hidden_W_H, projection) / temperature
    return logits_W_V[where_S, tokens_S] - torch.logsumexp(logits_W_V, dim=-1)[where_S]
