"""Attention in machine code equals attention in numpy's float64, over caches and trees, forward and
backward."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from numba import njit

from r3l.files.json_files import read_jsonl
from r3l.local.kernels import cpu_attention
from r3l.local.kernels.cpu_kernel_decoder import KernelTree
from r3l.local.training.prefix_tree import PrefixTree


@njit
def exponentials(xs):
    return np.array([cpu_attention._exp(x) for x in xs])


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def attention(queries_H_D, keys_G_D_T, values_G_D_T):
    """Attention of one token, in float64."""
    share = len(queries_H_D) // len(keys_G_D_T)
    rows = []
    for h, query in enumerate(queries_H_D.astype(np.float64)):
        scores = query @ keys_G_D_T[h // share] / np.sqrt(len(query))
        weights = np.exp(scores - scores.max())
        rows.append(values_G_D_T[h // share] @ (weights / weights.sum()))
    return np.array(rows)


def test_exponentials_are_float32_s():
    xs = np.linspace(-87, 0, 100_001, dtype=np.float32)
    exact = np.exp(xs.astype(np.float64))
    assert np.abs(exponentials(xs) / exact - 1).max() < 2e-7
    assert exponentials(np.array([0, -1e30, np.nan], np.float32)) == pytest.approx(
        [1, np.exp(-87), np.nan], nan_ok=True
    )


@pytest.mark.parametrize(("heads", "groups", "size"), [(6, 2, 32), (5, 1, 16)])
def test_new_tokens_attend_over_their_rows(heads, groups, size):
    """Three of five rows get 1, 6 and 33 tokens; one of them held none before. All others keep what they
    had."""
    rows, starts, counts = np.array([3, 0, 4]), np.array([20, 0, 15]), np.array([1, 6, 33])
    queries, states = numbers(0, 40, heads, size), numbers(1, 40, 2, groups, size)
    cache = numbers(2, 2, 5, groups, size, 48)
    before, attended = cache.copy(), np.zeros_like(queries)
    cpu_attention.attend(queries, states, cache, rows, starts, counts.cumsum(), attended)
    expected = before.copy()
    n = 0
    for row, start, count in zip(rows, starts, counts, strict=True):
        for column in range(start, start + count):
            expected[:, row, :, :, column] = states[n]
            keys, values = expected[:, row, :, :, : column + 1].astype(np.float64)
            assert np.allclose(attended[n], attention(queries[n], keys, values), rtol=0, atol=2e-6)
            n += 1
    assert (cache == expected).all()


def test_scores_of_any_size_and_a_nan():
    """The largest score is subtracted before exp; what is not a number stays so, and stays in its row."""
    queries, states, cache = numbers(0, 2, 1, 8), numbers(1, 2, 2, 1, 8), numbers(2, 2, 2, 1, 8, 16)
    queries *= 1e4
    cache[0, 1, 0, 0, 1] = np.nan
    attended = np.zeros_like(queries)
    cpu_attention.attend(
        queries, states, cache, np.array([0, 1]), np.array([5, 5]), np.array([1, 2]), attended
    )
    assert np.isnan(attended[1]).all()
    keys, values = cache[:, 0, :, :, :6].astype(np.float64)
    assert np.allclose(attended[0], attention(queries[0], keys, values), rtol=0, atol=1e-5)


def trees():
    """Rows that share 70 tokens, one that goes on from another, one within another, a stranger, one twice."""
    draws = np.random.default_rng(0)
    common, longer = draws.integers(0, 9, 70), draws.integers(0, 9, 40)
    rows = [np.concatenate([common, draws.integers(0, 9, 9)]), np.concatenate([common, longer]), common[:33]]
    rows += [
        np.concatenate([common, longer[:20], draws.integers(0, 9, 30)]),
        draws.integers(0, 9, 5),
        rows[1].copy(),
    ]
    return [tree(rows, torch.device("cpu")) for tree in (PrefixTree, KernelTree)]


def test_a_tree_s_nodes_attend_over_their_paths_and_gradients_follow():
    torch.manual_seed(0)
    plain, ours = trees()
    nodes = len(plain.ids_N)
    assert len(ours.ids_N) >= nodes and (ours.ids_N[:nodes] == plain.ids_N).all()
    queries, states = torch.randn(nodes, 6, 16), torch.randn(nodes, 2, 2, 16)
    gradients = torch.randn(nodes, 6 * 16)
    results = []
    for tree, dtype in ((plain, torch.float64), (ours, torch.float32)):
        q, s = (torch.zeros(len(tree.ids_N), *x.shape[1:], dtype=dtype) for x in (queries, states))
        q[:nodes], s[:nodes] = queries, states
        q.requires_grad_(), s.requires_grad_()
        attended = tree.attend(0, q, s)[:nodes]
        (attended * gradients.to(dtype)).sum().backward()
        results.append([attended.detach(), q.grad[:nodes], s.grad[:nodes]])
    for exact, computed in zip(*results, strict=True):
        assert (computed - exact).abs().max() < 2e-6 * exact.abs().max()


def test_padding_nodes_attend_to_nothing():
    """Their gradients are zeros, not what was in memory: products with weights would spread them."""
    ours = trees()[1]
    shape = (len(ours.ids_N), 2, 2, 8)
    queries, states = (
        torch.full(shape[:1] + shape[2:], 0.5, requires_grad=True),
        torch.ones(shape, requires_grad=True),
    )
    attended = ours.attend(0, queries, states)
    attended.sum().backward()
    used = max(int(path.max()) for path in ours.paths) + 1
    assert used < len(ours.ids_N) and not attended[used:].any()
    assert not queries.grad[used:].any() and not states.grad[used:].any()
    assert states.grad[:used, 1].sum() == pytest.approx(used * 16, rel=1e-5)  # weights of each query sum to 1


def run_of(folder, cache):
    """Two steps of a fresh process with numba's cache in ``cache``: what they logged but seconds, and how
    often each kernel was compiled or loaded there."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from r3l.config import resolve\n"
        "from r3l.local.kernels import cpu_attention\n"
        "from r3l.local.engine import train\n"
        "if __name__ == '__main__':\n"
        "    changes = ['train.steps=2', 'train.tasks_per_step=8', 'method_settings.group_size=4']\n"
        f"    train(resolve('nano', 'math', 'r3l', 0, overrides=changes), Path({str(folder)!r}))\n"
        "    used = (cpu_attention.attend, cpu_attention.attend_tree, cpu_attention.attend_tree_backward)\n"
        "    print([(sum(k.stats.cache_misses.values()), len(k.signatures)) for k in used])\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    steps = read_jsonl(folder / "metrics.jsonl")
    return [
        {k: v for k, v in step.items() if not k.startswith("seconds")} for step in steps
    ], done.stdout.split("\n")[-2]


@pytest.mark.slow  # it compiles the kernels again
def test_the_first_run_of_a_machine_is_the_second_one(tmp_path):
    """The first compiles, in another process; both compute with what is in the cache, a single row with the
    code for many. Code that was compiled in the same process gave other sums."""
    first, second = (run_of(tmp_path / name, tmp_path / "cache") for name in ("first", "second"))
    assert first == second
    assert first[1] == "[(0, 1), (0, 1), (0, 1)]"
