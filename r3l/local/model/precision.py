"""The precision policy of the local engine, all of it.

========================  =============  ========================================================================
weights of the optimiser  float32        master weights; AdamW's moments and gradients summed over micro-batches as well
forward and backward      float32        ``compute_dtype: bfloat16`` makes it bfloat16 on a GPU and on a CPU that
                                         multiplies such matrices (AMX), ``bfloat16_anywhere`` on every CPU
vocabulary projection     float32        of the computed hidden states and weights, in sampling and training alike;
                                         from there log-probs and losses are float32, sampling's softmax float64
key-value caches          as forward
========================  =============  ========================================================================

One module both samples and is trained, so the two differ by the order of sums alone (``logprob_mismatch`` in the
metrics).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from r3l.config import ComputeDtype, Device
from r3l.core.errors import ConfigError
from r3l.local.cpu import bfloat16_factors, multiplies_bfloat16

# Largest mean and largest single |training - sampling| of a token's log-prob, nats. float32: a hundred times what was
# measured on a CPU. bfloat16: four to six times the most that an H100 measured in 59 updates (notebook of 2026-11-26).
LIMITS = {torch.float32: (1e-4, 1e-2), torch.bfloat16: (3e-2, 2.0)}


def device_of(wanted: Device = "auto") -> torch.device:
    """Where to compute; ``auto``: a GPU where torch finds one. Raises ConfigError where ``cuda`` cannot be had."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is 'cuda', but torch {torch.__version__} finds no GPU; set device=cpu (or auto), or install a "
            "torch with CUDA and check nvidia-smi"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def compute_dtype(wanted: ComputeDtype, device: torch.device) -> torch.dtype:
    """The type of forward and backward passes on ``device``."""
    rounded = wanted == "bfloat16_anywhere"
    rounded |= wanted == "bfloat16" and (device.type == "cuda" or multiplies_bfloat16())
    return torch.bfloat16 if rounded else torch.float32


def cast_parameters(model: Any, dtype: torch.dtype, frozen_alone: bool = False) -> None:
    """Round the parameters, or those that do not train, to ``dtype``, in place. Not the buffers: rounded rotary
    frequencies shift late positions."""
    for parameter in model.parameters():
        if not (frozen_alone and parameter.requires_grad):
            parameter.data = parameter.data.to(dtype)


def recompute_activations(model: Any) -> None:
    """Activation checkpointing: backward computes each layer's activations again, forward keeps none."""
    with warnings.catch_warnings():
        # another name from some transformers between 5.17 and 5.23 on; this one works in all
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()


class Projection(NamedTuple):
    """What makes logits of hidden states: weights (V, H) and bias (V,), float32 (float64 of float64); then they are
    multiplied by ``scale``, and at last ``cap * tanh(logits / cap)`` keeps them within ``cap`` (0: as they are)."""

    weight_V_H: torch.Tensor
    bias_V: torch.Tensor | None = None
    scale: float = 1.0
    cap: float = 0.0


def vocabulary_projection(model: Any) -> Projection:
    """That of ``model``. Cohere's models have a ``logit_scale``, Granite's a divisor ``logits_scaling``, Gemma-2's a
    ``final_logit_softcapping`` (their classes in transformers)."""
    head, dtype, config = model.lm_head, torch.promote_types(model.lm_head.weight.dtype, torch.float32), model.config
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None) or 0.0
    return Projection(head.weight.to(dtype), None if head.bias is None else head.bias.to(dtype), scale, cap)


def vocabulary_logits(hidden: torch.Tensor, projection: Projection) -> torch.Tensor:
    """Logits of hidden states, in the type of ``projection``, shape (..., H) to (..., V).

    Hidden states in bfloat16 come with weights that were rounded to it, so that their products are exact in float32.
    """
    weight_V_H, bias_V, scale, cap = projection
    with bfloat16_factors(hidden.dtype == torch.bfloat16):
        logits = torch.nn.functional.linear(hidden.to(weight_V_H.dtype), weight_V_H, bias_V)
    logits = logits * scale if scale != 1 else logits
    return cap * torch.tanh(logits / cap) if cap else logits


def sampled_logits(model: Any, hidden_B_H: torch.Tensor) -> torch.Tensor:
    """The same logits on a GPU, shape (B, V), of too few rows for gradients to matter.

    Factors in bfloat16 are not widened first (a fifth of the time of a token): their sum is float32 all the same.
    """
    head = model.lm_head
    if hidden_B_H.is_cuda and hidden_B_H.dtype == torch.bfloat16 and head.bias is None:
        return torch.mm(hidden_B_H, head.weight.T, out_dtype=torch.float32)
    return vocabulary_logits(hidden_B_H, vocabulary_projection(model))


class MasterWeights:
    """The float32 weights that the optimiser updates; those of a float32 model are its own. Frozen ones have none.

    Takes a float32 model and leaves it in ``dtype``. A step: ``accumulate_gradients`` after every backward pass, clip
    and update ``parameters``, ``copy_to_model``.
    """

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names, self._computed = list(trained), list(trained.values())
        self._separate = dtype != torch.float32
        self.parameters: list[torch.nn.Parameter] = self._computed
        if self._separate:
            self.parameters = [torch.nn.Parameter(p.detach().clone()) for p in self._computed]
            cast_parameters(model, dtype)

    def accumulate_gradients(self) -> None:
        """Add a micro-batch's gradients to those of the master weights."""
        for master, computed in self._pairs():
            if computed.grad is not None:
                gradient = computed.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                computed.grad = None

    def copy_to_model(self) -> None:
        """Round the master weights into the model."""
        with torch.no_grad():
            for master, computed in self._pairs():
                computed.copy_(master)

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The master weights by the model's names."""
        return zip(self._names, self.parameters, strict=True)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The master weights by the model's names, without gradients."""
        return {name: p.detach() for name, p in self.named_parameters()}

    def _pairs(self) -> Iterator[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        """(master, computed) where they are two."""
        return zip(self.parameters, self._computed, strict=True) if self._separate else iter(())
