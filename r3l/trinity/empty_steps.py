"""Steps of verl's trainer in which no row trains, as when all attempts of a task earn the same.

All weights of tokens, and so the gradient, are then 0. verl would count the update: its weight decay and the
momentum of earlier steps move the weights, and AdamW's moments decay. In the local engine both stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def skip_empty_steps() -> None:
    """Let verl's FSDP engine make no update from a batch in which no row of any rank has a weight.

    The gradient norm is then 0, and the learning rate's schedule goes on. Replaces two methods of verl in
    this process, once.
    """
    import torch.distributed as dist
    from verl.utils.device import get_device_id
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    if hasattr(FSDPEngine, "some_row_trains"):
        return
    train_batch = FSDPEngine.train_batch
    optimizer_step = FSDPEngine.optimizer_step

    def train_batch_of_rows(engine: Any, data: Any, loss_function: Callable[..., Any]) -> Any:
        # Each rank has other rows, and all ranks must agree, since an update needs all of them.
        largest = data["token_weight"].max().to(get_device_id())
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=engine.get_data_parallel_group())
        engine.some_row_trains = bool(largest > 0)
        return train_batch(engine, data, loss_function)

    def step_of_rows(engine: Any) -> float:
        if engine.some_row_trains:
            return float(optimizer_step(engine))
        engine.optimizer_zero_grad()
        return 0.0

    FSDPEngine.some_row_trains = True
    FSDPEngine.train_batch = train_batch_of_rows
    FSDPEngine.optimizer_step = step_of_rows
