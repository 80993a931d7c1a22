"""A Tinker-protocol server on the loopback interface, in front of a Learner.

Trinity's tinker backend talks to it through the tinker SDK (0.20.0) as it would to the hosted service. What takes time
gets a request id at once, and the client asks for the answer with ``retrieve_future``. One thread computes, in the
order of arrival; sampling requests that wait together share a batch. Only who knows the run's key is answered: any
program of this machine, and any page in its browser, can reach the address.
"""

from __future__ import annotations

import hmac
import itertools
import json
import queue
import secrets
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from r3l.trinity import protocol
from r3l.trinity.learner import Datum, Learner, Sample

API = "/api/v1/"
GATHERING = 0.01  # seconds without a request after which those that wait are served; our choice
POLL = 30.0  # seconds that a question for an answer may wait; below the SDK's timeout of 45 s
LONGEST = 1 << 28  # bytes of a request; our choice, a hundred times a step of the nano tier
NAME = "run"  # of the one model that is trained here
Json = dict[str, Any]


@dataclass(frozen=True)
class _Call:
    verb: str
    request: protocol.Request
    answer: Future[Json] = field(default_factory=Future)

    @property
    def sample(self) -> Sample | None:
        """The response that it asks for, if it does, and not for log-probs of a prompt or a step."""
        return self.request.sample if isinstance(self.request, protocol.Asked) else None


class Server:
    """Serves ``learner`` at ``url`` while the context lasts, to clients with its ``key``.

    ``base_model``: the name of the start model.
    """

    def __init__(self, learner: Learner, base_model: str) -> None:
        self.learner, self.base_model = learner, base_model
        self.key = f"tml-{secrets.token_urlsafe(32)}"  # the SDK asks for that beginning
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

    def answer(self, verb: str, body: bytes) -> tuple[int, Json]:
        """HTTP status and content for a call of ``verb``."""
        try:
            request = protocol.read(verb, body)
        except ValueError as error:
            return 400, {"detail": str(error)}
        if isinstance(request, protocol.Future):
            return self._retrieve(request.request_id)
        if verb in self._slow:
            number, call = str(next(self._numbers)), _Call(verb, request)
            self._calls[number] = call
            self._waiting.put(call)
            return 200, {"request_id": number, "model_id": NAME}
        if isinstance(request, protocol.Session):
            return 200, self._session(request)
        if verb in self._quick:
            return 200, self._quick[verb]
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
    def _quick(self) -> Mapping[str, Json]:
        model = {"model_name": self.base_model, "arch": "local", "tokenizer_id": None}
        return {
            "client/config": {"parallel_fwdbwd_chunks": False},
            "create_session": {"session_id": "session"},
            "session_heartbeat": {},
            "telemetry": {"status": "accepted"},
            "get_server_capabilities": {"supported_models": [{"model_name": self.base_model}]},
            "get_info": {"model_id": NAME, "model_name": self.base_model, "model_data": model},
            # The SDK asserts that weights are a LoRA's.
            "weights_info": {"base_model": self.base_model, "is_lora": True, "lora_rank": 1},
        }

    @property
    def _slow(self) -> Mapping[str, Callable[[Any], Json]]:
        """By verb; each takes the request that ``protocol.REQUESTS`` has for it."""
        return {
            "asample": self._logprobs,
            "create_model": lambda _: {"model_id": NAME},
            "load_weights": self._load,
            "forward": lambda request: self._forward(request.forward_input.datums, backward=False),
            "forward_backward": lambda request: self._forward(request.forward_backward_input.datums, backward=True),
            "optim_step": self._step,
            "save_weights": lambda _: {"path": f"tinker://{NAME}/weights/{self.learner.save().name}"},
            "save_weights_for_sampler": self._sync,
        }

    def _session(self, request: protocol.Session) -> Json:
        session = f"sampling-{next(self._numbers)}"
        self._of_start[session] = request.model_path is None
        return {"sampling_session_id": session}

    def _compute(self) -> None:
        while (first := self._waiting.get()) is not None:
            calls = [first]
            while (call := self._next()) is not None:
                calls.append(call)
            for together, group in itertools.groupby(calls, key=lambda c: c.sample is not None):
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
        if samples := [call.sample for call in calls if call.sample]:
            return self._sample(samples)
        return [self._slow[call.verb](call.request) for call in calls]

    def _sample(self, samples: Sequence[Sample]) -> list[Json]:
        return [
            {"type": "sample", "sequences": [{"tokens": ids, "logprobs": logprobs, "stop_reason": "stop"}]}
            for ids, logprobs in self.learner.sample(samples)
        ]

    def _logprobs(self, request: protocol.Asked) -> Json:
        logprobs = self.learner.logprobs(request.prompt.ids, self._of_start[request.sampling_session_id])
        return {"type": "sample", "sequences": [], "prompt_logprobs": [None, *logprobs[1:]]}

    def _forward(self, data: Sequence[Datum], backward: bool) -> Json:
        """The protocol's rows are a token shorter: targets stand beside the token before them."""
        rows = self.learner.forward(data, backward)
        outputs = [
            {"logprobs": {"data": row[1:].tolist(), "dtype": "float32", "shape": [len(row) - 1]}} for row in rows
        ]
        return {"loss_fn_output_type": "logprobs", "loss_fn_outputs": outputs, "metrics": {}}

    def _step(self, request: protocol.OptimStep) -> Json:
        return {"metrics": {"grad_norm": self.learner.step(request.adam_params.learning_rate)}}

    def _sync(self, request: protocol.Named) -> Json:
        self.learner.sync()
        return {"path": f"tinker://{NAME}/sampler_weights/{request.path}"}

    def _load(self, request: protocol.Named) -> Json:
        """Nothing is loaded: the learner has begun from its newest checkpoint, which must be the one asked for."""
        have = f"step-{self.learner.steps_done:06d}"
        if request.path.rpartition("/")[2] != have:
            raise ValueError(f"{request.path} is asked for, but the run's newest checkpoint is {have}")
        return {"path": request.path}


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            refused = self._refusal()
            if refused:
                self.close_connection = True  # its body has not been read
            verb = self.path.partition("?")[0].removeprefix(API)
            status, content = refused or server.answer(verb, self.rfile.read(self._length()))
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_DELETE = _reply

        def _refusal(self) -> tuple[int, Json] | None:
            key = self.headers.get("X-API-Key", "").encode(errors="replace")
            if not hmac.compare_digest(key, server.key.encode()):
                return 401, {"detail": "X-API-Key is not the key of this run"}
            if f"http://{self.headers.get('Host')}" != server.url:
                return 403, {"detail": "Host is not the address of this server"}
            if self._length() < 0 or "Transfer-Encoding" in self.headers:
                return 400, {"detail": "Content-Length is no length"}
            if self._length() > LONGEST:
                return 413, {"detail": f"a request has at most {LONGEST} bytes"}
            return None

        def _length(self) -> int:
            """Of the body; -1 where what is said of it is no number."""
            length = self.headers.get("Content-Length", "0")
            return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else -1

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: what matters is in Trinity's logs."""

    return Handler
