"""Operations of products, by hand."""

import numpy as np
import torch

from r3l.bench.operations import counted
from r3l.local import kernels


def test_operations_of_torch_by_hand():
    """Two rows of 3 words through a weight of 3 x 5: 2 x 2 x 3 x 5; a batch of 4 products 2 x 3 x 2: 4 x 2 x 12."""
    with counted() as operations:
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(5, 3))
        torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 2))
    assert operations == {"linear": 60, "attention": 96}


def test_operations_of_kernels_by_hand():
    """Six heads of 8 numbers. Tokens 4 and 5 of a row that held three see 4 and 5 keys; those of a path of 3 whose last
    two are its own 2 and 3. A product takes 2 operations a number, attention two of them, its gradients five."""
    queries, states = np.zeros((2, 6, 8), np.float32), np.zeros((2, 2, 2, 8), np.float32)
    cache, one = np.zeros((2, 1, 2, 8, 16), np.float32), np.array([0])
    with counted() as over_caches:
        kernels.attend(queries, states, cache, one, np.array([3]), np.array([2]), queries.copy())
    assert over_caches == {"linear": 0, "attention": 2 * 2 * 48 * (4 + 5)}
    tree = (np.array([0, 0, 1]), np.array([3]), np.array([1]))
    with counted() as over_trees:
        kernels.attend_tree(queries, states, *tree, queries.copy())
        kernels.attend_tree_backward(queries, states, *tree, queries, queries, queries.copy(), states.copy())
    assert over_trees == {"linear": 0, "attention": (2 + 5) * 2 * 48 * (2 + 3)}
