"""Precision of every computation in the local engine.

========================  ==========  =================================================================
weights of the optimiser  float32     master weights, AdamW's moments, gradients summed over micro-batches
forward and backward      float32     ``compute_dtype: bfloat16`` makes it bfloat16 on a GPU and on a CPU that
                                      multiplies such matrices (AMX), ``bfloat16_anywhere`` on every CPU
vocabulary projection     float32     of the computed hidden states and weights, in sampling and training;
                                      then log-probs and losses are float32, sampling's softmax float64
key-value caches          as forward
========================  ==========  =================================================================

The model that samples is the model that is trained, so the log-probs of the two differ by the order of sums
alone (``logprob_mismatch`` in the metrics).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from r3l.config import ComputeDtype, Device
from r3l.core.errors import ConfigError
from r3l.local.cpu import bfloat16_factors, multiplies_bfloat16

# Limits of |training - sampling| of a token's log-prob (nats): mean, and largest single one. float32: a
# hundred times the values measured on a CPU. bfloat16: four to six times the largest values of 59 updates on
# an H100 (notebook of 2026-11-26).
LIMITS = {torch.float32: (1e-4, 1e-2), torch.bfloat16: (3e-2, 2.0)}


def device_of(wanted: Device = "auto") -> torch.device:
    """Device of a run; ``auto``: a GPU if there is one. Raises ConfigError for ``cuda`` without a GPU."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is 'cuda', but torch {torch.__version__} finds no GPU; set device=cpu (or auto), or "
            "install a torch with CUDA and check nvidia-smi"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def compute_dtype(wanted: ComputeDtype, device: torch.device) -> torch.dtype:
    """Type of forward and backward passes on ``device``."""
    rounded = wanted == "bfloat16_anywhere"
    rounded |= wanted == "bfloat16" and (device.type == "cuda" or multiplies_bfloat16())
    return torch.bfloat16 if rounded else torch.float32


def cast_parameters(model: Any, dtype: torch.dtype, frozen_alone: bool = False) -> None:
    """Convert the parameters to ``dtype`` in place, with ``frozen_alone`` only the frozen ones.

    Buffers stay: rounded rotary frequencies would shift late positions.
    """
    for parameter in model.parameters():
        if not (frozen_alone and parameter.requires_grad):
            parameter.data = parameter.data.to(dtype)


def recompute_activations(model: Any) -> None:
    """Turn activation checkpointing on, in place: the backward pass computes each layer's activations again.

    The forward pass then keeps only the layers' inputs.
    """
    with warnings.catch_warnings():
        # Some version between 5.17 and 5.23 gave the method another name; this one works in all.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()


class Projection(NamedTuple):
    """Vocabulary projection: weights (V, H) and bias (V,), in float32, or float64 for a float64 model.

    Logits are multiplied by ``scale``; then ``cap * tanh(logits / cap)`` keeps them within ``cap`` (0: no
    cap).
    """

    weight_V_H: torch.Tensor
    bias_V: torch.Tensor | None = None
    scale: float = 1.0
    cap: float = 0.0


def vocabulary_projection(model: Any) -> Projection:
    """Vocabulary projection of ``model``, with the scale and the cap that its configuration names."""
    head = model.lm_head
    config = model.config
    dtype = torch.promote_types(head.weight.dtype, torch.float32)
    # As in transformers: Cohere's models have a factor, Granite's a divisor, Gemma-2's a cap.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None) or 0.0
    return Projection(head.weight.to(dtype), None if head.bias is None else head.bias.to(dtype), scale, cap)


def vocabulary_logits(hidden: torch.Tensor, projection: Projection) -> torch.Tensor:
    """Logits of hidden states, shape (..., H) to (..., V), in the type of ``projection``."""
    # Hidden states in bfloat16 come with weights rounded to it, so their products are exact in float32.
    weight_V_H, bias_V, scale, cap = projection
    with bfloat16_factors(hidden.dtype == torch.bfloat16):
        logits = torch.nn.functional.linear(hidden.to(weight_V_H.dtype), weight_V_H, bias_V)
    logits = logits * scale if scale != 1 else logits
    return cap * torch.tanh(logits / cap) if cap else logits


def sampled_logits(model: Any, hidden_B_H: torch.Tensor) -> torch.Tensor:
    """Logits for sampling on a GPU, shape (B, V), without gradients."""
    head = model.lm_head
    # bfloat16 factors are multiplied as they are, a fifth of a token's time less; sums are float32 anyway.
    if hidden_B_H.is_cuda and hidden_B_H.dtype == torch.bfloat16 and head.bias is None:
        return torch.mm(hidden_B_H, head.weight.T, out_dtype=torch.float32)
    return vocabulary_logits(hidden_B_H, vocabulary_projection(model))


class MasterWeights:
    """Float32 weights that the optimiser updates. Frozen weights have none.

    A float32 model's own weights are its master weights. Takes a float32 model and leaves it in ``dtype``. A
    step is: ``accumulate_gradients`` after every backward pass, clip and update ``parameters``,
    ``copy_to_model``.
    """

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names = list(trained)
        self._computed = list(trained.values())  # the parameters that the model computes with
        self._separate = dtype != torch.float32
        self.parameters: list[torch.nn.Parameter] = self._computed
        if self._separate:
            self.parameters = [torch.nn.Parameter(p.detach().clone()) for p in self._computed]
            cast_parameters(model, dtype)

    @property
    def computed(self) -> list[torch.nn.Parameter]:
        """The parameters that the model computes with, in the order of ``parameters``."""
        return self._computed

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
        """(name in the model, master weight) of every trained weight, in float32.

        For a float32 model these are its own parameters, else copies of them.
        """
        return zip(self._names, self.parameters, strict=True)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Master weights by the model's names, without gradients."""
        return {name: p.detach() for name, p in self.named_parameters()}

    def _pairs(self) -> Iterator[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        """Pairs (master weight, the model's parameter); none for a float32 model, which has both in one."""
        return zip(self.parameters, self._computed, strict=True) if self._separate else iter(())
