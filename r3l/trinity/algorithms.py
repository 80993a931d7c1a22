"""One Trinity algorithm type a method, made from the method registry: ``r3l.trinity.algorithms.R3l`` and so on.

A type says which models the trainer keeps; everything else stands in the configuration (r3l.trinity.config).
"""

from __future__ import annotations

from typing import Any

from trinity.algorithm.algorithm import AlgorithmType

from r3l.config import names
from r3l.trinity.config import ADVANTAGE, LOSS, algorithm_name


class _MethodAlgorithm(AlgorithmType):
    """What all methods have in common. ``use_reference``: the trainer also runs the start model."""

    use_critic = False
    use_reference = False
    compute_advantage_in_trainer = False
    can_balance_batch = True
    schema = "experience"

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """The adapters."""
        nothing = {"kl_penalty_fn": "none", "kl_loss_fn": "none", "entropy_loss_fn": "none"}
        return {"advantage_fn": ADVANTAGE, "policy_loss_fn": LOSS, "sample_strategy": "default", **nothing}


for _reference in (False, True):
    for _method in names("methods"):
        _name = algorithm_name(_method, _reference).rpartition(".")[2]
        globals()[_name] = type(_name, (_MethodAlgorithm,), {"use_reference": _reference, "__module__": __name__})
