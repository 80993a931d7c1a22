"""Text environments that have ``reset`` and ``step``: those registered with gymnasium, and any object that has both.

Tasks are seeds. A retry resets with the task's seed and plays the actions before its pivot again.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from r3l.envs.adapters.base import AdaptedDialogue, AdaptedEnvironment, AdapterArguments
from r3l.envs.base.action_parsers import each_tag_once
from r3l.envs.base.one_file import FORMAT, OneFileEngine
from r3l.envs.base.package import Options
from r3l.envs.base.tagged import TaggedDialogue

from r3l.core.environment import Dialogue, Observation, Parsed, StopReason, Style
from r3l.core.errors import ConfigError, R3LError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.validation import FLAG, NUMBER, Rule, wrong

_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")  # how gymnasium's texts mark where the player is
_COLOUR_ENDS = ("\x1b[0m", "\x1b[m")
RESET = "(observation, info), or an object with observation"
STEP = "(observation, reward, terminated, truncated, info), or an object with observation, reward and done"
SUCCESS = Rule(  # some environments say it by a number
    lambda said: said == 1 if FLAG.read(said) is not None or NUMBER.read(said) in (0, 1) else None, FLAG.fix
)


class GameArguments(AdapterArguments):
    """Of any environment with ``reset`` and ``step``."""

    rules: str = option("", "what a model is told before the first observation", "our choice: nothing")
    actions: list[str] = option(
        [],
        "names of the actions 0, 1, ..., of which a response gives one in tags; none: step gets the whole response",
        "our choice",
    )


class GymnasiumArguments(GameArguments):
    """Of an environment that is registered with gymnasium."""

    make: dict[str, Any] = option(..., "arguments of gymnasium.make: id, and the environment's own")


GameArgumentsT = TypeVar("GameArgumentsT", bound=GameArguments)


class TextGames(AdaptedEnvironment[GameArgumentsT], Generic[GameArgumentsT]):
    """A subclass brings ``make``, which gives an object with two methods:

    ``reset(seed=...)``: (observation, info), or an object with ``observation``;
    ``step(action)``: (observation, reward, terminated, truncated, info), or one with ``observation, reward, done``.

    Observations are texts, or ``render()`` gives one. A task is solved where the rewards add up to ``solved_at``,
    unless ``info`` has ``is_success``.
    """

    arguments = GameArguments  # type: ignore[assignment] # of subclasses that name no others

    @abstractmethod
    def make(self) -> Any:
        """A new game."""

    def payload(self, number: int) -> dict[str, Any]:
        """What a model is told first; the number is the seed."""
        given = self.given
        named = f"The actions are: {', '.join(given.actions)}.\n{FORMAT}" if given.actions else ""
        rules = f"{given.rules}\n{named}".strip()
        return {"before": [{"role": "system", "content": rules}]} if rules else {}

    def make_engine(self, options: Options) -> TextGame:
        return TextGame(self.name, self.make(), self.given)

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        """The game's words; actions stand in tags where they have names."""
        kind = NamedActions if self.given.actions else AdaptedDialogue
        return kind(self.given.domain, style, max_turns)


class Gymnasium(TextGames[GymnasiumArguments]):
    """What ``gymnasium.make(**make)`` makes."""

    arguments = GymnasiumArguments
    extra = "gymnasium"

    def make(self) -> Any:
        """Raises ConfigError where gymnasium cannot make it, or it has another number of actions."""
        import gymnasium

        made = self.given.make
        try:
            game = gymnasium.make(**made)
        except Exception as error:  # an environment's own code may raise anything
            raise self.wrong("make", made, f"gymnasium cannot make it: {type(error).__name__}: {error}") from error
        count = getattr(game.action_space, "n", None)
        if count is not None and count != len(self.given.actions):
            raise self.wrong("actions", self.given.actions, f"{made.get('id')} has {count} actions; name each in order")
        return game

    def payload(self, number: int) -> dict[str, Any]:
        """The library's version: its games change with it."""
        from importlib.metadata import version

        return super().payload(number) | {"gymnasium": version("gymnasium")}


