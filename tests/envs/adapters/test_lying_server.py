"""An OpenEnv server that violates its protocol: one paragraph, in bounded memory."""

import asyncio
import json
import threading

import pytest
from r3l.envs.adapters import openenv
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve

from r3l.config import environment_of
from r3l.core.errors import R3LError
from r3l.files import requirements
from r3l.processes.pool import EnvironmentPool

FIELDS = {"observation": "message", "action": "response"}
PROPERTIES = {"properties": {"message": {}, "response": {}}}
SCHEMA = {"observation": PROPERTIES, "action": PROPERTIES}


def answer(message="hello", reward=0.0, done=False, **changes):
    return {
        "type": "observation",
        "data": {"observation": {"message": message}, "reward": reward, "done": done},
    } | changes


def as_frames(replies):
    frames = replies if isinstance(replies, list) else [replies]
    return [frame if isinstance(frame, str | bytes) else json.dumps(frame) for frame in frames]


@pytest.fixture
def server(write, monkeypatch):
    """Start a server with this answer to `step`; returns the name of its environment."""
    monkeypatch.setattr(requirements, "missing", lambda extra: [])
    servers = []

    def start(step):
        described = {"/schema": SCHEMA, "/metadata": {"name": "n"}}

        def respond(_, request):
            if request.path == "/ws":
                return None
            return Response(200, "OK", Headers(), json.dumps(described[request.path]).encode())

        def play(socket):
            for message in socket:
                said = answer() if json.loads(message)["type"] == "reset" else step
                for frame in as_frames(said):
                    socket.send(frame)

        servers.append(serve(play, "127.0.0.1", 0, process_request=respond, max_size=None))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return write(
            "far", "openenv", url=f"http://127.0.0.1:{servers[-1].socket.getsockname()[1]}", **FIELDS
        )

    yield start
    for one in servers:
        one.shutdown()


def play(name, steps=20):
    """The observations of an episode that is long enough for an unrequested message to arrive."""
    package = environment_of(name)
    pool = EnvironmentPool(package, workers=0)

    async def episode():
        handle = pool.open()
        return [await handle.reset(package.tasks("train")[0])] + [
            await handle.step("x") for _ in range(steps)
        ]

    try:
        return asyncio.run(episode())
    finally:
        pool.close()


@pytest.mark.filterwarnings("ignore:.*an episode is played again")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("not JSON", "answers step with 'not JSON'"),
        ("[" * 100_000, "answers step with '[["),
        ({"type": 3, "data": None}, "answers step with"),
        (answer(message=None), "with 'message' in its observation"),
        (answer(done="false"), "an end that is"),
        (answer(reward=10**400), "a reward that is"),
        ([answer(), answer(message="late")], "before the request step, the server sent"),
        (answer(message="x" * 2_000_000), "give a str of at most 1,000,000 characters"),
        ("x" * (openenv.MAX_BYTES + 1), "3 times in a row"),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 60 else "-",
)
def test_a_wrong_answer_is_named(server, said, words):
    with pytest.raises(R3LError) as raised:
        play(server(said))
    assert words in str(raised.value) and len(str(raised.value)) < 500 and "\n" not in str(raised.value)


def test_an_error_of_the_game_ends_the_episode_without_its_escape_codes(server):
    error = {"type": "error", "data": {"code": 3, "message": "\x1b[2Jout of ink\n" * 99}}
    _, now = play(server(error), steps=1)
    assert now.done and "out of ink" in now.failed and "\x1b" not in now.failed and len(now.failed) < 200
