"""What answers questions: a model of this machine, by the sampler that training uses, or one at a server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from r3l.core.errors import ConfigError
from r3l.core.policy import Policy, Sampling
from r3l.evaluation.agents import Dialog, ServedAgent
from r3l.local.checkpoint import load_model
from r3l.local.policy import LocalPolicy
from r3l.local.precision import cast_parameters, compute_dtype, device_of
from r3l.processes.gather import Gather, together


@dataclass(frozen=True)
class Model:
    """A policy that replies, in ``batches_at_once`` batches of ``batch`` dialogs that ``gather`` runs together.

    ``settings``: all that changes a reply. ``connection`` is open while it is asked.
    """

    name: str
    settings: Mapping[str, Any]
    policy: Policy
    sampling: Sampling
    gather: Gather = together
    batch: int = 1
    batches_at_once: int = 1
    connection: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)


def local_model(model: str, temperature: float, max_tokens: int, batch: int = 16) -> Model:
    """A stored model's name, a folder in Hugging Face layout, or a hub id. Raises ConfigError and CheckpointError."""
    device = device_of()
    network, tokenizer = load_model(model, device, "packed")
    dtype = compute_dtype("bfloat16", device)
    cast_parameters(network, dtype)
    context = int(network.config.max_position_embeddings)
    if max_tokens >= context:
        raise ConfigError(
            f"sampling.max_tokens is {max_tokens}, but {model} has room for {context} with the prompt; lower it"
        )
    settings: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    if dtype != torch.float32:
        settings["dtype"] = str(dtype)
    # `turn`: the template renders every dialog whole, as a server does; nothing here is trained on.
    policy = LocalPolicy(network, tokenizer, context, samples="turn")
    name, sampling = model.rstrip("/").rpartition("/")[2], Sampling(temperature, max_tokens)
    return Model(name, settings, policy, sampling, policy.barrier.gather, batch)


def served_model(agent: ServedAgent, temperature: float, max_tokens: int) -> Model:
    """A model at a server. Raises ConfigError."""
    if agent.dialog is not Dialog.MESSAGES:
        raise ConfigError(
            f"--dialog is {agent.dialog.value!r}, but questions (--set) are sent as messages; leave it out"
        )
    from r3l.endpoint.client import Endpoint  # takes seconds to import

    endpoint, fields = Endpoint(agent.endpoint), dict(agent.endpoint.fields)
    settings = {"temperature": temperature, "max_tokens": max_tokens} | ({"request": fields} if fields else {})
    return Model(
        agent.endpoint.model,
        settings,
        agent.policy(endpoint),
        Sampling(temperature, max_tokens),
        batches_at_once=agent.endpoint.concurrency,
        connection=endpoint,
    )
