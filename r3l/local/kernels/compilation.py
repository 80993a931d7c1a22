"""Compilation of the attention kernels, once a machine, into numba's cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from r3l.local.kernels import cpu_attention
from r3l.local.kernels.cpu_attention import LANES, attend, attend_tree, attend_tree_backward


def load() -> None:
    """Make sure that numba's cache on disk has the compiled attention kernels, which are loaded from there.

    If they are not, another process compiles them (some ten seconds, once per machine and version) and a
    marker file is written next to them. Raises CalledProcessError if that process fails.
    """
    # Another process, because code that a process has just compiled rounded differently from the same code
    # out of the cache (numba 0.68.1, last digit of sums). A run that compiled its own kernels would not be
    # repeated by the same command.
    # The marker's name holds everything for which numba compiles again: source, processor and versions.
    cache = Path(str(attend.stats.cache_path))
    source = Path(cpu_attention.__file__).stat()
    processor = (get_host_cpu_name(), get_host_cpu_features().flatten())
    inputs = repr((source.st_mtime_ns, source.st_size, processor, numba.__version__, sys.version))
    marker = cache / f"kernels-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}.compiled"
    if not marker.is_file():
        program = f"from {__name__} import compile_all; compile_all()"
        subprocess.run([sys.executable, "-c", program], check=True)
        marker.touch()


def compile_all() -> None:
    """Compile the kernels that are not in numba's cache yet, by calling each on tiny arrays: ten seconds."""
    queries = np.zeros((1, 1, 8), np.float32)
    states = np.zeros((1, 2, 1, 8), np.float32)
    cache = np.zeros((2, 1, 1, 8, LANES), np.float32)
    one = np.ones(1, np.int64)
    none = np.zeros(1, np.int64)
    attend(queries, states, cache, none, none, one, queries.copy())
    attend_tree(queries, states, none, one, none, queries.copy())
    attend_tree_backward(queries, states, none, one, none, queries, queries, queries.copy(), states.copy())
