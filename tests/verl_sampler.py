"""The local engine's sampler in place of Trinity's vLLM actor, so that a run can equal a local one."""

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import yaml
from tinker.types import SampledSequence, SampleResponse
from trinity.common.models.model import BaseInferenceModel
from verl_cpu import WeightFile

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, locate, validate
from r3l.core.policy import Sampling
from r3l.local.model import lora
from r3l.local.sampling.decoding import GenerationRequest, ReferenceDecoder
from r3l.local.session import load_network
from r3l.local.training.logprobs import token_logprobs

GATHER = 0.03  # seconds in which requests join a batch


class LocalSampler(BaseInferenceModel):
    """What Trinity calls of its vLLM actor: ``sample``, ``logprobs`` and the synchronisation of weights."""

    def __init__(self, config):
        super().__init__(config)
        torch.set_num_threads(1)
        job = Path(config.checkpoint_job_dir)
        written = yaml.safe_load((job.parents[2] / "config.yaml").read_text())
        run = validate(Run, written["algorithm"]["policy_loss_fn_args"]["run"], "run")
        self.model, tokenizer = load_network(run, locate(run.model), "transformers")
        self.model = self.model.float().eval()
        self.renderer = ChatRenderer(tokenizer)
        self.version = 0
        self.waiting = []
        # As vllm_model.py: the path of the adapter in use, and the one that is renamed with each version.
        self.adapter = config.lora_modules[0]["lora_path"] if config.enable_lora else None
        self.loaded = None
        self.renamed = config.lora_kwargs.pop("default_lora_path", None)

    async def get_available_address(self, random_port=False):
        return "127.0.0.1", 12345

    async def prepare(self):
        pass

    async def shutdown(self):
        pass

    async def generate(self, *args, **options):
        raise NotImplementedError

    async def chat(self, *args, **options):
        raise NotImplementedError

    def get_api_server_url(self):
        return None

    def get_model_version(self):
        return self.version

    def get_lora_request(self, lora_path=None):
        return self.adapter

    async def set_state_dict_meta(self, meta):
        pass

    async def init_process_group(self, master_address, master_port, **options):
        self.weights = WeightFile(master_port)

    async def teardown_process_group(self):
        pass

    async def sync_model_weights(self, model_version, method, timeout=1200):
        if self.adapter:
            self.renamed = self.renamed.replace(f"global_step_{self.version}", f"global_step_{model_version}")
            self.adapter = self.renamed
        else:
            weights = await asyncio.to_thread(self.weights.receive)
            # The base checkpoint is here already, in 32 bits where verl sends 16.
            if model_version > 0:
                left = self.model.load_state_dict({n: w.float() for n, w in weights.items()}, strict=False)
                assert not left.unexpected_keys, left
        self.version = model_version
        return model_version

    async def sample(self, prompt, num_samples, params, lora_request=None, **options):
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((prompt.to_ints(), params, lora_request, future))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(GATHER, self._sample_waiting)
        ids, logprobs = await future
        arrays = {"tokens_np": np.asarray(ids, np.int32), "logprobs_np": np.asarray(logprobs, np.float32)}
        return SampleResponse(sequences=[SampledSequence(stop_reason="stop", **arrays)])

    @torch.inference_mode()
    def _sample_waiting(self):
        batch, self.waiting = self.waiting, []
        (adapter,) = {adapter for _, _, adapter, _ in batch}
        requests = [
            GenerationRequest(None, ids, Sampling(p.temperature, p.max_tokens), self.renderer.end_ids, p.seed)
            for ids, p, _, _ in batch
        ]
        with self._with(adapter):
            ReferenceDecoder(self.model, requests, self.renderer.end_id, defaultdict(float)).run()
        for (_, _, _, future), request in zip(batch, requests, strict=True):
            future.set_result((list(request.ids), list(request.logprobs)))

    async def logprobs(self, token_ids, lora_request=None, temperature=None):
        ids_1_T = torch.tensor([token_ids])
        with torch.no_grad(), self._with(lora_request):
            return token_logprobs(self.model, ids_1_T, torch.ones_like(ids_1_T), temperature)[0, 1:]

    def _with(self, adapter):
        """Inside, ``adapter`` is in use; without one the base model, as in vLLM."""
        if not self.adapter:
            return nullcontext()
        if adapter is None:
            return lora.without_adapter(self.model)
        if adapter != self.loaded:
            lora.load(Path(adapter), self.model)
            self.loaded = adapter
        return nullcontext()
