"""Attention kernels for a CPU, compiled by numba once a machine: over caches, and over prefix trees.

Why they are worth it (``cpu_kernel_decoder`` has the numbers): attention of a small model over short dialogs
spends most of its time around its products. Three decisions make these loops fast:

- Four queries at a time. Queries of one key-value head (of several heads, or of neighbouring tokens) read
  the same keys and values, so a loaded number serves four multiplications, and sixteen sums fit into the
  registers.
- By dimension, not by token. Keys and values of a head are stored as (D, T): the innermost loop runs along
  the tokens, which are many and contiguous, in vectors as wide as the processor's. Along a head's 32 numbers
  vectors would be mostly set-up, and each score would need a sum across a vector.
- Only what a query sees. Each query stops at its own token, except for the columns that fill its last
  vector. So there is no mask and no padding to the longest row, and softmax runs over scores that are still
  in the first-level cache.

The backward pass computes the attention weights again instead of keeping them (as FlashAttention does,
2205.14135): their number is a row's length squared, and computing them costs less than reading them from
memory.

numba compiles the functions for the types of their arguments: float32, C-contiguous arrays throughout. All
are in this file, since numba's cache notices changes only in the file of a cached function. A process that
uses them calls :func:`r3l.local.kernels.compilation.load` first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from r3l.local.model.forward import DIMENSIONS

AT_ONCE = 4  # queries computed together; the code below is written for exactly four
LANES = 16  # float32 numbers of an AVX-512 vector: caches have a multiple of so many columns

# Compiler flags: products may be fused into sums, and the terms of a sum may be added in the order of
# vectors.
ASSOCIATIVE = {"contract", "reassoc", "nsz"}


@intrinsic
def _power_of_two(typing_context: Any, exponent: Any) -> Any:
    """2 to the power of an int32 from -126 to 127, as a float32, whose exponent bits are set directly."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        biased = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.int32), build


@njit(inline="always", fastmath={"contract", "nsz"})
def _exp(x):
    """exp of a float32 up to 0, within 1e-7, in a form that compiles to vectors (Cephes' expf).

    Below -87, where the result is no longer a normal float32, it is exp(-87).
    """
    if x < np.float32(-87.0):  # not max(), which would hide a NaN
        x = np.float32(-87.0)
    # exp(x) = 2^whole exp(rest). The nearest integer: truncation rounds up, since x <= 0.
    whole = np.int32(x * np.float32(1.44269504) - np.float32(0.5))
    power = np.float32(whole)
    rest = x - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    value = np.float32(1.9875691500e-4)
    value = value * rest + np.float32(1.3981999507e-3)
    value = value * rest + np.float32(8.3334519073e-3)
    value = value * rest + np.float32(4.1665795894e-2)
    value = value * rest + np.float32(1.6666665459e-1)
    value = value * rest + np.float32(5.0000001201e-1)
    value = value * rest * rest + rest + np.float32(1.0)
    return value * _power_of_two(whole)  # type: ignore[call-arg]  # numba passes the first argument


