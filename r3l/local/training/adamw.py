"""AdamW without the import of torch's compiler, which torch.optim's class needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.adamw import adamw


class AdamW:
    """AdamW (1711.05101) with the part of torch.optim.AdamW's interface that the trainer uses.

    The same formula and state, by torch's own function (its class takes a second to import torch's compiler).
    ``options``: ``betas`` and ``weight_decay``; eps is 1e-8.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], lr: float, **options: Any) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr, **options}]
        self.state: dict[torch.nn.Parameter, dict[str, torch.Tensor]] = {}

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient, in place; the others stay as they are."""
        (group,) = self.param_groups
        trained = [parameter for parameter in group["params"] if parameter.grad is not None]
        # A parameter gets its moments at its first gradient, so frozen weights cost no memory.
        for parameter in trained:
            if parameter not in self.state:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.tensor(0.0), **moments}
        states = [self.state[parameter] for parameter in trained]
        beta1, beta2 = group["betas"]
        adamw(
            trained,
            [parameter.grad for parameter in trained if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            max_exp_avg_sqs=[],
            state_steps=[state["step"] for state in states],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=1e-8,
            maximize=False,
        )
