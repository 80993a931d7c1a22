"""Dialogs with a server of this process: what a policy sends and reads."""

import asyncio

from chat_server import serving

from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.endpoint.client import Endpoint
from r3l.endpoint.options import EndpointOptions
from r3l.endpoint.policy import MessagePolicy

SAMPLING = Sampling(0.0, 9)


def at(answer, talk, policy=MessagePolicy, **options):
    """(what ``talk`` of a conversation returns, requests, policy)."""

    async def run(url):
        async with Endpoint(EndpointOptions(url, "tiny")) as endpoint:
            opened = policy(endpoint, **options)
            return await talk(opened.open()), opened

    with serving(answer) as (url, seen):
        result, opened = asyncio.run(run(url))
        return result, seen, opened


def roles(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


async def asks_twice(dialog):
    """A question, its answer (returned), and a second question."""
    dialog.add(Message("user", "2+2?"))
    first = await dialog.respond(SAMPLING, (0,))
    dialog.add(Message("user", "sure?"))
    await dialog.respond(SAMPLING, (1,))
    return first
