"""Session of the local engine for training and evaluation: model, policy, environment workers, dialogue.

``open_session`` loads the model with the type, on the device and with the sampler that the run names.
"""

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

from r3l.config import Run, base_checkpoint_of, environment_of, locate, model_digest
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
from r3l.local.training.logprobs import trajectory_logprobs
from r3l.runs.session import PlaySession, open_play_session

CPU = torch.device("cpu")


@dataclass(kw_only=True)
class LocalSession(PlaySession):
    """A session whose model is in this process; responses of all episodes are sampled in common batches.

    ``model``: the model that trains. ``policy.model``: the one that samples, which is the same object, or a
    copy that gets the new weights every ``train.sync_interval`` updates. ``master_weights``: float32 weights
    that the optimiser updates; None unless the session trains.
    """

    policy: LocalPolicy
    model: Any
    master_weights: MasterWeights | None
    tokenizer: Any

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Log-probs (nats) under ``model`` of each trajectory's trainable tokens, one array per trajectory.

        By the forward pass that trains, but always with torch's attention. The policy frees GPU memory that
        only sampling needs.
        """
        self.policy.release()
        return trajectory_logprobs(
            self.model,
            trajectories,
            self.run.samples,
            self.run.sampling.temperature,
            self.run.train.tokens_per_microbatch,
            forward_pass_of_run(self.run),
        )

    def rollout_context(self, address: Address, temperature: float) -> RolloutContext:
        """Context for the rollouts of a step or evaluation; ``address`` begins the seed address of all draws.

        Clears what the policy kept of earlier rollouts.
        """
        self.policy.begin()
        return super().rollout_context(address, temperature)


def policy_of(run: Run, model: Any, tokenizer: Any) -> LocalPolicy:
    """Policy that samples from ``model``: by vLLM if ``run.compute`` is ``vllm``, else by our decoders.

    Creating vLLM's raises ConfigError or EngineError (VllmPolicy).
    """
    if run.compute == "vllm":
        from r3l.local.sampling.vllm_sampling import VllmPolicy

        return VllmPolicy(model, tokenizer, run.sampling, run.samples)
    return LocalPolicy(
        model,
        tokenizer,
        run.sampling.max_context,
        samples=run.samples,
        tokens_per_batch=run.sampling.tokens_per_batch,
        forward_pass=forward_pass_of_run(run),
    )


@contextmanager
def open_session(
    run: Run,
    model: str,
    trains: bool = False,
    forward_pass: Pass | None = None,
) -> Iterator[LocalSession]:
    """Load ``model`` (name, folder or hub id) and start the environment workers of ``run``; a session.

    At the end of the block sampler and workers are closed. ``trains``: make master weights, and a separate
    sampler if its weights may be older. ``forward_pass``: the forward pass that the model is loaded for,
    ``packed`` or ``transformers``; None: as ``run`` needs. Sets options of torch for the complete process.
    Raises ConfigError if packages, a GPU or the judge's address are missing or if r3l cannot compute the
    model's architecture, CheckpointError if the model cannot be loaded, EngineError if vLLM cannot start.
    """
    check_installed(run)
    if trains:
        judge_options(run)
    with threads(run.threads):
        device = device_of(run.device)

        # On a CPU an operation without a deterministic form is an error. Not on a GPU, where cumsum, which
        # sampling needs, has no such form. By this function's name torch does not import its compiler.
        torch.set_deterministic_debug_mode("error" if device.type == "cpu" else "default")
        # In that mode torch also fills new memory, which is never read before it is written; without,
        # sampling takes 14 % less time.
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cuda.enable_cudnn_sdp(False)  # an H100 took 65 ms a token with it, 15 without

        # vLLM needs more of a model than our forward pass does, so it gets transformers' own.
        if forward_pass is None:
            forward_pass = "transformers" if run.compute == "vllm" else forward_pass_of_run(run)
        network, tokenizer = load_network(run, model, forward_pass)
        if pass_of(network, forward_pass_of_run(run)) == "transformers":
            check_architecture(network)

        # After loading: weights at another place in memory could change sums in the last digit.
        keep_freed_memory()
        use_onednn(forward_pass_of_run(run) == "packed" and device.type == "cpu")

        # Cast frozen weights before the move, so that a GPU never holds them in float32, and trained ones
        # after their float32 master weights have been copied.
        dtype = compute_dtype(run.compute_dtype, device)
        cast_parameters(network, dtype, frozen_alone=trains)
        network.to(device)
        master_weights = MasterWeights(network, dtype) if trains else None
        cast_parameters(network, dtype)

        # A sampler whose weights lag behind is a copy; it shares the frozen weights.
        frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
        sampler = copy.deepcopy(network, frozen) if trains and run.train.sync_interval > 1 else network
        with (
            contextlib.closing(policy_of(run, sampler, tokenizer)) as policy,
            open_play_session(run, policy, policy.barrier.gather) as playing,
        ):
            policy.between_tokens = playing.stop_signals.check  # a stop need not wait for the batch
            yield LocalSession(
                **vars(playing),
                model=network,
                master_weights=master_weights,
                tokenizer=tokenizer,
            )


def load_network(run: Run, model: str, forward_pass: Pass) -> tuple[Any, Any]:
    """Load ``model`` in float32 on the CPU, with a LoRA adapter if ``run`` trains one: (model, tokenizer).

    ``model``: for a run without an adapter any model; else the run's base checkpoint, which gets a new
    adapter, or a folder with an adapter, which is loaded into the base checkpoint. ``forward_pass``: the
    pass that the model is for, ``packed`` or ``transformers``. Raises CheckpointError if it cannot be loaded,
    ConfigError if peft or a projection for a new adapter is missing, DataError for a damaged manifest.
    """
    if not (run.lora.rank and is_trained(run)):  # an untrained model may have other projections
        return load_model(model, CPU, forward_pass)
    base = base_checkpoint_of(run)
    network, tokenizer = load_model(base, CPU, forward_pass)
    lora.add(network, run.lora, run.seed, locate(base))
    if locate(model) != locate(base):
        lora.load(Path(model), network, model_digest(base))
    return network, tokenizer


@contextmanager
def merged_model(run: Run, checkpoint: Path) -> Iterator[Path]:
    """Folder with the complete model of ``checkpoint`` in Hugging Face layout, for the block.

    That is ``checkpoint`` itself, or for a run with a LoRA adapter a temporary folder with the merged model.
    Raises CheckpointError if that cannot be loaded.
    """
    if not run.lora.rank:
        yield checkpoint
        return
    network, tokenizer = load_network(run, str(checkpoint), forward_pass_of_run(run))
    with TemporaryDirectory() as folder:
        weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
        network.save_pretrained(Path(folder), state_dict=lora.merged(network, weights))
        tokenizer.save_pretrained(folder)
        yield Path(folder)


def forward_pass_of_run(run: Run) -> Pass:
    """The forward pass that trains under ``run.compute``: ours (``packed``), or transformers'.

    It also samples, unless vLLM does.
    """
    return "transformers" if run.compute == "transformers" else "packed"


def check_installed(run: Run) -> None:
    """Raise ConfigError if packages of the run's environment are missing, or vLLM if it is to sample."""
    environment_of(run.env).check_installed()
    if run.compute == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"{run.cell}: compute is vllm, but vLLM is not installed for {sys.executable}: on a CPU `make "
            "vllm` makes an environment that has it (.venv-vllm/bin/r3l), on a GPU install it into this "
            "one (docs/architecture.md); or leave compute out"
        )
