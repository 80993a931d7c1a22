"""vLLM as the sampler of the local engine (``compute: vllm``), in the same process.

vLLM starts with random weights and gets those of the model at once and after every update. It computes with a copy of
its own, some of it packed for its kernels, so each sync is checked: the log-probs of a probe must be the model's. Its
prefix cache is what dialogs share: the next turn of one, and a retry, find the tokens before them there. On a GPU it
sleeps while the model is trained, so that both use the same memory.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from r3l.config import SamplingConfig
from r3l.core.errors import ConfigError, EngineError
from r3l.core.policy import Samples
from r3l.local.memory import SAMPLING_REMEDY, out_of_memory_explained
from r3l.local.model import lora
from r3l.local.model.forward import cache_shape
from r3l.local.model.precision import LIMITS
from r3l.local.sampling.decoding import GenerationRequest
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import token_logprobs

# Read by vLLM when it is imported. In one process, so that weights are given by reference; threads are ours.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
DIALOGS = 64  # of max_context tokens that its cache holds where tokens_per_batch says nothing; our choice
CPU_BLOCK = 32  # tokens that its prefix cache shares at once; the least of vLLM's fast kernels on a CPU (default: 128)
NUMBAS = "llvmlite.binding.ffi"  # the module with numba's library
PROBE = 256  # tokens whose log-probs a sync compares; our choice


class VllmPolicy(LocalPolicy):
    """Opens dialogs that vLLM samples, with the weights that ``model`` had at the last sync.

    A request's draws are vLLM's own, seeded by its address: the same from run to run, others than the local sampler's.
    Raises ConfigError and EngineError where vLLM cannot start, EngineError where a sync leaves a stale copy.
    """

    def __init__(self, model: Any, tokenizer: Any, sampling: SamplingConfig, samples: Samples) -> None:
        super().__init__(model, tokenizer, sampling.max_context, samples=samples, use_cache=False)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            raise ConfigError(f"compute is vllm, which cannot be imported: {error}") from error
        if current_platform.device_type != model.device.type:
            raise ConfigError(
                f"this vllm computes on {current_platform.device_type!r}, the run on {model.device.type!r}: set "
                "device, or install the other build of vllm"
            )
        self._vllm: Any = vllm
        self._shares_memory, self._awake = model.device.type == "cuda", True
        with unseen(NUMBAS):
            self._llm = self._started(sampling)
        self.sync_weights()

    def begin(self) -> None:
        """Wake up, with an empty prefix cache."""
        if not self._awake:
            self._llm.wake_up()
            self._awake = True
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM keeps its prefix cache: a request is still being sampled")

    def release(self) -> None:
        """Sleep on a GPU: the weights go to the memory of the machine, the caches are dropped."""
        if self._shares_memory and self._awake:
            self._llm.sleep(level=1)
            self._awake = False

    def sync_weights(self) -> dict[str, float]:
        """Copy the weights of ``model``, all by name: without the second name of a tied one its packed form stays old.

        Metrics: |log-prob of vLLM - of the model| over the probe, ``handover/mean`` and ``/max`` (nats).
        """
        self.begin()
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(self._weights().items())})
        gap_T = self._gap()
        self.release()
        mean, most = gap_T.mean().item(), gap_T.max().item()
        limits = LIMITS[self.model.dtype]
        if not (mean <= limits[0] and most <= limits[1]):
            raise EngineError(
                f"vLLM samples from a stale copy of the weights: after a sync its log-probs are {mean:.2g} nats "
                f"in the mean and {most:.2g} at most from the model's over {len(gap_T)} tokens; allowed are "
                f"{limits[0]:g} and {limits[1]:g} in {self.model.dtype}. Do not train with it: leave compute "
                f"out, or install the vllm of configs/vllm/requirements.txt (here: {self._vllm.__version__})"
            )
        return {"handover/mean": mean, "handover/max": most}

    @torch.inference_mode()
    def sample(self, requests: list[GenerationRequest]) -> None:
        """Fill the ids and log-probs of ``requests``, in batches as vLLM schedules them."""
        with out_of_memory_explained(f"in sampling {len(requests)} responses", SAMPLING_REMEDY):
            outputs = self._llm.generate(
                [{"prompt_token_ids": request.pending} for request in requests],
                [self._parameters(request) for request in requests],
                use_tqdm=False,
            )
        for request, output in zip(requests, outputs, strict=True):
            (response,) = output.outputs
            request.ids = list(response.token_ids)
            steps = zip(response.logprobs, request.ids, strict=True)
            request.logprobs = [float(of_token[token].logprob) for of_token, token in steps]
            self.counts["encoded"] += len(request.pending) - (output.num_cached_tokens or 0)

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _parameters(self, request: GenerationRequest) -> Any:
        sampling = request.sampling
        return self._vllm.SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            seed=request.seed,
            stop_token_ids=sorted(request.stops),
            ignore_eos=True,  # the model's files name further ones: our stops alone end a response
            logprobs=0,  # of the sampled token
            detokenize=False,
        )

    def _started(self, sampling: SamplingConfig) -> Any:
        model = self.model
        tokens = max(sampling.tokens_per_batch or DIALOGS * self.max_context, self.max_context)
        of_token = math.prod(cache_shape(model.config, 1, 1)) * model.dtype.itemsize
        on_device = {"enable_sleep_mode": True} if self._shares_memory else {"block_size": CPU_BLOCK}
        set_num_threads = torch.set_num_threads  # vLLM for CPUs puts one in its place that sets nothing
        try:
            return self._vllm.LLM(
                model.name_or_path,
                load_format="dummy",
                dtype=str(model.dtype).removeprefix("torch."),
                hf_overrides={"head_dtype": "float32"},  # as r3l.local.model.precision has it
                logprobs_mode="processed_logprobs",  # of the policy that acts, at its temperature
                max_model_len=self.max_context,
                kv_cache_memory_bytes=tokens * of_token,
                enable_prefix_caching=True,
                enable_chunked_prefill=False,  # 0.32 on a CPU ends where a seeded prompt is read in parts
                enforce_eager=True,
                skip_tokenizer_init=True,
                generation_config="vllm",
                trust_remote_code=False,
                **on_device,
            )
        except (ValueError, NotImplementedError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise EngineError(
                f"vLLM cannot start with the model {model.name_or_path}: {reason[:500]}. Where it lacks memory, lower "
                "sampling.tokens_per_batch"
            ) from error
        finally:
            torch.set_num_threads = set_num_threads

    def _weights(self) -> dict[str, torch.Tensor]:
        return lora.merged(self.model, self.model.state_dict())

    @torch.inference_mode()
    def _gap(self) -> torch.Tensor:
        """|log-prob of vLLM - of the model| of tokens spread over the vocabulary, each given those before it."""
        count = min(PROBE, self.max_context - 1)
        ids = [k * self.model.config.vocab_size // count for k in range(count)]
        scored = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        (output,) = self._llm.generate([{"prompt_token_ids": ids}], scored, use_tqdm=False)
        theirs = [of_token[token].logprob for of_token, token in zip(output.prompt_logprobs[1:], ids[1:], strict=True)]
        ids_1_T = torch.tensor([ids], device=self.model.device)
        ours_T = token_logprobs(self.model.eval(), ids_1_T, torch.ones_like(ids_1_T))[0, 1:]
        return (torch.tensor(theirs, device=ours_T.device) - ours_T).abs()


@contextmanager
def unseen(name: str) -> Iterator[None]:
    """Take a module out of ``sys.modules`` for a while.

    While it starts, vLLM asks every object of every module for its ``__dict__``, and numba's library answers to any
    name with a function, on which vLLM 0.32 ends with an AttributeError.
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module
