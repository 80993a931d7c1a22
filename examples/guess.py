"""Guess a secret number: an environment in one file. guess.yaml, next to it, configures it."""

from r3l.envs.base.one_file import OneFileEngine, OneFileEnvironment

from r3l.core.environment import Observation

LARGEST = 31
GUESSES = tuple(f"guess {n}" for n in range(1, LARGEST + 1))


class Game(OneFileEngine):
    """The engine: a number to guess."""

    def reset(self, task):
        self.number = task.payload["number"]
        return Observation(f"A number from 1 to {LARGEST}.", GUESSES)

    def step(self, action):
        guess = int(action.removeprefix("guess "))
        if guess == self.number:
            return Observation("Right.", reward=1.0, done=True, success=True)
        return Observation("Higher." if guess < self.number else "Lower.", GUESSES)


class Guess(OneFileEnvironment):
    """The text side and the tasks, with a scripted player that halves the range."""

    name = "guess"
    domain = "guessing a number"
    rules = "Find the number. After each guess you hear whether it is higher or lower. An action is: guess N"

    def problem(self, rng):
        return {"number": int(rng.integers(1, LARGEST + 1))}

    def make_engine(self, options):
        return Game()

    def good_actions(self, first, answers):
        low = 1
        high = LARGEST
        for action, answer in answers:
            guess = int(action.removeprefix("guess "))
            low, high = (max(low, guess + 1), high) if answer == "Higher." else (low, min(high, guess - 1))
        return [f"guess {n}" for n in sorted(range(low, high + 1), key=lambda n: abs(2 * n - low - high))]