class NamedActions(AdaptedDialogue):
    """A response gives one of the actions, in tags. The compact style leaves the rules out: small models are taught."""

    reasons = {StopReason.INADMISSIBLE: "an action was not one of the admissible actions"}

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return super().opening(task, first)[-1 if self.style == "compact" else 0 :]

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        action = each_tag_once(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        return Parsed(action) if self.possible(action, now) else Parsed(None, StopReason.INADMISSIBLE)

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        return TaggedDialogue.closing(self, reward, success, turns, error, response)


class TextGame(OneFileEngine):
    """A game as an engine. The reward of an observation is the sum of all so far."""

    def __init__(self, name: str, game: Any, arguments: GameArguments) -> None:
        self._name, self._game, self._arguments = name, game, arguments
        self._who = f"environment {name!r}"
        self._total = 0.0

    def reset(self, task: Task) -> Observation:
        """Reset the game with the task's number as its seed."""
        self._total = 0.0
        answer = self._game.reset(seed=task.payload["number"])
        observation = answer[:1] if isinstance(answer, tuple) else _fields(answer, "observation")
        if not observation:
            raise wrong(self._who, "reset returned", answer, f"return {RESET}")
        return self._seen(observation[0])

    def step(self, action: str) -> Observation:
        names = self._arguments.actions
        try:
            answer = self._game.step(names.index(action) if names else action)
        except R3LError:
            raise
        except Exception as error:  # noqa: BLE001 - a game's own: it ends the episode, and is counted
            return Observation("", reward=min(self._total, 0.0), done=True, failed=f"{type(error).__name__}: {error}")
        fields = answer if isinstance(answer, tuple) else self._of_object(answer)
        if fields is None or len(fields) != 5:
            raise wrong(self._who, "step returned", answer, f"return {STEP}")
        observation, reward, terminated, truncated, info = fields
        self._total += NUMBER.check(self._who, "step returned a reward that is", reward)
        ended = [FLAG.check(self._who, "step returned an end that is", value) for value in (terminated, truncated)]
        return self._seen(observation, any(ended), self._success(info))

    def close(self) -> None:
        if hasattr(self._game, "close"):
            self._game.close()

    def _of_object(self, answer: Any) -> tuple[Any, ...] | None:
        """An object's fields as the tuple of gymnasium; a reward of None is one that is not given."""
        fields = _fields(answer, "observation", "reward", "done")
        return fields and (fields[0], 0.0 if fields[1] is None else fields[1], fields[2], False, {})

    def _success(self, info: Any) -> bool | None:
        """What ``info`` says of it; None where it says nothing."""
        if not isinstance(info, Mapping):
            raise wrong(self._who, "step returned an info that is", info, "give a dict")
        said = info.get("is_success")
        return None if said is None else SUCCESS.check(self._who, "step returned an is_success that is", said)

    def _seen(self, observation: Any, done: bool = False, success: bool | None = None) -> Observation:
        solved = self._total >= self._arguments.solved_at if success is None else success
        admissible = () if done else tuple(self._arguments.actions)
        lost = min(self._total, 0.0)  # an invalid response wins nothing
        return Observation(self._text(observation), admissible, self._total, done, done and solved, lost)

    def _text(self, observation: Any) -> str:
        text = observation if isinstance(observation, str) else self._game.render()
        if not isinstance(text, str):
            raise ConfigError(
                f"{self._name}.yaml: the observation is no text but {type(observation).__name__}, and render() gives "
                f"{type(text).__name__}; take an environment of texts, or add render_mode: ansi to arguments.make"
            )
        return uncoloured(text).strip()


def uncoloured(text: str) -> str:
    """``text`` with brackets around what was coloured, in time linear in its length; without its codes."""
    parts: list[str] = []
    begun = None  # where the bracket stands that is open
    for part in _COLOUR.split(text):
        if not _COLOUR.fullmatch(part):
            parts.append(part)
        elif part in _COLOUR_ENDS and begun is not None:
            parts.append("]")
            begun = None
        elif part not in _COLOUR_ENDS and begun is None:
            begun = len(parts)
            parts.append("[")
    if begun is not None:
        parts[begun] = ""
    return "".join(parts)


def _fields(answer: Any, *names: str) -> tuple[Any, ...] | None:
    """The attributes of an answer; None where it lacks one."""
    return tuple(getattr(answer, name) for name in names) if all(hasattr(answer, name) for name in names) else None
