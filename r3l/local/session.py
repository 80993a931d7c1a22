"""A loaded run: model, policy, environment workers, dialogue. Shared by training and evaluation."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import deterministic

from r3l.config import Run, base_checkpoint_of, environment_of, locate
from r3l.config import trains as is_trained
from r3l.core.errors import ConfigError
from r3l.core.rollout import RolloutContext
from r3l.core.seeds import Address
from r3l.core.trajectory import Trajectory
from r3l.endpoint.judge import judge_options
from r3l.local.checkpoint import load_model
from r3l.local.cpu import keep_freed_memory, threads, use_onednn
from r3l.local.model import lora
from r3l.local.model.check_architecture import check_architecture
from r3l.local.model.forward import Pass, pass_of
from r3l.local.model.precision import MasterWeights, cast_parameters, compute_dtype, device_of
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import scored
from r3l.runs.session import PlaySession, open_play_session

CPU = torch.device("cpu")


@dataclass(kw_only=True)
class Session(PlaySession):
    """What playing episodes with a model of this process needs; responses are sampled in common batches.

    ``policy.model`` samples: ``model`` itself, or a copy where the sampling weights lag behind (train.sync_interval).
    ``master_weights``: the weights to train, where it trains.
    """

    policy: LocalPolicy
    model: Any
    master_weights: MasterWeights | None
    tokenizer: Any

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """By the forward pass that trains."""
        self.policy.release()
        settings = self.run.sampling.temperature, self.run.train.tokens_per_microbatch
        return scored(self.model, trajectories, self.run.samples, *settings, pass_wanted(self.run))

    def rollout_context(self, address: Address, temperature: float) -> RolloutContext:
        """As for every policy; the caches of this one start empty."""
        self.policy.begin()
        return super().rollout_context(address, temperature)


def policy_of(run: Run, model: Any, tokenizer: Any) -> LocalPolicy:
    """The policy that samples from ``model`` as ``run`` says."""
    if run.compute == "vllm":
        from r3l.local.sampling.vllm_sampling import VllmPolicy

        return VllmPolicy(model, tokenizer, run.sampling, run.samples)
    return LocalPolicy(
        model,
        tokenizer,
        run.sampling.max_context,
        samples=run.samples,
        tokens_per_batch=run.sampling.tokens_per_batch,
        forward=pass_wanted(run),
    )


@contextmanager
def open_session(run: Run, model: str, trains: bool = False, forward: Pass | None = None) -> Iterator[Session]:
    """Load ``model`` and start the workers; closes them at the end.

    ``forward``: the pass that the model is loaded for (r3l.local.checkpoint:load_model), by default what ``run`` needs.
    Raises ConfigError where it ``trains`` under a judge that is not named, and as :func:`check_installed`.
    """
    check_installed(run)
    if trains:
        judge_options(run)
    with threads(run.threads), _opened(run, model, trains, forward) as session:
        yield session


@contextmanager
def _opened(run: Run, model: str, trains: bool, forward: Pass | None) -> Iterator[Session]:
    device = device_of(run.device)
    # Not on a GPU, where cumsum, which samples, has no such form. By this name torch imports no compiler.
    torch.set_deterministic_debug_mode("error" if device.type == "cpu" else "default")
    torch.backends.cuda.enable_cudnn_sdp(False)  # an H100 took 65 ms a token with it, 15 without
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # nothing reads any; a seventh of sampling
    loaded_for = "transformers" if run.compute == "vllm" else pass_wanted(run)  # vLLM asks for more than ours
    network, tokenizer = load_network(run, model, forward or loaded_for)
    if pass_of(network, pass_wanted(run)) == "transformers":
        check_architecture(network)
    keep_freed_memory()  # weights are loaded: another place in memory could change their sums in the last digit
    use_onednn(pass_wanted(run) == "packed" and device.type == "cpu")
    dtype = compute_dtype(run.compute_dtype, device)
    cast_parameters(network, dtype, frozen_alone=trains)  # a GPU never holds frozen weights in float32
    network.to(device)
    master_weights = MasterWeights(network, dtype) if trains else None
    cast_parameters(network, dtype)
    frozen = {id(p): p for p in network.parameters() if not p.requires_grad}  # a copy that lags behind shares them
    sampler = copy.deepcopy(network, frozen) if trains and run.train.sync_interval > 1 else network
    with (
        contextlib.closing(policy_of(run, sampler, tokenizer)) as policy,
        open_play_session(run, policy, policy.barrier.gather) as playing,
    ):
        policy.between_tokens = playing.stop_signals.check
        yield Session(**vars(playing), model=network, master_weights=master_weights, tokenizer=tokenizer)


def load_network(run: Run, model: str, forward: Pass) -> tuple[Any, Any]:
    """(model, tokenizer) of ``model``, float32 on the CPU; where an adapter trains, of the base checkpoint with the one
    that lies in ``model``, or with a fresh one where that is the base checkpoint itself. Raises CheckpointError."""
    if not (run.lora.rank and is_trained(run)):  # an untrained model may have other projections
        return load_model(model, CPU, forward)
    start = base_checkpoint_of(run)
    network, tokenizer = load_model(start, CPU, forward)
    lora.add(network, run.lora, run.seed, start)
    if locate(model) != locate(start):
        lora.load(Path(model), network)
    return network, tokenizer


@contextmanager
def whole_model(run: Run, checkpoint: Path) -> Iterator[Path]:
    """The folder of a run's checkpoint; of an adapter a temporary one with the model that it is merged into."""
    if not run.lora.rank:
        yield checkpoint
        return
    network, tokenizer = load_network(run, str(checkpoint), pass_wanted(run))
    with TemporaryDirectory() as folder:
        weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
        network.save_pretrained(Path(folder), state_dict=lora.merged(network, weights))
        tokenizer.save_pretrained(folder)
        yield Path(folder)


def pass_wanted(run: Run) -> Pass:
    """The forward pass that trains, and that samples unless vLLM does."""
    return "transformers" if run.compute == "transformers" else "packed"


def check_installed(run: Run) -> None:
    """Raises ConfigError where packages of the environment are missing, or vLLM is to sample and is not installed."""
    environment_of(run.env).check_installed()
    if run.compute == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"{run.cell}: compute is vllm, but there is none beside {sys.executable}: `make vllm` makes an "
            "environment with one for CPUs (.venv-vllm/bin/r3l), on a GPU install it there (docs/architecture.md); or "
            "leave compute out"
        )