@njit(fastmath={"contract", "nsz"})
def _scores(queries, keys, columns, scores):
    """scores (4, columns) = queries (4, D) @ keys (D, columns)."""
    scores[:, :columns] = 0
    a, b, c, d = scores[0], scores[1], scores[2], scores[3]
    # Eight dimensions of all four queries are held in registers while the loop runs along the tokens: each
    # key is loaded once for four queries, each score loaded and stored once for eight products.
    for first in range(0, len(keys), DIMENSIONS):
        k0, k1, k2, k3 = keys[first], keys[first + 1], keys[first + 2], keys[first + 3]
        k4, k5, k6, k7 = keys[first + 4], keys[first + 5], keys[first + 6], keys[first + 7]
        q = queries[:, first : first + DIMENSIONS]
        a0, a1, a2, a3 = q[0, 0], q[0, 1], q[0, 2], q[0, 3]
        a4, a5, a6, a7 = q[0, 4], q[0, 5], q[0, 6], q[0, 7]
        b0, b1, b2, b3 = q[1, 0], q[1, 1], q[1, 2], q[1, 3]
        b4, b5, b6, b7 = q[1, 4], q[1, 5], q[1, 6], q[1, 7]
        c0, c1, c2, c3 = q[2, 0], q[2, 1], q[2, 2], q[2, 3]
        c4, c5, c6, c7 = q[2, 4], q[2, 5], q[2, 6], q[2, 7]
        d0, d1, d2, d3 = q[3, 0], q[3, 1], q[3, 2], q[3, 3]
        d4, d5, d6, d7 = q[3, 4], q[3, 5], q[3, 6], q[3, 7]
        for t in range(columns):
            x0, x1, x2, x3, x4, x5, x6, x7 = k0[t], k1[t], k2[t], k3[t], k4[t], k5[t], k6[t], k7[t]
            a[t] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4 + a5 * x5 + a6 * x6 + a7 * x7
            b[t] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4 + b5 * x5 + b6 * x6 + b7 * x7
            c[t] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3 + c4 * x4 + c5 * x5 + c6 * x6 + c7 * x7
            d[t] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3 + d4 * x4 + d5 * x5 + d6 * x6 + d7 * x7


@njit
def _largest(s, columns):
    """Maximum of the first ``columns`` (a multiple of 8), by eight candidates, as many as a vector has."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = s[0]
    for t in range(0, columns, 8):
        if s[t + 0] > m0:
            m0 = s[t + 0]
        if s[t + 1] > m1:
            m1 = s[t + 1]
        if s[t + 2] > m2:
            m2 = s[t + 2]
        if s[t + 3] > m3:
            m3 = s[t + 3]
        if s[t + 4] > m4:
            m4 = s[t + 4]
        if s[t + 5] > m5:
            m5 = s[t + 5]
        if s[t + 6] > m6:
            m6 = s[t + 6]
        if s[t + 7] > m7:
            m7 = s[t + 7]
    return max(max(max(m0, m1), max(m2, m3)), max(max(m4, m5), max(m6, m7)))


@njit(fastmath=ASSOCIATIVE)
def _weights(scores, seen, columns):
    """Replace scores by exp(score - maximum) in the first ``seen`` columns, by 0 in the others; their sum."""
    scores[seen:columns] = -np.inf
    largest = _largest(scores, columns)
    total = np.float32(0.0)
    for t in range(seen):
        weight = _exp(scores[t] - largest)
        scores[t] = weight
        total += weight
    scores[seen:columns] = 0
    return total


@njit(fastmath=ASSOCIATIVE)
def _mixture(weights, values, columns, mixed):
    """mixed (4, D) = weights (4, columns) @ values (D, columns) transposed."""
    p, q, r, s = weights[0], weights[1], weights[2], weights[3]
    # Four dimensions of four queries are sixteen sums, which stay in registers along all tokens.
    for first in range(0, len(values), 4):
        v0, v1, v2, v3 = values[first], values[first + 1], values[first + 2], values[first + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0.0)
        c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = np.float32(0.0)
        for t in range(columns):
            w, x, y, z = v0[t], v1[t], v2[t], v3[t]
            a0, a1, a2, a3 = a0 + p[t] * w, a1 + p[t] * x, a2 + p[t] * y, a3 + p[t] * z
            b0, b1, b2, b3 = b0 + q[t] * w, b1 + q[t] * x, b2 + q[t] * y, b3 + q[t] * z
            c0, c1, c2, c3 = c0 + r[t] * w, c1 + r[t] * x, c2 + r[t] * y, c3 + r[t] * z
            d0, d1, d2, d3 = d0 + s[t] * w, d1 + s[t] * x, d2 + s[t] * y, d3 + s[t] * z
        mixed[0, first : first + 4] = (a0, a1, a2, a3)
        mixed[1, first : first + 4] = (b0, b1, b2, b3)
        mixed[2, first : first + 4] = (c0, c1, c2, c3)
        mixed[3, first : first + 4] = (d0, d1, d2, d3)


@njit(fastmath={"contract", "nsz"})
def _add_outer(weights, vectors, columns, sums):
    """sums (D, columns) += vectors (4, D) transposed @ weights (4, columns)."""
    p, q, r, s = weights[0], weights[1], weights[2], weights[3]
    # The sums are stored by dimension too, so that this loop also runs along the tokens.
    for first in range(0, len(sums), 4):
        s0, s1, s2, s3 = sums[first], sums[first + 1], sums[first + 2], sums[first + 3]
        v = vectors[:, first : first + 4]
        a0, a1, a2, a3 = v[0, 0], v[1, 0], v[2, 0], v[3, 0]
        b0, b1, b2, b3 = v[0, 1], v[1, 1], v[2, 1], v[3, 1]
        c0, c1, c2, c3 = v[0, 2], v[1, 2], v[2, 2], v[3, 2]
        d0, d1, d2, d3 = v[0, 3], v[1, 3], v[2, 3], v[3, 3]
        for t in range(columns):
            w, x, y, z = p[t], q[t], r[t], s[t]
            s0[t] += a0 * w + a1 * x + a2 * y + a3 * z
            s1[t] += b0 * w + b1 * x + b2 * y + b3 * z
            s2[t] += c0 * w + c1 * x + c2 * y + c3 * z
            s3[t] += d0 * w + d1 * x + d2 * y + d3 * z


@njit(fastmath={"contract", "nsz"})
def _to_gradients_of_scores(weights, gradients, part, mean, columns):
    """Backward pass of softmax, in place: gradients of weights become gradients of scores, w (g - mean).

    ``part``: factor by which the weights sum to 1; ``mean``: mean of the gradients under these weights.
    """
    for t in range(columns):
        weights[t] *= part
        gradients[t] = weights[t] * (gradients[t] - mean)


@njit
def _take(of_N_H_D, first, m, last, group, share, factor, taken):
    """Copy vectors m to m + 3 of a group's heads, times ``factor``; past ``last`` repeat that one."""
    for i in range(AT_ONCE):
        c, h = divmod(min(m + i, last), share)
        for d in range(of_N_H_D.shape[2]):
            taken[i, d] = of_N_H_D[first + c, group * share + h, d] * factor


