"""Server of the Tinker protocol on the loopback interface, in front of a Learner.

Trinity's tinker backend calls it through the tinker SDK (0.20.0) as it would the hosted service. A slow
request gets an id at once, and the client fetches the result with ``retrieve_future``. One thread
computes, in order of arrival; sampling requests that wait together share a batch. Every request needs the
run's key, since any program on this machine, and any page in its browser, can reach the address.
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

import numpy as np

from r3l.trinity.learner import Datum, Learner, SampleRequest

API = "/api/v1/"
GATHERING = 0.01  # seconds without a new request after which the waiting ones are served; our choice
POLL = 30.0  # seconds that ``retrieve_future`` may wait; below the SDK's timeout of 45 s
LONGEST = 1 << 28  # bytes of a request; our choice, a hundred times a step of the nano tier
NAME = "run"  # name of the only model of this server
Json = dict[str, Any]


@dataclass(frozen=True)
class _Call:
    """A slow request, and the future of its answer."""

    verb: str
    body: Json
    answer: Future[Json] = field(default_factory=Future)

    @property
    def samples(self) -> bool:
        """True if the request samples a response; others compute log-probs or train."""
        return self.verb == "asample" and not self.body.get("prompt_logprobs")


class Server:
    """HTTP server of the Tinker protocol at ``url`` (loopback, a free port), which ``learner`` answers.

    It answers within a `with` block, to clients that send ``key`` in X-API-Key. ``base_model``: name of the
    base checkpoint, as clients call it.
    """

    def __init__(self, learner: Learner, base_model: str) -> None:
        self.learner = learner
        self.base_model = base_model
        self.key = f"tml-{secrets.token_urlsafe(32)}"  # the SDK requires this prefix
        self._numbers = itertools.count()
        self._calls: dict[str, _Call] = {}  # request id -> call, until the client has fetched the answer
        self._waiting: queue.Queue[_Call | None] = queue.Queue()  # None: the server closes
        self._of_base: dict[str, bool] = {}  # sampling session -> whether it samples from the base checkpoint

        # Two kinds of threads: one per connection, which only wait, and one that computes.
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        targets = (self._http.serve_forever, self._compute)
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]

        # Requests for the computing thread.
        self._slow: Mapping[str, Callable[[Json], Json]] = {
            "asample": self._logprobs,
            "create_model": lambda _: {"model_id": NAME},
            "load_weights": self._load,
            "forward": lambda body: self._forward(body["forward_input"], backward=False),
            "forward_backward": lambda body: self._forward(body["forward_backward_input"], backward=True),
            # Only the learning rate is read; the run sets the rest of AdamW (Trinity sends no eps).
            "optim_step": lambda body: {
                "metrics": {"grad_norm": self.learner.step(float(body["adam_params"]["learning_rate"]))}
            },
            "save_weights": lambda _: {"path": f"tinker://{NAME}/weights/{self.learner.save().name}"},
            "save_weights_for_sampler": self._sync,  # the sampler is in this process
        }

        # Requests with a constant answer: this server has one model, and no sessions to keep alive.
        model = {"model_name": base_model, "arch": "local", "tokenizer_id": None}
        self._constant: Mapping[str, Json] = {
            "client/config": {"parallel_fwdbwd_chunks": False},
            "create_session": {"session_id": "session"},
            "session_heartbeat": {},
            "telemetry": {"status": "accepted"},
            "get_server_capabilities": {"supported_models": [{"model_name": base_model}]},
            "get_info": {"model_id": NAME, "model_name": base_model, "model_data": model},
            # The SDK asserts that all weights are LoRA weights.
            "weights_info": {"base_model": base_model, "is_lora": True, "lora_rank": 1},
        }

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

    def answer(self, verb: str, content: bytes) -> tuple[int, Json]:
        """(HTTP status, JSON content) of the answer to a request; called in the thread of its connection.

        ``verb``: its path without /api/v1/; ``content``: its body. A slow request is queued for the computing
        thread and answered with a number, under which ``retrieve_future`` waits for the result: status 408
        after 30 seconds (ask again), 410 for an unknown number. 400: no JSON object; 404: unknown ``verb``.
        """
        try:
            body = json.loads(content or b"{}")
            if not isinstance(body, dict):
                raise ValueError("the body is not an object")
        except (ValueError, RecursionError) as error:
            return 400, {"detail": str(error)}
        if verb == "retrieve_future":
            return self._retrieve(str(body.get("request_id")))

        # A slow request waits for the computing thread; the client fetches the answer by its number.
        if verb in self._slow:
            number = str(next(self._numbers))
            call = _Call(verb, body)
            self._calls[number] = call
            self._waiting.put(call)
            return 200, {"request_id": number, "model_id": NAME}

        # Everything else is answered at once.
        if verb == "create_sampling_session":
            session = f"sampling-{next(self._numbers)}"
            self._of_base[session] = body.get("model_path") is None
            return 200, {"sampling_session_id": session}
        if verb in self._constant:
            return 200, self._constant[verb]
        if verb.startswith("samplers/"):
            sampler = verb.partition("/")[2]
            return 200, {"sampler_id": sampler, "base_model": self.base_model, "model_path": None}
        if verb.startswith("training_runs/"):  # Trinity deletes old sampler weights, of which there are none
            return 200, {}
        return 404, {"detail": f"this server does not know {verb}"}

    def _retrieve(self, number: str) -> tuple[int, Json]:
        """Wait for the answer to a slow request; 408 if it takes longer, and then the client asks again."""
        if number not in self._calls:
            return 410, {"detail": f"request {number} is unknown or has been answered"}
        try:
            content = self._calls[number].answer.result(POLL)
        except TimeoutError:
            return 408, {"queue_state": "active"}
        del self._calls[number]
        return 200, content

    def _compute(self) -> None:
        """Serve the waiting calls until the server closes; the only thread that uses the learner."""
        while (first := self._waiting.get()) is not None:
            # Gather: Trinity's runners send their requests within milliseconds of each other, and a batch
            # is faster than its requests one by one. Stop at the first pause.
            calls = [first]
            while True:
                try:
                    call = self._waiting.get(timeout=GATHERING)
                except queue.Empty:
                    break
                if call is None:
                    self._waiting.put(None)  # ends the outer loop
                    break
                calls.append(call)

            # Batch: neighbouring sampling requests go together, everything else separately. The order of
            # arrival stays, so that no response is sampled with the weights of a later step.
            for samples, group in itertools.groupby(calls, key=lambda call: call.samples):
                if samples:
                    self._serve(list(group))
                else:
                    for call in group:
                        self._serve([call])

    def _serve(self, calls: Sequence[_Call]) -> None:
        """Answer the calls of a batch. An error becomes the answer, and the client raises it."""
        try:
            if calls[0].samples:
                requests = []
                for call in calls:
                    p = call.body["sampling_params"]
                    ids = _ids(call.body["prompt"])
                    request = SampleRequest(ids, p["max_tokens"], p.get("temperature", 1.0), p["seed"])
                    requests.append(request)
                responses = self.learner.sample(requests)
                contents = []
                for ids, logprobs in responses:
                    sequence = {"tokens": ids, "logprobs": logprobs, "stop_reason": "stop"}
                    contents.append({"type": "sample", "sequences": [sequence]})
            else:
                contents = [self._slow[call.verb](call.body) for call in calls]
        except Exception:  # noqa: BLE001 - sent to the client, whose log shows it
            contents = [{"error": traceback.format_exc(), "category": "server"} for _ in calls]
        for call, content in zip(calls, contents, strict=True):
            call.answer.set_result(content)

    def _logprobs(self, body: Json) -> Json:
        """Log-probs of a prompt, None for its first token, by the model of the sampling session."""
        logprobs = self.learner.logprobs(_ids(body["prompt"]), self._of_base[body["sampling_session_id"]])
        return {"type": "sample", "sequences": [], "prompt_logprobs": [None, *logprobs[1:]]}

    def _forward(self, given: Json, backward: bool) -> Json:
        """Log-probs of the target tokens; ``backward`` also accumulates the gradient of their weighted sum.

        The protocol aligns each target with the token before it, so its rows are one token shorter than ours.
        """
        data = []
        for row in given["data"]:
            targets = row["loss_fn_inputs"]["target_tokens"]["data"]
            weights = row["loss_fn_inputs"]["weights"]["data"]
            ids = [*_ids(row["model_input"]), targets[-1]]
            data.append(Datum(np.asarray(ids, dtype=np.int64), np.asarray([0.0, *weights], dtype=np.float32)))
        rows = self.learner.forward(data, backward)
        outputs = []
        for row in rows:
            logprobs = {"data": row[1:].tolist(), "dtype": "float32", "shape": [len(row) - 1]}
            outputs.append({"logprobs": logprobs})
        return {"loss_fn_output_type": "logprobs", "loss_fn_outputs": outputs, "metrics": {}}

    def _sync(self, body: Json) -> Json:
        self.learner.sync()
        return {"path": f"tinker://{NAME}/sampler_weights/{body['path']}"}

    def _load(self, body: Json) -> Json:
        """Check that the requested checkpoint is the newest, which the learner loaded when it started."""
        newest = f"step-{self.learner.steps_done:06d}"
        if body["path"].rpartition("/")[2] != newest:
            raise ValueError(f"{body['path']} was requested, but the run's newest checkpoint is {newest}")
        return {"path": body["path"]}


def _ids(tokens: Json) -> list[int]:
    """Token ids of a ModelInput, which the protocol cuts into chunks."""
    return [token for chunk in tokens["chunks"] for token in chunk["tokens"]]


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    """The request handler class of ``server``; http.server creates an instance per connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            refused = self._refusal()
            if refused:
                self.close_connection = True  # else the rest of the body would be read as the next request
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
            """Status and error of a rejected request, else None. Reads only headers, never the body."""
            key = self.headers.get("X-API-Key", "").encode(errors="replace")
            if not hmac.compare_digest(key, server.key.encode()):
                return 401, {"detail": "X-API-Key is not the key of this run"}
            # A web page whose domain was rebound to this address would send its own name as Host.
            if f"http://{self.headers.get('Host')}" != server.url:
                return 403, {"detail": "Host is not the address of this server"}
            if self._length() < 0 or "Transfer-Encoding" in self.headers:
                return 400, {"detail": "Content-Length is not a length"}
            if self._length() > LONGEST:
                return 413, {"detail": f"a request has at most {LONGEST} bytes"}
            return None

        def _length(self) -> int:
            """Length of the body in bytes; -1 if the header is not a number."""
            length = self.headers.get("Content-Length", "0")
            return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else -1

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: Trinity logs its requests."""

    return Handler
