"""A Tinker-protocol server on the loopback interface, in front of a Learner.

Trinity's tinker backend talks to it through the tinker SDK (0.20.0) as it would to the hosted service. What takes time
gets a request id at once, and the client asks for the answer with ``retrieve_future``. One thread computes, in the
order of arrival; sampling requests that wait together share a batch.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np

from r3l.trinity.learner import Datum, Learner, Sample

API = "/api/v1/"
GATHERING = 0.01  # seconds without a request after which those that wait are served; our choice
POLL = 30.0  # seconds that a question for an answer may wait; below the SDK's timeout of 45 s
NAME = "run"  # of the one model that is trained here
Json = dict[str, Any]


@dataclass(frozen=True)
class _Call:
    verb: str
    body: Json
    answer: Future[Json] = field(default_factory=Future)

    @property
    def samples(self) -> bool:
        """Whether it asks for a response, and not for log-probs of the prompt."""
        return self.verb == "asample" and not self.body.get("prompt_logprobs")


class Server:
    """Serves ``learner`` at ``url`` while the context lasts. ``base_model``: the name of the start model."""

    def __init__(self, learner: Learner, base_model: str) -> None:
        self.learner, self.base_model = learner, base_model
        self._numbers = itertools.count()
        self._calls: dict[str, _Call] = {}  # by request id, until the answer has been asked for
        self._waiting: queue.Queue[_Call | None] = queue.Queue()
        self._of_start: dict[str, bool] = {}  # sampling session -> whether it is of the start model
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        targets = (self._http.serve_forever, self._compute)
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def answer(self, verb: str, body: Json) -> tuple[int, Json]:
        """HTTP status and content for a call of ``verb``."""
        if verb == "retrieve_future":
            return self._retrieve(body["request_id"])
        if verb == "asample" or verb in self._slow:
            number, call = str(next(self._numbers)), _Call(verb, body)
            self._calls[number] = call
            self._waiting.put(call)
            return 200, {"request_id": number, "model_id": NAME}
        if verb in self._quick:
            return 200, self._quick[verb](body)
        if verb.startswith("samplers/"):
            return 200, {"sampler_id": verb.partition("/")[2], "base_model": self.base_model, "model_path": None}
        if verb.startswith("training_runs/"):  # old sampler weights, which Trinity asks to delete: there are none
            return 200, {}
        return 404, {"detail": f"this server does not know {verb}"}

    def _retrieve(self, number: str) -> tuple[int, Json]:
        if number not in self._calls:
            return 410, {"detail": f"request {number} is unknown or has been answered"}
        try:
            content = self._calls[number].answer.result(POLL)
        except TimeoutError:
            return 408, {"queue_state": "active"}
        del self._calls[number]
        return 200, content

    @property
    def _quick(self) -> dict[str, Callable[[Json], Json]]:
        model = {"model_name": self.base_model, "arch": "local", "tokenizer_id": None}
        weights = {"base_model": self.base_model, "is_lora": True, "lora_rank": 1}  # the SDK asserts that it is
        return {
            "client/config": lambda _: {"parallel_fwdbwd_chunks": False},
            "create_session": lambda _: {"session_id": "session"},
            "session_heartbeat": lambda _: {},
            "telemetry": lambda _: {"status": "accepted"},
            "get_server_capabilities": lambda _: {"supported_models": [{"model_name": self.base_model}]},
            "get_info": lambda _: {"model_id": NAME, "model_name": self.base_model, "model_data": model},
            "weights_info": lambda _: weights,
            "create_sampling_session": self._session,
        }

    @property
    def _slow(self) -> dict[str, Callable[[Json], Json]]:
        return {
            "create_model": lambda _: {"model_id": NAME},
            "load_weights": self._load,
            "forward": lambda body: self._forward(body["forward_input"]["data"], backward=False),
            "forward_backward": lambda body: self._forward(body["forward_backward_input"]["data"], backward=True),
            "optim_step": self._step,
            "save_weights": lambda _: {"path": f"tinker://{NAME}/weights/{self.learner.save().name}"},
            "save_weights_for_sampler": self._sync,
        }

    def _session(self, body: Json) -> Json:
        session = f"sampling-{next(self._numbers)}"
        self._of_start[session] = body.get("model_path") is None
        return {"sampling_session_id": session}

    def _compute(self) -> None:
        while (first := self._waiting.get()) is not None:
            calls = [first]
            while (call := self._next()) is not None:
                calls.append(call)
            for together, group in itertools.groupby(calls, key=lambda c: c.samples):
                for part in [list(group)] if together else [[call] for call in group]:
                    self._serve(part)

    def _next(self) -> _Call | None:
        try:
            call = self._waiting.get(timeout=GATHERING)
        except queue.Empty:
            return None
        if call is None:  # the end: seen again by the loop above
            self._waiting.put(None)
        return call

    def _serve(self, calls: Sequence[_Call]) -> None:
        """Answer calls that go together. An error is the answer where there is one; the client raises it."""
        try:
            contents = self._contents(calls)
        except Exception:  # noqa: BLE001 - travels to the client, whose log shows it
            contents = [{"error": traceback.format_exc(), "category": "server"} for _ in calls]
        for call, content in zip(calls, contents, strict=True):
            call.answer.set_result(content)

    def _contents(self, calls: Sequence[_Call]) -> list[Json]:
        if calls[0].samples:
            return self._sample([call.body for call in calls])
        verb, body = calls[0].verb, calls[0].body
        return [self._logprobs(body) if verb == "asample" else self._slow[verb](body)]

    def _sample(self, bodies: Sequence[Json]) -> list[Json]:
        samples = []
        for body in bodies:
            p = body["sampling_params"]
            samples.append(Sample(_tokens(body["prompt"]), p["max_tokens"], p.get("temperature", 1.0), p["seed"]))
        responses = self.learner.sample(samples)
        return [
            {"type": "sample", "sequences": [{"tokens": ids, "logprobs": logprobs, "stop_reason": "stop"}]}
            for ids, logprobs in responses
        ]

    def _logprobs(self, body: Json) -> Json:
        ids = _tokens(body["prompt"])
        logprobs = self.learner.logprobs(ids, self._of_start[body["sampling_session_id"]])
        return {"type": "sample", "sequences": [], "prompt_logprobs": [None, *logprobs[1:]]}

    def _forward(self, data: Sequence[Json], backward: bool) -> Json:
        """The protocol's rows are a token shorter: targets stand beside the token before them."""
        rows = self.learner.forward([_datum(d) for d in data], backward)
        outputs = [
            {"logprobs": {"data": row[1:].tolist(), "dtype": "float32", "shape": [len(row) - 1]}} for row in rows
        ]
        return {"loss_fn_output_type": "logprobs", "loss_fn_outputs": outputs, "metrics": {}}

    def _step(self, body: Json) -> Json:
        """Only the learning rate is taken from the request: the rest of AdamW is the run's (Trinity sends no eps)."""
        return {"metrics": {"grad_norm": self.learner.step(body["adam_params"]["learning_rate"])}}

    def _sync(self, body: Json) -> Json:
        self.learner.sync()
        return {"path": f"tinker://{NAME}/sampler_weights/{body['path']}"}

    def _load(self, body: Json) -> Json:
        """Nothing is loaded: the learner has begun from its newest checkpoint, which must be the one asked for."""
        have = f"step-{self.learner.steps_done:06d}"
        if body["path"].rpartition("/")[2] != have:
            raise ValueError(f"{body['path']} is asked for, but the run's newest checkpoint is {have}")
        return {"path": body["path"]}


def _tokens(prompt: Json) -> list[int]:
    return [token for chunk in prompt["chunks"] for token in chunk["tokens"]]


def _datum(d: Json) -> Datum:
    inputs = d["loss_fn_inputs"]
    ids = [*_tokens(d["model_input"]), inputs["target_tokens"]["data"][-1]]
    return Datum(np.asarray(ids, dtype=np.int64), np.asarray([0.0, *inputs["weights"]["data"]], dtype=np.float32))


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, content = server.answer(self.path.partition("?")[0].removeprefix(API), body)
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_DELETE = _reply

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: what matters is in Trinity's logs."""

    return Handler
