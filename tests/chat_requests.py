"""A request to a server under test, as an evaluation sends it."""

import asyncio

from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.endpoint.client import Endpoint
from r3l.endpoint.options import EndpointOptions

DIALOG = [Message("system", "Be brief."), Message("user", "2+2?")]
ADDRESS = (0, "benchmark", "q", 0)
SAMPLING = Sampling(0.5, 9)


def ask(url, counts=None, times=1, **options):
    """The last of ``times`` answers; what was counted goes into ``counts``."""

    async def run():
        async with Endpoint(EndpointOptions(url, "tiny", **options)) as endpoint:
            try:
                return [await endpoint.chat(DIALOG, SAMPLING, ADDRESS) for _ in range(times)][-1]
            finally:
                (counts if counts is not None else {}).update(endpoint.counts)

    return asyncio.run(run())


def said(answer):
    return answer.text, answer.finish_reason, answer.counted


def choice(content, reason="stop", **more):
    return {"message": {"content": content}, "finish_reason": reason} | more
