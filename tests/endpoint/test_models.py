"""The name of the only model of a server, and servers that do not list theirs."""

import asyncio
import threading
from http.server import SimpleHTTPRequestHandler

import pytest
from chat_requests import ask
from chat_server import Server, completion, serving

from r3l.endpoint.client import Endpoint, about_model, only_model
from r3l.endpoint.connection import LATE_ATTEMPTS
from r3l.endpoint.options import EndpointOptions, ServerError


def test_the_only_model_needs_no_name():
    def name(url):
        return asyncio.run(only_model(EndpointOptions(url, "")))

    with serving(lambda request, before: completion("4")) as (url, _):
        assert name(url) == "tiny"
    wanted = pytest.raises(ServerError, match="serves a, b; choose with --model NAME")
    with serving(lambda request, before: completion("4"), models=("a", "b")) as (url, _), wanted:
        name(url)


def test_long_names_that_differ_at_their_ends_are_two_models(caplog):
    """The path of a checkpoint, and the version after it."""
    path = "/data/" + 120 * "x"
    named = [(f"{path}/step-1", "fp_1"), (f"{path}/step-2", "fp_1"), (f"{path}/step-2", "fp_2")]

    def answer(request, before):
        status, body = completion("4")
        return status, body | dict(zip(("model", "system_fingerprint"), named[before], strict=True))

    counts = {}
    with serving(answer) as (url, _):
        ask(url, counts, times=3)
    names = [name for name in counts if name.startswith("answered_by/")]
    assert len(names) == 3 and {len(name.partition("/")[2]) for name in names} == {100}
    assert "will be of several models or versions" in caplog.text


def test_a_server_that_cannot_list_its_models_is_told_which_one(caplog):
    class Unlisted(SimpleHTTPRequestHandler):
        def do_GET(self):
            count.append(1)
            self.send_error(500)

        def log_message(self, *arguments):
            pass

    count = []
    with Server(("127.0.0.1", 0), Unlisted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(ServerError, match="answered 500.*or name the model: --model NAME"):
            asyncio.run(only_model(EndpointOptions(url, "")))
        assert len(count) == LATE_ATTEMPTS
        caplog.clear()
        assert asyncio.run(about_model(EndpointOptions(url, "tiny"))) == {} and not caplog.text
        server.shutdown()


@pytest.mark.parametrize("reply", ["<html>A page for people</html>", '{"data": [{"id": 4}]}'])
def test_an_optional_question_that_gets_no_usable_answer_is_not_counted_as_a_failure(reply, caplog):
    async def asked(url):
        async with Endpoint(EndpointOptions(url, "tiny")) as endpoint:
            assert await endpoint.about() == {}
            return endpoint.counts

    with serving(lambda request, before: completion("4"), models=reply) as (url, _):
        assert asyncio.run(asked(url)) == {"requests": 1}
    assert not caplog.text
