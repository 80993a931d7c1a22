"""How ScienceWorld talks: prompts, the reading of responses, the ending rules.

``full`` follows the order and the contents of the original release's prompts (audit 3.4) in our own
words: the task and the first observation, then in every turn the observation and the output contract, with no list
of valid actions. ``compact`` is a numbered transcript of shortened observations (``compact_text``).
Both take one thought and one action and send any action on: the simulator says what it does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r3l.envs.base.action_parsers import each_tag_once, first_action, first_pair, not_empty, one_action, opened_action
from r3l.envs.base.experts import criticise
from r3l.envs.base.format_verl_agent import Windowed
from r3l.envs.base.tagged import ReleasedWords, TaggedDialogue
from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.expert import FOCUS, GO, LOOK, PLACES, PUT, TAKE, ScienceWorldExpert
from r3l.envs.scienceworld.text.compact_text import brief, brief_first

from r3l.core.environment import Critique, Observation, Transcript
from r3l.core.task import Task
from r3l.core.text import Message

_VERB = re.compile(r"(?:teleport to|go to|focus on|pick up|put down|look around|look at|look in|\w+) ?")


class ScienceWorldDialogue(TaggedDialogue):
    """The text side of ScienceWorld (a ``Dialogue``)."""

    package, label, domain = "scienceworld", "ScienceWorld", "ScienceWorld science tasks"
    released_turns = 30
    readers = {
        "strict": not_empty(each_tag_once),
        "flexible": one_action,
        "released": first_pair,
        "first": first_action,
        "opened": opened_action,
    }
    options_type = ScienceWorldOptions
    options: ScienceWorldOptions

    def opening(self, task: Task, first: Observation) -> list[Message]:
        if self.style == "compact":
            return [Message("user", f"0: {brief_first(first.text)}")]
        return [self._system("system"), self._turn(first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        if self.style == "compact":
            return Message("user", f"{len(actions)}: {brief(now.text)}")
        return self._turn(now)

    def names(self, action: str) -> list[str]:
        """The things of an action; not the places, which are the same in every task and often not yet shown."""
        things = _VERB.sub("", action, count=1).split(" to ")
        return [thing for thing in things if thing and thing not in PLACES]

    def possible(self, action: str, now: Observation) -> bool:
        """Whether it is one of the actions that problems are solved with: the simulator lists none."""
        return action == LOOK or action.startswith((GO, FOCUS, TAKE, PUT))

    def critique(self, transcript: Transcript) -> Critique | None:
        """The scripted critic, for problems with a stored solution; None for others."""
        solution = transcript.task.payload.get("solution")
        if solution is None:
            return None
        return criticise(ScienceWorldExpert.at_start(solution, transcript.first), transcript, self.max_turns)

    def _system(self, name: str) -> Message:
        return Message("system", self.prompt(name, commands=self.prompt("commands")))

    def _turn(self, now: Observation) -> Message:
        return Message("user", self.prompt("turn", observation=now.text.strip(), contract=self.prompt("contract")))


class OpenedScienceWorldDialogue(ScienceWorldDialogue):
    """The text side of ScienceWorld where ``response_format`` is ``opened``, as Trinity-RFT's workflow plays it, in our
    words: after the system prompt the observations alone (a ``Dialogue``)."""

    def opening(self, task: Task, first: Observation) -> list[Message]:
        user = Message("user", f"Observation:\nTask description: {first.text.strip()}")
        return [self._system("opened_system"), user]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return Message("user", f"Observation:\n{now.text.strip()}")


class ReleasedScienceWorldDialogue(ReleasedWords, ScienceWorldDialogue):
    """The text side of ScienceWorld, with ``prompts: released``."""

    system, reward = "sciworld_system", "final_reward"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The first observation begins with the task, which the engine's has on its first line."""
        text = now.text
        if not actions:
            task, _, look = text.partition("\n")
            described = "str(env.get_task_description())"
            opening, *_ = self.words.texts("first_rollout", described, "observation")
            text = opening.fill({described: task, "observation": look})
        (turn,) = self.words.texts("format_observation", "observation")
        return Message("user", turn.fill({"observation": text}))


class WindowScienceWorldDialogue(Windowed, ScienceWorldDialogue):
    """The text side of ScienceWorld where ``history`` is set (a ``Dialogue``)."""

    def window_task(self, first: Observation) -> dict[str, str]:
        return {"task": first.text.partition("\n")[0]}

    def window_text(self, first: Observation, now: Observation) -> str:
        return now.text.removeprefix(first.text.partition("\n")[0]).strip()

    def asked(self, now: Observation) -> dict[str, str]:
        return {"contract": self.prompt("contract")}
