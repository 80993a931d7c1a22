"""Python API: `r3l train`, `evaluate` and `compare` as functions, offered by `import r3l`."""

from r3l.api.results import compare, load_results, stored_runs, trajectories
from r3l.api.running import evaluate, train

__all__ = ["compare", "evaluate", "load_results", "stored_runs", "train", "trajectories"]
