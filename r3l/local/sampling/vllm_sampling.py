"""vLLM as the sampler of the local engine (``compute: vllm``), in the same process.

vLLM starts with random weights and gets the model's at once, and again after every update. It computes with
its own copy, parts of which are packed for its kernels. So every sync is checked: it samples a few short
responses, and their log-probs must equal the model's. Dialogs share its prefix cache: the next turn of a
dialog, and a retry, find the tokens before them there. On a GPU vLLM sleeps while the model is trained, so
that both use the same memory.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from r3l.config import SamplingConfig
from r3l.core.errors import ConfigError, EngineError
from r3l.core.policy import Samples, Sampling
from r3l.local.memory import SAMPLING_REMEDY, out_of_memory_explained
from r3l.local.model import lora
from r3l.local.model.forward import cache_shape
from r3l.local.model.precision import LIMITS
from r3l.local.sampling.decoding import GenerationRequest
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import token_logprobs

# Read by vLLM when it is imported. One process, so that weights are passed by reference; we set the threads.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
DIALOGS = 64  # dialogs of max_context tokens in its cache, unless tokens_per_batch is set; our choice
CPU_BLOCK = 32  # tokens in a block of its prefix cache: the smallest for its fast CPU kernels (default: 128)
NUMBAS = "llvmlite.binding.ffi"  # the module that holds numba's library
# Responses that are sampled to compare log-probs after a sync, and tokens of each: our choices.
PROBES = 16
PROBE_TOKENS = 16


class VllmPolicy(LocalPolicy):
    """Policy that samples with vLLM, in this process, from a copy of the weights of ``model``.

    vLLM starts and gets the weights at creation, which sets the variables of ENVIRONMENT that are not set; on
    a GPU it then sleeps until :meth:`begin`. Each request has the seed of its seed address (r3l.core.seeds),
    so a repeated run draws the same tokens, but not the local sampler's. Raises ConfigError if vLLM is
    missing or built for another device, EngineError if it cannot start or keeps a stale copy of the weights.
    """

    def __init__(self, model: Any, tokenizer: Any, sampling: SamplingConfig, samples: Samples) -> None:
        super().__init__(model, tokenizer, sampling.max_context, samples=samples, use_cache=False)
        # Before the import, at which vLLM reads them.
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            raise ConfigError(f"compute is vllm, which cannot be imported: {error}") from error
        if current_platform.device_type != model.device.type:
            raise ConfigError(
                f"this vllm computes on {current_platform.device_type!r}, the run on {model.device.type!r}: "
                "set device, or install the other build of vllm"
            )
        self._vllm: Any = vllm
        self._shares_memory = model.device.type == "cuda"
        self._awake = True
        with unseen(NUMBAS):
            self._llm = self._started(sampling)
        self.sync_weights()

    def begin(self) -> None:
        """Wake vLLM up and empty its prefix cache. Raises RuntimeError while a request is being sampled."""
        if not self._awake:
            self._llm.wake_up()
            self._awake = True
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM keeps its prefix cache: a request is still being sampled")

    def release(self) -> None:
        """Put vLLM to sleep if it is on a GPU: weights move to CPU memory, caches are dropped.

        :meth:`begin` wakes it up.
        """
        if self._shares_memory and self._awake:
            self._llm.sleep(level=1)
            self._awake = False

    def sync_weights(self) -> dict[str, float]:
        """Copy the weights of ``model`` to vLLM, and check the copy by the log-probs of what it samples.

        Returns the metrics ``handover/mean`` and ``handover/max``: mean and largest |log-prob of vLLM -
        log-prob of the model| (nats). Raises EngineError if they exceed r3l.local.model.precision:LIMITS.
        """
        self.begin()
        # Weights go by name, a tied one by both of its names: otherwise its packed form would stay old. An
        # adapter is merged, since vLLM has the architecture of the base checkpoint.
        weights = lora.merged(self.model, self.model.state_dict())
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights.items())})
        gap_T = self._gap()
        self.release()
        mean = gap_T.mean().item()
        most = gap_T.max().item()
        limits = LIMITS[self.model.dtype]
        if not (mean <= limits[0] and most <= limits[1]):
            raise EngineError(
                f"vLLM samples from a stale copy of the weights: after a sync its log-probs are {mean:.2g} "
                f"nats in the mean and {most:.2g} at most from the model's over {len(gap_T)} tokens; "
                f"allowed are {limits[0]:g} and {limits[1]:g} in {self.model.dtype}. Do not train with it: "
                "leave compute out, or install the vllm of configs/vllm/requirements.txt (here: "
                f"{self._vllm.__version__})"
            )
        return {"handover/mean": mean, "handover/max": most}

    @torch.inference_mode()
    def sample(self, requests: list[GenerationRequest]) -> None:
        """Sample a response for each of ``requests``: sets their ``ids`` and ``logprobs``.

        vLLM schedules the batches and keeps its own caches, so ``state`` stays None. Raises EngineError out
        of GPU memory.
        """
        for request, output in zip(requests, self._sampled(requests), strict=True):
            self.counts["encoded"] += len(request.pending) - (output.num_cached_tokens or 0)

    def close(self) -> None:
        """Shut vLLM down."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _sampled(self, requests: Sequence[GenerationRequest]) -> list[Any]:
        """Sample the requests: fills their ``ids`` and ``logprobs``; vLLM's outputs, in the same order."""
        with out_of_memory_explained(f"in sampling {len(requests)} responses", SAMPLING_REMEDY):
            outputs: list[Any] = self._llm.generate(
                [{"prompt_token_ids": request.pending} for request in requests],
                [self._parameters(request) for request in requests],
                use_tqdm=False,
            )
        for request, output in zip(requests, outputs, strict=True):
            (response,) = output.outputs
            request.ids = list(response.token_ids)
            steps = zip(response.logprobs, request.ids, strict=True)
            request.logprobs = [float(of_token[token].logprob) for of_token, token in steps]
        return outputs

    def _parameters(self, request: GenerationRequest) -> Any:
        sampling = request.sampling
        return self._vllm.SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            seed=request.seed,
            stop_token_ids=sorted(request.stops),
            ignore_eos=True,  # the model's files name other end tokens: only our stops end a response
            logprobs=0,  # only of the sampled token
            detokenize=False,
        )

    def _started(self, sampling: SamplingConfig) -> Any:
        """vLLM's engine, with random weights. Raises EngineError."""
        model = self.model
        tokens = max(sampling.tokens_per_batch or DIALOGS * self.max_context, self.max_context)
        of_token = math.prod(cache_shape(model.config, 1, 1)) * model.dtype.itemsize
        on_device = {"enable_sleep_mode": True} if self._shares_memory else {"block_size": CPU_BLOCK}
        set_num_threads = torch.set_num_threads  # vLLM for CPUs replaces it by a function that does nothing
        try:
            return self._vllm.LLM(
                model.name_or_path,
                load_format="dummy",
                dtype=str(model.dtype).removeprefix("torch."),
                hf_overrides={"head_dtype": "float32"},  # as r3l.local.model.precision has it
                logprobs_mode="processed_logprobs",  # at the temperature of sampling
                max_model_len=self.max_context,
                kv_cache_memory_bytes=tokens * of_token,
                enable_prefix_caching=True,
                enable_chunked_prefill=False,  # 0.32 on a CPU crashes if a seeded prompt is read in parts
                enforce_eager=True,
                skip_tokenizer_init=True,
                generation_config="vllm",
                trust_remote_code=False,
                **on_device,
            )
        except (ValueError, NotImplementedError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise EngineError(
                f"vLLM cannot start with the model {model.name_or_path}: {reason[:500]}. If it lacks "
                "memory, lower sampling.tokens_per_batch"
            ) from error
        finally:
            torch.set_num_threads = set_num_threads

    @torch.inference_mode()
    def _gap(self) -> torch.Tensor:
        """|log-prob of vLLM - log-prob of the model| of the tokens of PROBES short responses, shape (T,)."""
        # Responses that vLLM samples, as in training: of improbable tokens bfloat16's log-probs differ more
        # (in the mean by 0.03 to 0.04 nats of tokens from across the vocabulary, on a CPU).
        every = self.model.config.vocab_size // PROBES
        starts = [[k * every] for k in range(PROBES)]
        requests = [
            GenerationRequest(None, start, Sampling(1.0, PROBE_TOKENS), frozenset(), seed=k)
            for k, start in enumerate(starts)
        ]
        self._sampled(requests)
        ids_B_T = torch.tensor(
            [request.pending + request.ids for request in requests], device=self.model.device
        )
        of_model_B_T = token_logprobs(self.model.eval(), ids_B_T, torch.ones_like(ids_B_T))[:, 1:]
        of_vllm = torch.tensor([request.logprobs for request in requests], device=of_model_B_T.device)
        return (of_vllm - of_model_B_T).abs().flatten()


@contextmanager
def unseen(name: str) -> Iterator[None]:
    """Remove the module ``name``, if present, from ``sys.modules`` for the block."""
    # When vLLM starts it reads the ``__dict__`` of every object in every module. numba's library answers to
    # any name with a function, on which vLLM 0.32 fails with an AttributeError.
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module
