"""What Trinity loads by a dotted path besides workflow, advantage and loss: an algorithm type a method, and a monitor.

``r3l.trinity.plugins.R3l`` and so on are made from the method registry. A type says which models the trainer keeps;
everything else stands in the configuration (r3l.trinity.config).
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


class _MethodAlgorithm(AlgorithmType):
    """What all methods have in common. ``use_reference``: the trainer also runs the base checkpoint."""

    use_critic = False
    use_reference = False
    compute_advantage_in_trainer = False
    can_balance_batch = True
    schema = "experience"

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        nothing = {"kl_penalty_fn": "none", "kl_loss_fn": "none", "entropy_loss_fn": "none"}
        return {"advantage_fn": ADVANTAGE, "policy_loss_fn": LOSS, "sample_strategy": "default", **nothing}


for _reference in (False, True):
    for _method in names("methods"):
        _name = algorithm_name(_method, _reference).rpartition(".")[2]
        globals()[_name] = type(_name, (_MethodAlgorithm,), {"use_reference": _reference, "__module__": __name__})


class LinesMonitor(Monitor):
    """Writes what the explorer and the trainer report as lines ``{"step": n, name: value, ...}`` of finite numbers."""

    def __init__(self, project: str, group: str, name: str, role: str, config: Config = None) -> None:
        super().__init__(project, name, role, config)
        self.file = (
            Path(config.monitor.cache_dir) / f"steps-{role}.jsonl"
        )  # a file a role, since they are two processes
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        append_jsonl(self.file, {"step": step, **{name: float(value) for name, value in data.items()}})

    def close(self) -> None:
        pass
