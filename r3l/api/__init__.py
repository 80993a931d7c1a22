"""The Python API: what `r3l train`, `evaluate` and `compare` do, as functions; `import r3l` offers them."""

from r3l.api.results import compare, load_results, stored_runs, trajectories
from r3l.api.running import evaluate, train

__all__ = ["compare", "evaluate", "load_results", "stored_runs", "train", "trajectories"]
