"""How close a step comes to the hardware: measured bandwidth and matrix rate of this device against what it needs.

Not run on a GPU yet; on a CPU with the run's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from r3l.bench.rollout import clock
from r3l.local.kv_cache import head_size

TIMES = 10
COPY_BYTES, SIDE = {"cuda": 2**30, "cpu": 2**27}, {"cuda": 8192, "cpu": 1024}  # beyond any cache


def roofline(model: Any, report: Mapping[str, Any]) -> dict[str, float]:
    """The least seconds of ``report``'s step on this GPU, and the share of them in what ``ours`` took."""
    bandwidth, rate = bandwidth_of(model.device), matrix_rate_of(model.device, model.dtype)
    least = least_seconds(model, report, bandwidth, rate)
    ours = report["ours"]
    return {
        "bytes_per_s": bandwidth,
        "flop_per_s": rate,
        **{f"least/{phase}": seconds for phase, seconds in least.items()},
        **{f"share/{phase}": least[phase] / ours[f"seconds/{phase}"] for phase in least},
    }


def least_seconds(model: Any, report: Mapping[str, Any], bandwidth: float, rate: float) -> dict[str, float]:
    """``sample``: every decoded token reads all weights and, of each row, the keys and values so far; the prompts are
    encoded at the matrix rate. ``train``: 6 FLOPs a parameter and token, 2 forward and 4 backward (Kaplan et al. 2020,
    2001.08361, section 2.1).
    """
    parameters = sum(p.numel() for p in model.parameters())
    weights, cache = bytes_read(model)
    rows, prompt = report["responses"], report["prompt_tokens"]
    length = report["response_tokens"] // rows
    cached = length * prompt + rows * length * (length - 1) // 2  # tokens read over the whole response, all rows
    decode = (length * weights + cached * cache) / bandwidth
    tokens = prompt + report["response_tokens"]
    return {"sample": decode + 2 * parameters * prompt / rate, "train": 6 * parameters * tokens / rate}


def bytes_read(model: Any) -> tuple[int, int]:
    """Bytes that decoding a token reads: all weights, and the keys and values of each token before it."""
    config, size = model.config, torch.finfo(model.dtype).bits // 8
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size(config) * size
    return sum(p.numel() for p in model.parameters()) * size, cache


def bandwidth_of(device: torch.device) -> float:
    """Bytes a second that a copy within the device's memory reads and writes."""
    source = torch.empty(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * len(source) / _seconds(lambda: target.copy_(source))


def matrix_rate_of(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPs a second of a large square product."""
    side = SIDE[device.type]
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / _seconds(lambda: a @ b)


def _seconds(work: Callable[[], Any]) -> float:
    """Of one call, after three that warm up."""
    for _ in range(3):
        work()
    began = clock()
    for _ in range(TIMES):
        work()
    return (clock() - began) / TIMES
