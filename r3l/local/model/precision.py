"""Precision of every computation in the local engine.

========================  ==========  =================================================================
weights of the optimiser  float32     master weights, AdamW's moments, gradients summed over micro-batches
forward and backward      float32     ``compute_dtype: bfloat16`` makes it bfloat16 on a GPU and on a CPU that
                                      multiplies such numbers (AMX, AVX512-BF16), ``bfloat16_anywhere`` on every
                                      CPU
vocabulary projection     float32     of the computed hidden states and weights, in sampling and training;
                                      then log-probs and losses are float32, sampling's softmax float64
key-value caches          as forward
========================  ==========  =================================================================

With ``train.sync_interval`` 1 the weights that sample are those that are trained, so the log-probs of the two
differ by the order of sums alone, and with vLLM by its own kernels (``logprob_mismatch`` in the metrics).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from r3l.config import ComputeDtype, Device
from r3l.core.errors import ConfigError
from r3l.local.cpu import multiplies_bfloat16

# Limits of |training - sampling| of a token's log-prob (nats): mean, and largest single one. float32: a
# hundred times the values measured on a CPU. bfloat16: four to six times the largest values of 59 updates on
# an H100 (notebook of 2026-11-26).
LIMITS = {torch.float32: (1e-4, 1e-2), torch.bfloat16: (3e-2, 2.0)}


def device_of(wanted: Device = "auto") -> torch.device:
    """The torch device to compute on; ``auto``: the first CUDA GPU, or the CPU if there is none.

    Raises ConfigError if ``cuda`` is wanted and there is no GPU.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is 'cuda', but torch {torch.__version__} finds no GPU; set device=cpu (or auto), or "
            "install a torch with CUDA and check nvidia-smi"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def compute_dtype(wanted: ComputeDtype, device: torch.device) -> torch.dtype:
    """Type of forward and backward passes on ``device``: float32 or bfloat16.

    ``bfloat16`` is followed on a GPU, and on a CPU only if that multiplies bfloat16 matrices faster than
    float32 ones; ``bfloat16_anywhere`` on every device.
    """
    rounded = wanted == "bfloat16_anywhere"
    rounded |= wanted == "bfloat16" and (device.type == "cuda" or multiplies_bfloat16())
    return torch.bfloat16 if rounded else torch.float32


def cast_parameters(model: Any, dtype: torch.dtype, frozen_alone: bool = False) -> None:
    """Convert the parameters of ``model`` to ``dtype`` in place, with ``frozen_alone`` only the frozen ones.

    Buffers keep their type.
    """
    # Rounded rotary frequencies, which are buffers, would shift late positions.
    for parameter in model.parameters():
        if not (frozen_alone and parameter.requires_grad):
            parameter.data = parameter.data.to(dtype)


def recompute_activations(model: Any) -> None:
    """Turn activation (gradient) checkpointing of ``model`` on: less memory in training, but slower.

    The forward pass then keeps only the layers' inputs, and the backward pass computes the rest again.
    """
    with warnings.catch_warnings():
        # Some version between 5.17 and 5.23 gave the method another name; this one works in all.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()


class MasterWeights:
    """The float32 weights that the optimiser updates, of a model that computes in ``dtype``.

    ``parameters``: one for each trainable parameter of ``model``; ``computed``: those parameters themselves,
    in the same order. For float32 the two are the same objects; else ``parameters`` are float32 copies, and
    the constructor casts the complete (float32) ``model`` to ``dtype`` in place. One update: after every
    backward pass ``accumulate_gradients``, then clip and step on ``parameters``, then ``copy_to_model``.
    """

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names = list(trained)
        self._separate = dtype != torch.float32
        self.computed: list[torch.nn.Parameter] = list(trained.values())
        self.parameters: list[torch.nn.Parameter] = self.computed
        if self._separate:
            self.parameters = [torch.nn.Parameter(p.detach().clone()) for p in self.computed]
            cast_parameters(model, dtype)

    def accumulate_gradients(self) -> None:
        """Move the gradients of the model's parameters to the master weights, added to those there.

        Clears the model's gradients. Does nothing for a float32 model, where torch has added them up itself.
        """
        if not self._separate:
            return
        for master, computed in zip(self.parameters, self.computed, strict=True):
            if computed.grad is not None:
                gradient = computed.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                computed.grad = None

    def copy_to_model(self) -> None:
        """Copy the master weights into the model, rounded to its type; no effect on a float32 model."""
        if not self._separate:
            return
        with torch.no_grad():
            for master, computed in zip(self.parameters, self.computed, strict=True):
                computed.copy_(master)

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """(name of the model's parameter, its float32 master weight) for every trainable parameter."""
        return zip(self._names, self.parameters, strict=True)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The float32 master weights, without copying, by the names of the model's trainable parameters."""
        return {name: p.detach() for name, p in self.named_parameters()}


class AveragedWeights:
    """Exponential moving average of the weights ``master``, a teacher's; begins with their present values.

    :meth:`update` makes it (1 - rate) x average + rate x present weights. ``weights``: the average, by name.
    """

    def __init__(self, master: MasterWeights, rate: float) -> None:
        self.master = master
        self.rate = rate
        self.weights = {name: weight.clone() for name, weight in master.state_dict().items()}

    def update(self) -> None:
        """Move the average towards the present weights by ``rate``; called after each training update."""
        for name, weight in self.master.state_dict().items():
            self.weights[name].mul_(1 - self.rate).add_(weight, alpha=self.rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the model for the block; afterwards the trained weights are back."""
        trained = {name: weight.clone() for name, weight in self.master.state_dict().items()}
        self._put(self.weights)
        try:
            yield
        finally:
            self._put(trained)

    def _put(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in self.master.state_dict().items():
            weight.copy_(weights[name])
        self.master.copy_to_model()
