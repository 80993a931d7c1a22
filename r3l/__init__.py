"""r3l: reproducible reinforcement learning for language-model agents (reflect-then-retry and its baselines).

The Python API is :func:`train`, :func:`evaluate`, :func:`compare`, :func:`load_results`, :func:`stored_runs`
and :func:`trajectories`. It is imported on first use, so that ``import r3l`` stays fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r3l.api import compare, evaluate, load_results, stored_runs, train, trajectories

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "evaluate", "load_results", "stored_runs", "train", "trajectories"]

# r3l.envs and r3l.baselines are sibling folders of this package in a checkout, subfolders in a wheel
# (setup.py). With the checkout's root on the path, each checkout imports its own, whichever one is installed.
_checkout = Path(__file__).parents[1]
if _checkout.joinpath("pyproject.toml").is_file() and not Path(__file__).with_name("envs").is_dir():
    __path__.append(str(_checkout))

# Idle OpenMP threads must sleep, not spin: with one other busy process on a 2-core machine, spinning made a
# training step 13 times slower (measured: 20 s against 1.5 s). This must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from r3l import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
