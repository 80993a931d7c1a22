"""What the client sends to a real HTTP server: address, fields, and headers."""

import asyncio

import pytest
from chat_requests import ADDRESS, ask, said
from chat_server import completion, serving
from openai._models import FinalRequestOptions

from r3l.core.policy import FinishReason, Usage
from r3l.core.seeds import seed_of
from r3l.endpoint.client import Endpoint
from r3l.endpoint.options import EndpointOptions


@pytest.mark.parametrize(
    "suffix", ["/v1?api-version=1&x=", "?api-version=1&x=", "/v1/?api-version=1&x=#part"]
)
def test_the_query_of_an_address_goes_with_every_request(suffix):
    """As Azure needs it; messages and files do not show it, since it may hold a key."""
    with serving(lambda request, before: completion("4")) as (url, seen):
        assert ask(url + suffix).text == "4"
        assert EndpointOptions(url + suffix, "tiny").shown == f"{url}/v1"
    assert seen[0]["path"] == "/v1/chat/completions?api-version=1&x="


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_request_and_its_answer(monkeypatch, suffix):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda request, before: completion("4")) as (url, seen):
        assert said(ask(url + suffix)) == ("4", FinishReason.END, Usage(0, 5))
    assert seen == [
        {
            "path": "/v1/chat/completions",
            "authorization": "Bearer secret",
            "model": "tiny",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
            "temperature": 0.5,
            "max_tokens": 9,
            "seed": seed_of(*ADDRESS) % 2**31,
        }
    ]


def test_further_fields_and_those_left_out():
    with serving(lambda request, before: completion("4")) as (url, seen):
        ask(url, fields={"top_p": 0.9, "seed": None, "max_tokens": None, "max_completion_tokens": 9})
    assert {"top_p": 0.9, "max_completion_tokens": 9}.items() <= seen[0].items()
    assert not {"seed", "max_tokens"} & set(seen[0])


@pytest.mark.parametrize(
    ("url", "is_openai"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com", True),
        ("https://api.openai.com.evil.org", False),
        ("http://notopenai.com", False),
        ("http://localhost:8000", False),
    ],
)
def test_the_organisation_is_named_to_openai_alone(monkeypatch, url, is_openai):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")

    async def headers():
        async with Endpoint(EndpointOptions(url, "tiny")) as endpoint:
            request = FinalRequestOptions.construct(method="post", url="/chat/completions")
            return endpoint._client._build_request(request).headers

    sent = asyncio.run(headers())
    assert ("OpenAI-Organization" in sent) == ("OpenAI-Project" in sent) == is_openai