@njit
def _whole(columns):
    """``columns`` rounded up to full vectors."""
    return (columns + LANES - 1) // LANES * LANES


@njit
def _work(columns, size):
    """Working memory of four queries: two arrays (4, columns) and three (4, size)."""
    return np.empty((2, AT_ONCE, columns), np.float32), np.empty((3, AT_ONCE, size), np.float32)


@njit
def _attend_row(queries_N_H_D, first, count, start, keys_G_D_T, values_G_D_T, wide, short, attended_N_H_D):
    """Attention of ``count`` tokens from ``first`` on, whose positions in their row begin at ``start``."""
    groups, size, _ = keys_G_D_T.shape
    share = queries_N_H_D.shape[1] // groups
    scale = np.float32(1.0 / math.sqrt(size))
    scores = wide[0]
    queries = short[0]
    mixed = short[1]
    totals = short[2, 0]
    for g in range(groups):
        keys = keys_G_D_T[g]
        values = values_G_D_T[g]
        # The queries of a group: `share` heads of each token, four at a time. All four are computed over the
        # columns that the last of them sees; its own number of columns then limits each one's softmax.
        for m in range(0, count * share, AT_ONCE):
            last = min(m + AT_ONCE, count * share) - 1
            width = _whole(start + last // share + 1)
            _take(queries_N_H_D, first, m, last, g, share, scale, queries)
            _scores(queries, keys, width, scores)
            for i in range(AT_ONCE):
                totals[i] = _weights(scores[i], start + min(m + i, last) // share + 1, width)
            _mixture(scores, values, width, mixed)
            for i in range(last - m + 1):
                c, h = divmod(m + i, share)
                for d in range(size):
                    attended_N_H_D[first + c, g * share + h, d] = mixed[i, d] / totals[i]


@njit
def _put(vectors_G_D, into_G_D_T, column):
    """Write the vectors of a token into a column."""
    for g in range(vectors_G_D.shape[0]):
        for d in range(vectors_G_D.shape[1]):
            into_G_D_T[g, d, column] = vectors_G_D[g, d]


@njit
def _add_column(of_G_D_T, column, vectors_G_D):
    """Add a column to the vectors of a token."""
    for g in range(vectors_G_D.shape[0]):
        for d in range(vectors_G_D.shape[1]):
            vectors_G_D[g, d] += of_G_D_T[g, d, column]


@njit(cache=True)
def attend(queries_N_H_D, states_N_2_G_D, cache_2_R_G_D_T, rows_K, starts_K, ends_K, attended_N_H_D):
    """Attention of N new tokens of K dialogs over a key-value cache, which gets their keys and values first.

    Writes the cache and ``attended_N_H_D``. ``rows_K``: the dialogs' rows in the cache; ``starts_K``: number
    of tokens that each held before; ``ends_K``: end of its new tokens among the N. T is a multiple of LANES.
    """
    wide, short = _work(cache_2_R_G_D_T.shape[4], cache_2_R_G_D_T.shape[3])
    first = 0
    for k in range(len(rows_K)):
        # Keys and values first: a new token attends to the new ones before it, and to itself.
        keys = cache_2_R_G_D_T[0, rows_K[k]]
        values = cache_2_R_G_D_T[1, rows_K[k]]
        for n in range(first, ends_K[k]):
            _put(states_N_2_G_D[n, 0], keys, starts_K[k] + n - first)
            _put(states_N_2_G_D[n, 1], values, starts_K[k] + n - first)
        count = ends_K[k] - first
        _attend_row(queries_N_H_D, first, count, starts_K[k], keys, values, wide, short, attended_N_H_D)
        first = ends_K[k]


@njit
def _longest(ends_K):
    """Length of the longest path."""
    longest = 0
    begin = 0
    for end in ends_K:
        longest = max(longest, end - begin)
        begin = end
    return longest


@njit
def _gather(states_N_2_G_D, path, gathered_2_G_D_T):
    """Copy keys and values of the nodes of ``path`` into a cache's layout, with zeros up to a full vector."""
    gathered_2_G_D_T[..., len(path) : _whole(len(path))] = 0
    for t in range(len(path)):
        _put(states_N_2_G_D[path[t], 0], gathered_2_G_D_T[0], t)
        _put(states_N_2_G_D[path[t], 1], gathered_2_G_D_T[1], t)


@njit(cache=True)
def attend_tree(queries_N_H_D, states_N_2_G_D, paths_P, ends_K, starts_K, attended_N_H_D):
    """Attention of the N nodes of a prefix tree, each over the path from the root to it.

    Writes ``attended_N_H_D``. ``paths_P``: the nodes of the K rows' paths, one after another; row k's path
    ends at ``ends_K[k]``. Its nodes from position ``starts_K[k]`` on belong to no earlier row and are
    contiguous among the N.
    """
    columns = _whole(_longest(ends_K))
    groups, size = states_N_2_G_D.shape[2:]
    wide, short = _work(columns, size)
    gathered = np.empty((2, groups, size, columns), np.float32)
    begin = 0
    for k in range(len(ends_K)):
        path = paths_P[begin : ends_K[k]]
        start = starts_K[k]
        begin = ends_K[k]
        # A row without own nodes has nothing to compute: earlier rows attended for all of its path.
        if start < len(path):
            _gather(states_N_2_G_D, path, gathered)
            count = len(path) - start
            _attend_row(
                queries_N_H_D,
                path[start],
                count,
                start,
                gathered[0],
                gathered[1],
                wide,
                short,
                attended_N_H_D,
            )


@njit(cache=True)
def attend_tree_backward(
    queries_N_H_D,
    states_N_2_G_D,
    paths_P,
    ends_K,
    starts_K,
    attended_N_H_D,
    gradients_N_H_D,
    of_queries,
    of_states,
):
    """Backward pass of :func:`attend_tree`: adds the gradients of queries, keys and values to two arrays.

    These are ``of_queries`` and ``of_states``. ``attended_N_H_D``: the result of the forward pass;
    ``gradients_N_H_D``: its gradient. Attention weights are computed again, as in FlashAttention.
    """
    columns = _whole(_longest(ends_K))
    groups, size = states_N_2_G_D.shape[2:]
    wide, short = _work(columns, size)
    gathered = np.empty((2, groups, size, columns), np.float32)
    sums = np.empty((2, groups, size, columns), np.float32)
    begin = 0
    for k in range(len(ends_K)):
        path = paths_P[begin : ends_K[k]]
        start = starts_K[k]
        begin = ends_K[k]
        if start < len(path):
            _gather(states_N_2_G_D, path, gathered)
            sums[..., : _whole(len(path))] = 0
            row = (path[start], len(path) - start, start, gathered, wide, short)
            _row_backward(queries_N_H_D, row, attended_N_H_D, gradients_N_H_D, of_queries, sums)
            # Nodes that rows share collect the gradients of each.
            for t in range(len(path)):
                _add_column(sums[0], t, of_states[path[t], 0])
                _add_column(sums[1], t, of_states[path[t], 1])


@njit
def _row_backward(queries_N_H_D, row, attended_N_H_D, gradients_N_H_D, of_queries, sums_2_G_D_T):
    """Backward pass of :func:`_attend_row`: adds gradients of queries, and of the row's keys and values."""
    first, count, start, states_2_G_D_T, wide, short = row
    groups, size = states_2_G_D_T.shape[1:3]
    share = queries_N_H_D.shape[1] // groups
    scale = np.float32(1.0 / math.sqrt(size))
    weights = wide[0]
    gradients = wide[1]
    queries = short[0]
    outer = short[1]
    mixed = short[2]
    for g in range(groups):
        keys = states_2_G_D_T[0, g]
        values = states_2_G_D_T[1, g]
        for m in range(0, count * share, AT_ONCE):
            last = min(m + AT_ONCE, count * share) - 1
            width = _whole(start + last // share + 1)
            # Weights as in the forward pass, and their gradients: products of the result's gradient with the
            # values.
            _take(queries_N_H_D, first, m, last, g, share, scale, queries)
            _take(gradients_N_H_D, first, m, last, g, share, np.float32(1.0), outer)
            _scores(queries, keys, width, weights)
            _scores(outer, values, width, gradients)
            # Through softmax. A repeated query past `last` gets weight 0, so that it adds nothing below.
            for i in range(AT_ONCE):
                c, h = divmod(min(m + i, last), share)
                total = _weights(weights[i], start + c + 1, width)
                part = np.float32(1.0) / total if m + i <= last else np.float32(0.0)
                mean = np.float32(0.0)
                for d in range(size):
                    mean += attended_N_H_D[first + c, g * share + h, d] * outer[i, d]
                _to_gradients_of_scores(weights[i], gradients[i], part, mean, width)
            # Gradients of queries, keys and values.
            _mixture(gradients, keys, width, mixed)
            _add_outer(gradients, queries, width, sums_2_G_D_T[0, g])
            _add_outer(weights, outer, width, sums_2_G_D_T[1, g])
            for i in range(last - m + 1):
                c, h = divmod(m + i, share)
                for d in range(size):
                    of_queries[first + c, g * share + h, d] += mixed[i, d] * scale
