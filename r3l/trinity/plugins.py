"""Plugins that Trinity loads by dotted path: one algorithm type per method, and a monitor.

Workflow, advantage and loss have separate modules. The algorithm types (``r3l.trinity.plugins.R3l``,
...) are generated from the method registry. A type says which models the trainer holds; the configuration
says everything else (r3l.trinity.config).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trinity.algorithm.algorithm import AlgorithmType
from trinity.common.config import Config
from trinity.utils.monitor import Monitor

from r3l.config import names
from r3l.files.json_files import append_jsonl
from r3l.trinity.config import ADVANTAGE, LOSS, algorithm_name
from r3l.trinity.unpadding import replace_flash_attn

# Here, since Trinity's trainer, which also drops padding, loads the algorithm type before it trains.
replace_flash_attn()


class _MethodAlgorithm(AlgorithmType):
    """Base of all algorithm types. ``use_reference``: the trainer also runs the base checkpoint."""

    use_critic = False
    use_reference = False
    compute_advantage_in_trainer = False
    can_balance_batch = True
    schema = "experience"

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Parts that Trinity uses where the configuration names none; ours names them all."""
        return {
            "advantage_fn": ADVANTAGE,
            "policy_loss_fn": LOSS,
            "sample_strategy": "default",
            "kl_penalty_fn": "none",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
        }


# Trinity finds a type by getattr on this module, so the types have to be its attributes.
for _reference in (False, True):
    for _method in names("methods"):
        _name = algorithm_name(_method, _reference).rpartition(".")[2]
        _attributes = {"use_reference": _reference, "__module__": __name__}
        globals()[_name] = type(_name, (_MethodAlgorithm,), _attributes)


class LinesMonitor(Monitor):
    """Trinity's monitor that appends each report to ``steps-ROLE.jsonl``: ``{"step": n, name: value, ...}``.

    ROLE is ``explorer`` or ``trainer``; the folder is the configuration's ``monitor.cache_dir``.
    """

    def __init__(self, project: str, group: str, name: str, role: str, config: Config = None) -> None:
        super().__init__(project, name, role, config)
        # Explorer and trainer are two processes, so each writes its own file.
        self.file = Path(config.monitor.cache_dir) / f"steps-{role}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """Append the metrics ``data`` of ``step``; ``commit`` is part of Trinity's interface and unused."""
        append_jsonl(self.file, {"step": step, **{name: float(value) for name, value in data.items()}})

    def close(self) -> None:
        """Nothing to close: each report is appended at once."""
