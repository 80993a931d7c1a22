"""A second device without a GPU: its tensors compute on the CPU, and operations that mix both devices fail as there."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # a name for which torch has rules, but for its own tensors no numbers
ACROSS = {"copy_", "_to_copy"}  # between devices
INDICES = {"index", "index_put_", "index_put", "_unsafe_index", "_index_put_impl_"}  # a GPU takes a CPU's
KERNELS = {"_fused_sdp_choice": 0}  # attention by plain operations


class There(torch.Tensor):
    """A tensor of the second device; ``here`` holds its numbers."""

    @staticmethod
    def __new__(cls, here):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )

    def __init__(self, here):
        self.here = here

    def __repr__(self):
        return f"There({self.here!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


class _Computing(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        with self:  # inference mode does not take operations apart
            parts = operation.decompose(*args, **(kwargs or {}))
        return compute(operation, args, kwargs or {}) if parts is NotImplemented else parts


class _Moving(TorchFunctionMode):
    """What moves numbers past every dispatch mode: ``torch.tensor`` to a device, a list as index, ``tolist`` back."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.tensor and "device" in kwargs:
            return function(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if function is torch.Tensor.tolist:
            return _here(args[0].detach()).tolist()
        if function is torch.Tensor.__getitem__ and isinstance(args[1], list):
            return function(args[0], torch.tensor(args[1]))
        return function(*args, **kwargs)


@contextmanager
def second_device():
    """Within it DEVICE can be computed on."""
    with _Moving(), _Computing():
        yield


def compute(operation, args, kwargs):
    """``operation`` on the CPU, its result where it would be."""
    name = operation.overloadpacket.__name__
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = any(isinstance(tensor, There) for tensor in tensors)
    if there and name not in ACROSS:
        mixed = tensors[:1] if name in INDICES else tensors
        strangers = [tensor for tensor in mixed if not isinstance(tensor, There) and tensor.dim()]
        if strangers:
            raise AssertionError(f"{name} mixes devices: {[(type(t).__name__, tuple(t.shape)) for t in tensors]}")
    if there and name in KERNELS:
        return KERNELS[name]
    wanted = kwargs.get("device")
    on_there = there if wanted is None else torch.device(wanted).type == DEVICE.type
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    bare_args, bare_kwargs = tree_map(_here, (args, kwargs))
    result = operation(*bare_args, **bare_kwargs)
    if not on_there:
        return result
    wrapped = tree_map(lambda leaf: There(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)
    return return_and_correct_aliasing(operation, args, kwargs, wrapped) if there else wrapped


def _here(leaf):
    return leaf.here if isinstance(leaf, There) else leaf
