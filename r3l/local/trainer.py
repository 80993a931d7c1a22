"""One optimisation step: gradients accumulated over micro-batches, clipped, AdamW."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from r3l.config import TrainConfig
from r3l.core.method import Method
from r3l.local.batching import Row, collate, microbatches


def token_logprobs(model: Any, ids_B_T: torch.Tensor, mask_B_T: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of every masked token given those before it, 0 elsewhere; shape (B, T).

    ``temperature`` is that of sampling: what is optimised is the policy that acted (as the released trainer does).

    The vocabulary projection runs on masked positions only: for a large vocabulary it is most of the memory.
    Padding stands on the right, so plain causal attention never sees it.
    """
    hidden_B_T_H = model.model(input_ids=ids_B_T, use_cache=False).last_hidden_state
    wanted = mask_B_T.bool().clone()
    wanted[:, 0] = False  # nothing stands before the first token
    before = wanted.roll(-1, dims=1)
    logits = model.lm_head(hidden_B_T_H[before]).float() / temperature
    chosen = ids_B_T[wanted]
    logprobs = logits.gather(1, chosen[:, None]).squeeze(1) - torch.logsumexp(logits, dim=-1)
    out = torch.zeros(ids_B_T.shape, dtype=torch.float32, device=ids_B_T.device)
    return out.masked_scatter(wanted, logprobs)


class Trainer:
    """Owns the model's optimiser. ``step`` is the only thing that changes the model."""

    def __init__(
        self, model: Any, method: Method, config: TrainConfig, reference: Any | None, temperature: float = 1.0
    ) -> None:
        self.model, self.method, self.config, self.reference = model, method, config, reference
        self.temperature = temperature
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )
        self.steps_done = 0

    def step(self, rows: Sequence[Row]) -> dict[str, float]:
        """One update from all rows of a step; metrics. Without a useful row the model stays as it is."""
        useful = [row for row in rows if self.reference is not None or not row.idle]
        metrics: dict[str, float] = defaultdict(float)
        metrics["tokens/trained"] = sum(int(r.mask.sum()) for r in useful)
        metrics["tokens/forwarded"] = sum(len(r.ids) for r in useful)
        metrics["rows/used"], metrics["rows/idle"] = len(useful), len(rows) - len(useful)
        if useful:
            self._update(useful, metrics)
        self.steps_done += 1
        return dict(metrics)

    def _update(self, rows: Sequence[Row], metrics: dict[str, float]) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        for part in microbatches(rows, self.config.tokens_per_microbatch):
            batch = collate(part, self.model.device)
            if self.reference is not None:
                with torch.no_grad():
                    reference = token_logprobs(self.reference, batch.ids_B_T, batch.mask_B_T, self.temperature)
                batch = replace(batch, ref_logprobs_B_T=reference)
            logprobs_B_T = token_logprobs(self.model, batch.ids_B_T, batch.mask_B_T, self.temperature)
            loss, parts = self.method.loss(batch, logprobs_B_T)
            torch.autograd.backward(loss)
            metrics["loss"] += loss.item()
            for key, value in parts.items():  # additive over micro-batches
                metrics[key] += value
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        metrics["grad_norm"] = norm.item()
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * self._warmup()
        self.optimizer.step()

    def _warmup(self) -> float:
        return min(1.0, (self.steps_done + 1) / max(self.config.lr_warmup_steps, 1))
