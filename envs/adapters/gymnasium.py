"""Text environments with ``reset`` and ``step``: gymnasium's, and any object with both methods.

Tasks are seeds. A retry resets with the task's seed and replays the actions before its pivot.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from r3l.envs.adapters.base import AdaptedDialogue, AdaptedEnvironment, AdapterArguments
from r3l.envs.adapters.number_spaces import NUMBER_SPACES, described_numbers, read_numbers
from r3l.envs.base.action_parsers import each_tag_once
from r3l.envs.base.one_file import FORMAT, OneFileEngine
from r3l.envs.base.package import Options
from r3l.envs.base.tagged import TaggedDialogue

from r3l.core.environment import Dialogue, Observation, Parsed, StopReason, Style
from r3l.core.errors import ConfigError, R3LError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.validation import FLAG, NUMBER, Rule, close_all, wrong

_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")  # gymnasium's texts mark the player's position by colour
_COLOUR_ENDS = ("\x1b[0m", "\x1b[m")
RESET = "(observation, info), or an object with observation"
STEP = "(observation, reward, terminated, truncated, info), or an object with observation, reward and done"
OTHER_SPACES = ("Dict", "Graph", "OneOf", "Sequence", "Tuple")  # have no form in text


def _success(value: Any) -> bool | None:
    """True or False, also for the numbers 1 and 0, which some environments give; None for anything else."""
    if FLAG.read(value) is None and NUMBER.read(value) not in (0, 1):
        return None
    return bool(value == 1)


SUCCESS = Rule(_success, FLAG.fix)


class GameArguments(AdapterArguments):
    """The key ``arguments`` for any environment with ``reset`` and ``step``."""

    rules: str = option("", "text for the model before the first observation", "our choice: nothing")
    actions: list[str] = option(
        [],
        "names of the discrete actions in order, of which a response has one in tags; none: step gets the "
        "response, or the numbers in its tags if the actions are numbers",
        "our choice",
    )


class GymnasiumArguments(GameArguments):
    """The key ``arguments`` for an environment that is registered with gymnasium."""

    make: dict[str, Any] = option(..., "arguments of gymnasium.make: id, and the environment's own")


GameArgumentsT = TypeVar("GameArgumentsT", bound=GameArguments)


class TextGames(AdaptedEnvironment[GameArgumentsT], Generic[GameArgumentsT]):
    """Base class of environments whose engine is an object with two methods, made by ``make`` of a subclass.

    - ``reset(seed=...)``: (observation, info), or an object with ``observation``
    - ``step(action)``: (observation, reward, terminated, truncated, info), or an object with ``observation``,
      ``reward`` and ``done``

    Observations are texts, or ``render()`` returns one. A task is solved if at its end the rewards add up to
    at least ``solved_at``; if ``info`` has ``is_success``, that decides.
    """

    arguments = GameArguments  # type: ignore[assignment] # for subclasses without their own arguments

    @abstractmethod
    def make(self) -> Any:
        """Create the game, an object with ``reset`` and ``step`` (see the class), for one engine."""

    def numbers(self) -> str | None:
        """The text that tells the model which numbers an action consists of; None for other actions."""
        return None

    def payload(self, number: int) -> dict[str, Any]:
        """A system message with the rules and the form of an action, under ``before``; {} if there are none.

        ``number``, the game's seed, changes nothing in it.
        """
        given = self.given
        form = ""
        if given.actions:
            form = f"The actions are: {', '.join(given.actions)}.\n{FORMAT}"
        else:
            numbers = self.numbers()
            if numbers is not None:
                form = f"An action is {numbers}, with blanks between them.\n{FORMAT}"
        rules = f"{given.rules}\n{form}".strip()
        if not rules:
            return {}
        return {"before": [{"role": "system", "content": rules}]}

    def make_engine(self, options: Options) -> TextGame:
        """Make a game and the engine that plays it; ``options`` are not used."""
        return TextGame(self.name, self.make(), self.given, self.numbers())

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        """A dialogue that shows the game's texts.

        It expects an action in tags if actions have names or are numbers; else a response is the action.
        """
        in_tags = bool(self.given.actions) or self.numbers() is not None
        kind = TaggedActions if in_tags else AdaptedDialogue
        return kind(self.given.domain, style, max_turns)


class Gymnasium(TextGames[GymnasiumArguments]):
    """The environment that ``gymnasium.make(**make)`` creates, played by text as in :class:`TextGames`.

    A response contains, in tags, the name of a discrete action (``actions``) or the numbers of an action. If
    actions are texts, the response itself is the action. :meth:`make` raises ConfigError for action spaces
    of :data:`OTHER_SPACES`.
    """

    arguments = GymnasiumArguments
    extra = "gymnasium"

    def make(self) -> Any:
        """``gymnasium.make(**make)``.

        Raises ConfigError if gymnasium cannot make it, if its actions have no form in text, or if the names
        in ``actions`` are not as many as its discrete actions (none for actions of numbers).
        """
        import gymnasium

        made = self.given.make
        try:
            game = gymnasium.make(**made)
        except Exception as error:  # an environment's own code may raise anything
            why = f"gymnasium cannot make it: {type(error).__name__}: {error}"
            raise self.wrong("make", made, why) from error

        # Discrete actions need a name each; actions of numbers have none.
        space = game.action_space
        names = self.given.actions
        if _is_one_of(space, OTHER_SPACES):
            why = f"gymnasium's {type(space).__name__} spaces cannot be played by text"
            raise self.wrong("make", made, why)
        if _is_one_of(space, NUMBER_SPACES) and names:
            why = f"{made.get('id')} has actions of numbers; names are for Discrete ones, so leave them out"
            raise self.wrong("actions", names, why)
        if isinstance(space, gymnasium.spaces.Discrete) and space.n != len(names):
            raise self.wrong("actions", names, f"{made.get('id')} has {space.n} actions; name each in order")
        return game

    @cached_property
    def _numbers(self) -> str | None:
        game = self.make()
        try:
            space = game.action_space
            return described_numbers(space) if _is_one_of(space, NUMBER_SPACES) else None
        finally:
            close_all(self.name, [game])

    def numbers(self) -> str | None:
        """The text that tells the model which numbers an action consists of; None for other actions.

        Makes the game once to read its action space. Raises ConfigError if gymnasium is not installed, if it
        cannot make the game, if its actions have no form in text, or if not every action has a name.
        """
        if self.given.actions:
            return None
        self.check_installed()
        return self._numbers

    def payload(self, number: int) -> dict[str, Any]:
        """The contents of game ``number``, part of its task and so of the task set's hash.

        ``before``: the system message with rules and form of an action, if there is one. ``gymnasium``: the
        library's version, since its games change with it.
        """
        from importlib.metadata import version

        return super().payload(number) | {"gymnasium": version("gymnasium")}


class TaggedActions(AdaptedDialogue):
    """A ``Dialogue`` with one action in tags: a name or numbers.

    In the compact style the prompt has no rules: small models learn them from demonstrations.
    """

    reasons = {StopReason.INADMISSIBLE: "an action was not one of the admissible actions"}

    def opening(self, task: Task, first: Observation) -> list[Message]:
        messages = super().opening(task, first)
        return messages[-1:] if self.style == "compact" else messages

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action in tags, or why the response ends the episode: format, or inadmissible."""
        action = each_tag_once(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        return Parsed(action) if self.possible(action, now) else Parsed(None, StopReason.INADMISSIBLE)

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        return TaggedDialogue.closing(self, reward, success, turns, error, response)


class TextGame(OneFileEngine):
    """The engine of one game. The reward of an observation is the sum of the rewards so far."""

    def __init__(self, name: str, game: Any, arguments: GameArguments, numbers: str | None = None) -> None:
        self._name = name
        self._game = game
        self._arguments = arguments
        self._numbers = numbers  # description of actions that consist of numbers
        self._who = f"environment {name!r}"
        self._total = 0.0

    def reset(self, task: Task) -> Observation:
        """Reset the game with the task's number as its seed; returns the first observation.

        Raises ContractError if the game's ``reset`` fails, or returns another form than TextGames says.
        """
        self._total = 0.0
        try:
            answer = self._game.reset(seed=task.payload["number"])
        except R3LError:
            raise
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            text = f"{type(error).__name__}: {error}"
            fix = "a game must begin with the seed of every task in its task sets"
            raise wrong(self._who, f"reset of task {task.id} raised", text, fix) from error
        observation = answer[:1] if isinstance(answer, tuple) else _fields(answer, "observation")
        if not observation:
            raise wrong(self._who, "reset returned", answer, f"return {RESET}")
        return self._observe(observation[0])

    def step(self, action: str) -> Observation:
        """Pass an action to the game; an action of wrong numbers is refused, and the game does not see it.

        An error of the game ends the episode (``failed``). Raises ContractError for an answer of the game in
        another form than :class:`TextGames` says.
        """
        # The game expects a number, an array of numbers or the response.
        space = getattr(self._game, "action_space", None)
        names = self._arguments.actions
        move: Any = action
        if names:
            move = int(getattr(space, "start", 0)) + names.index(action)
        elif self._numbers is not None:
            move = read_numbers(action, space)
            if move is None:
                text = f"This is no action. An action is {self._numbers}."
                lost = min(self._total, 0.0)
                return Observation(text, (), self._total, invalid_action_reward=lost, refused=True)

        # An error of the game's own code ends the episode and is counted.
        try:
            answer = self._game.step(move)
        except R3LError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party code may raise anything
            failed = f"{type(error).__name__}: {error}"
            return Observation("", reward=min(self._total, 0.0), done=True, failed=failed)

        # Validate the answer: gymnasium's tuple, or an object (in which a reward of None means no reward).
        fields: tuple[Any, ...] | None
        if isinstance(answer, tuple):
            fields = answer
        else:
            fields = _fields(answer, "observation", "reward", "done")
            if fields is not None:
                seen, earned, done = fields
                fields = (seen, 0.0 if earned is None else earned, done, False, {})
        if fields is None or len(fields) != 5:
            raise wrong(self._who, "step returned", answer, f"return {STEP}")
        observation, reward, terminated, truncated, info = fields
        self._total += NUMBER.check(self._who, "step returned a reward that is", reward)
        terminated = FLAG.check(self._who, "step returned an end that is", terminated)
        truncated = FLAG.check(self._who, "step returned an end that is", truncated)
        if not isinstance(info, Mapping):
            raise wrong(self._who, "step returned an info that is", info, "give a dict")
        success = info.get("is_success")
        if success is not None:
            success = SUCCESS.check(self._who, "step returned an is_success that is", success)
        return self._observe(observation, terminated or truncated, success)

    def close(self) -> None:
        if hasattr(self._game, "close"):
            self._game.close()

    def _observe(self, observation: Any, done: bool = False, success: bool | None = None) -> Observation:
        """The observation as a text, with the rewards so far; ``success`` None: decided by the rewards.

        Raises ConfigError if neither the observation nor the game's ``render()`` is a text.
        """
        text = observation
        if not isinstance(observation, str):
            kind = type(observation).__name__
            problem = f"{self._name}.yaml: the observation is of type {kind} and not a text"
            if not hasattr(self._game, "render"):
                raise ConfigError(
                    f"{problem}, and the game has no render(); return texts, or give it a render() that does"
                )
            try:
                text = self._game.render()
            except Exception as error:  # third-party code may raise anything
                raise ConfigError(
                    f"{problem}, and render() raises {type(error).__name__}: {error}; return texts, or give "
                    "it a render() that does"
                ) from error
            if not isinstance(text, str):
                raise ConfigError(
                    f"{problem}, and render() returns {type(text).__name__}; take an environment of texts, "
                    "or add render_mode: ansi to arguments.make"
                )
        solved = self._total >= self._arguments.solved_at if success is None else success
        admissible = () if done else tuple(self._arguments.actions)
        lost = min(self._total, 0.0)  # an invalid response earns nothing, but keeps a loss
        return Observation(uncoloured(text).strip(), admissible, self._total, done, done and solved, lost)


def _is_one_of(space: Any, names: Sequence[str]) -> bool:
    """True if a space's class, or a base of it, has one of the names (gymnasium is imported late)."""
    return any(base.__name__ in names for base in type(space).__mro__)


def uncoloured(text: str) -> str:
    """``text`` without terminal colour codes; brackets mark the parts that were coloured.

    A colour that is never reset is not marked.
    """
    parts: list[str] = []
    begun = None  # index of the open bracket in ``parts``
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
    """The attributes of an answer; None if it lacks one."""
    if not all(hasattr(answer, name) for name in names):
        return None
    return tuple(getattr(answer, name) for name in names)
