"""Games of the tests: one registered with gymnasium, and one whose answers are objects."""

import re
from types import SimpleNamespace

import gymnasium
from r3l.envs.adapters.gymnasium import TextGames


class Stamps(gymnasium.Env):
    """A sum whose answer a response gives in a box, twice."""

    observation_space = gymnasium.spaces.Text(200)
    action_space = gymnasium.spaces.Text(200)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        have, buys, eats = (int(self.np_random.integers(1, limit)) for limit in (25, 9, 5))
        self.answer, self.tries = have + buys - eats, 0
        return f"Dan has {have} stamps. Dan buys {buys}. Dan eats {eats}. How many stamps are left?", {}

    def step(self, action):
        if "crash" in action:
            raise RuntimeError("out of ink")
        self.tries += 1
        right = re.findall(r"\\boxed\{(\d+)\}", action)[-1:] == [str(self.answer)]
        return "not correct. Try again.", float(right), right or self.tries == 2, False, {}


gymnasium.register("Stamps-v0", entry_point=Stamps, disable_env_checker=True)


class Countdown:
    """Say the number before, down to zero; no part of gymnasium."""

    def reset(self, seed=None):
        self.left = 1 + seed % 3
        return SimpleNamespace(observation=f"{self.left}", reward=None, done=False)

    def step(self, action):
        self.left -= 1
        lost = action != str(self.left)
        return SimpleNamespace(
            observation="no" if lost else action, reward=-1.0 if lost else None, done=lost or self.left == 0
        )


class Down(TextGames):
    """Solved at 0: nothing was lost."""

    def make(self):
        return Countdown()


class Echo(gymnasium.Env):
    """Says which action it was given, in a space that a subclass names."""

    observation_space = gymnasium.spaces.Text(200)

    def __init__(self, space):
        kind, arguments = space
        self.action_space = getattr(gymnasium.spaces, kind)(**arguments)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "go", {}

    def step(self, action):
        assert self.action_space.contains(action)
        return str(action), 0.0, False, False, {}


class Unclosable(Echo):
    def close(self):
        raise RuntimeError("the window is gone")


gymnasium.register("Echo-v0", entry_point=Echo, disable_env_checker=True)
gymnasium.register("Unclosable-v0", entry_point=Unclosable, disable_env_checker=True)


class Grid:
    """Observations of numbers, and no render; no part of gymnasium."""

    def reset(self, seed=None):
        return SimpleNamespace(observation=[1, 2])


class Silent(TextGames):
    """A game that has no text to show."""

    def make(self):
        return Grid()
