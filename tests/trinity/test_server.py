"""The Tinker protocol over HTTP, without the SDK: requests, answers and errors."""

import http.client
import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from r3l.config import resolve
from r3l.core.seeds import seed_of
from r3l.trinity.learner import Learner, SampleRequest
from r3l.trinity.server import Server

PROMPT = list(range(10, 40))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    learner = Learner(resolve("nano", "alfworld", "r3l", 0), tmp_path_factory.mktemp("learner"))
    with Server(learner, "start") as running:
        yield running


def call(server, verb, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/api/v1/{verb}", data, {"X-API-Key": server.key})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def result(server, verb, body):
    return call(server, "retrieve_future", {"request_id": call(server, verb, body)["request_id"]})


def tokens(ids):
    return {"chunks": [{"tokens": list(ids), "type": "encoded_text"}]}


def sampling(seed, session="s"):
    params = {"max_tokens": 8, "temperature": 0.7, "seed": seed}
    return {
        "prompt": tokens(PROMPT),
        "sampling_params": params,
        "sampling_session_id": session,
        "num_samples": 1,
    }


def datum(ids, weights):
    inputs = {"target_tokens": {"data": list(ids[1:])}, "weights": {"data": list(weights)}}
    return {"model_input": tokens(ids[:-1]), "loss_fn_inputs": inputs}


def test_batched_requests_get_the_answers_of_single_ones(server):
    seeds = [seed_of("a", k) for k in range(6)]
    sequences = {}

    def request(seed):
        sequences[seed] = result(server, "asample", sampling(seed))["sequences"][0]

    threads = [threading.Thread(target=request, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in seeds:
        ((ids, logprobs),) = server.learner.sample([SampleRequest(PROMPT, 8, 0.7, seed)])
        # Rounding differs between a row alone and a batch: 2e-5 nats with this model. The log-probs of
        # another token would differ by tenths.
        assert sequences[seed]["tokens"] == ids
        assert sequences[seed]["logprobs"] == pytest.approx(logprobs, abs=1e-4)
    assert len({tuple(one["tokens"]) for one in sequences.values()}) > 1  # seeds give different responses


def test_a_step_through_the_protocol(server):
    weights = [0.0] * 9 + [1.0] * 20
    data = {"data": [datum(PROMPT, weights)], "loss_fn": "cross_entropy"}
    forward = result(server, "forward", {"forward_input": data})["loss_fn_outputs"][0]["logprobs"]
    assert forward["shape"] == [29]
    assert not any(forward["data"][:9]) and all(x < 0 for x in forward["data"][9:])
    base = call(server, "create_sampling_session", {"base_model": "start"})["sampling_session_id"]
    ours = call(server, "create_sampling_session", {"model_path": "tinker://run/sampler_weights/1"})
    sessions = (base, *ours.values())
    bodies = {session: {**sampling(0, session), "prompt_logprobs": True} for session in sessions}
    before = {s: result(server, "asample", body)["prompt_logprobs"] for s, body in bodies.items()}
    assert before[base] == before[ours["sampling_session_id"]]
    assert before[base][10:] == pytest.approx(forward["data"][9:], abs=1e-5) and before[base][0] is None

    result(server, "forward_backward", {"forward_backward_input": data})
    metrics = result(server, "optim_step", {"adam_params": {"learning_rate": 1e-2}})["metrics"]
    assert metrics["grad_norm"] > 0
    saved = result(server, "save_weights_for_sampler", {"path": "x"})
    assert saved["path"] == "tinker://run/sampler_weights/x"
    after = {s: result(server, "asample", body)["prompt_logprobs"] for s, body in bodies.items()}
    assert after[base] == before[base]  # the base checkpoint
    assert sum(after[ours["sampling_session_id"]][10:]) > sum(before[base][10:])


def test_an_error_is_returned_and_the_next_call_works(server):
    broken = result(server, "asample", sampling(1) | {"prompt": {"chunks": [{"tokens": [10**9]}]}})
    assert "error" in broken and broken["category"] == "server"
    assert "KeyError: 'sampling_params'" in result(server, "asample", {})["error"]
    assert result(server, "asample", sampling(1))["sequences"][0]["tokens"]
    with pytest.raises(urllib.error.HTTPError, match="410"):
        call(server, "retrieve_future", {"request_id": "999"})
    assert np.isfinite(result(server, "asample", sampling(2))["sequences"][0]["logprobs"]).all()


def answered(server, verb="get_info", body=b"{}", **headers):
    """Status and content of a raw request with valid headers, of which ``headers`` replace some."""
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.putrequest("POST", f"/api/v1/{verb}", skip_host=True)
    right = {"Host": host, "X-API-Key": server.key, "Content-Length": str(len(body))}
    for name, value in (right | {name.replace("_", "-"): value for name, value in headers.items()}).items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    return response.status, content


def test_requests_that_are_not_the_trainers_are_rejected(server):
    """Rejected by key, host, length (before a byte of the body is read) or body."""
    for key in ("", "tml-local", server.key[:-1], "\xe9"):
        assert answered(server, X_API_Key=key)[0] == 401
    for host in ("evil.example", "127.0.0.1", "localhost:1"):
        assert answered(server, Host=host)[0] == 403
    assert answered(server, Content_Length="999999999999")[0] == 413
    for length in ("-1", "many", "1" * 5000, "1e3"):
        assert answered(server, Content_Length=length)[0] == 400
    assert answered(server, Transfer_Encoding="chunked")[0] == 400
    for body in (b"{", b"\xff\xfe", b"[" * 100_000, b"[1]"):
        assert answered(server, "asample", body)[0] == 400
    assert answered(server)[0] == 200
