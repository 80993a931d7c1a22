"""The game of games.py behind a server, as OpenEnv's own template lays one out."""

import os

from games import Stamps
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Answer(Action):
    response: str


class Question(Observation):
    message: str


class StampsServer(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.game = Stamps()

    def reset(self, seed=None, episode_id=None, **_):
        return Question(message=self.game.reset(seed=seed)[0])

    def step(self, action, **_):
        message, reward, done, *_ = self.game.step(action.response)
        return Question(message=message, reward=reward, done=done)

    @property
    def state(self):
        return State()


sessions = int(os.environ.get("SESSIONS", "16"))
app = create_app(StampsServer, Answer, Question, env_name="stamps", max_concurrent_envs=sessions)
