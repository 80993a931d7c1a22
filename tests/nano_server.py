"""A stored model that answers by OpenAI's protocol, greedily, with plain transformers: a server without a
server."""

from __future__ import annotations

import threading

import torch
from chat_server import completion
from start_models import START_MODEL

from r3l.chat.renderer import ChatRenderer
from r3l.core.text import Message
from r3l.local.checkpoint import load_model


class NanoServer:
    """``answer`` is that of chat_server.serving."""

    def __init__(self, name=START_MODEL):
        self.model, tokenizer = load_model(name, torch.device("cpu"))
        self.renderer = ChatRenderer(tokenizer)
        self._lock = threading.Lock()

    def answer(self, request, before):
        if "prompt" in request:
            return self._tokens(request)
        prompt = self.renderer.opening([Message(m["role"], m["content"]) for m in request["messages"]])
        ids = self._sample(prompt, request, [self.renderer.end_id])
        ended = ids[-1] == self.renderer.end_id
        status, body = completion(self.renderer.text(ids), "stop" if ended else "length")
        return status, body | {"usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}}

    def _tokens(self, request):
        ids = self._sample(request["prompt"], request, request["stop_token_ids"])
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": len(ids)}
        return 200, {"choices": [{"token_ids": ids, "finish_reason": "stop"}], "usage": usage}

    def _sample(self, prompt, request, stops):
        assert request["temperature"] == 0
        with self._lock, torch.inference_mode():
            ids = torch.tensor([prompt])
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=request["max_tokens"],
                eos_token_id=stops,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()
