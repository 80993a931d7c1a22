"""What verl 0.8 and Trinity 0.6.0 lack to train on a CPU, for tests alone: the package runs as it does on a GPU.

Both name CUDA in places where a CPU has no counterpart. Nothing here touches a number: the model, FSDP2, the
loss, its gradient, AdamW and checkpoints are verl's own.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as functional

ZERO = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
NOTHING = ("empty_cache", "synchronize", "set_device", "reset_peak_memory_stats")


def prepare_process():
    """Replace what is missing in this process; before verl's workers are made."""
    # torch.cpu has none of the memory counters that verl reads after each batch.
    for name in ZERO:
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *args, **options: 0)
    for name in NOTHING:
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *args, **options: None)
    if not hasattr(torch.cpu, "mem_get_info"):
        torch.cpu.mem_get_info = lambda *args: (0, 1)
    # Trinity calls CUDA by its name.
    torch.cuda.get_device_capability = lambda *args: (8, 0)
    torch.cuda.synchronize = lambda *args: None
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.pin_memory = lambda tensor, *args: tensor  # of the reference model, which verl offloads
    _replace_collectives()
    _open_verl_for_cpus()


def _replace_collectives():
    # gloo can neither average nor exchange unequal parts.
    summed = dist.all_reduce

    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if op != dist.ReduceOp.AVG:
            return summed(tensor, op, group, async_op)
        work = summed(tensor, dist.ReduceOp.SUM, group, False)
        tensor /= dist.get_world_size(group)
        return work

    def all_to_all(received, sent, group=None, async_op=False):
        mine = torch.stack([part.contiguous() for part in sent])
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everyones, mine, group=group)
        for part, theirs in zip(received, everyones, strict=True):
            part.copy_(theirs[dist.get_rank(group)])

    dist.all_reduce = all_reduce
    dist.all_to_all = all_to_all


def _open_verl_for_cpus():
    import verl.workers.engine.fsdp.transformer_impl as fsdp
    import verl.workers.engine_workers as workers
    from verl.utils.distributed import initialize_global_process_group_ray as start
    from verl.workers.engine.base import EngineRegistry

    workers.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: start(
        timeout_second, "gloo"
    )
    for strategy in ("fsdp", "fsdp2"):  # registered for CUDA and NPUs alone
        EngineRegistry._engines["language_model"][strategy]["cpu"] = fsdp.FSDPEngineWithLMHead


def send_32_bits():
    """Let verl send the sampler the weights that it trains, which it rounds to bfloat16."""
    from torch.distributed.tensor import DTensor
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    def weights(engine, **options):
        named = engine.module.state_dict().items()
        return ((name, p.full_tensor() if isinstance(p, DTensor) else p) for name, p in named), None

    FSDPEngine.get_per_tensor_param = weights


def register_packed_attention():
    """Attention over packed rows as flash-attn computes it, for verl's sequence parallelism: ``packed_torch``."""
    import verl.models.transformers.monkey_patch as ulysses
    from transformers.integrations import flash_attention
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attention(q, k, v, mask, length, *args, cu_seq_lens_q=None, softmax_scale=None, **options):
        ends = cu_seq_lens_q.tolist()
        rows = []
        for begin, end in zip(ends, ends[1:], strict=False):
            q_row, k_row, v_row = (t[:, begin:end].transpose(1, 2) for t in (q, k, v))
            row = functional.scaled_dot_product_attention(
                q_row, k_row, v_row, is_causal=True, scale=softmax_scale, enable_gqa=True
            )
            rows.append(row.transpose(1, 2))
        return torch.cat(rows, 1)

    ulysses._flash_attention_forward = attention
    ALL_ATTENTION_FUNCTIONS.register("packed_torch", flash_attention.flash_attention_forward)
    ALL_MASK_ATTENTION_FUNCTIONS.register("packed_torch", flash_attention_mask)


class WeightFile:
    """Weights from trainer to sampler through a file, in place of NCCL; ``port`` names the pair."""

    def __init__(self, port):
        self.path = Path(f"/dev/shm/r3l-test-weights-{port}")

    def sync_weight(self, iterator):
        part = self.path.with_suffix(".part")
        torch.save({name: tensor.detach().clone() for name, tensor in iterator}, part)
        part.replace(self.path)

    def receive(self):
        """The weights by name, once they have come."""
        while not self.path.exists():
            time.sleep(0.05)
        weights = torch.load(self.path)
        self.path.unlink()
        return weights

    def teardown(self):
        self.path.unlink(missing_ok=True)
