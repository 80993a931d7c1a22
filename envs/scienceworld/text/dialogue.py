"""Dialogues of ScienceWorld: prompts, parsing of responses, rules that end an episode.

The style ``full`` follows the order and the contents of the released prompts (audit 3.4) in our words: the
task and the first observation, then in every turn the observation and the output format, without a list of
valid actions. ``compact`` is a numbered transcript of shortened observations (``compact_text``). Both
expect one thought and one action and pass any action on: the simulator's answer says if it does not
understand one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r3l.envs.base.action_parsers import (
    each_tag_once,
    first_pair,
    not_empty,
    one_action,
    trinity_action,
    verl_agent_action,
)
from r3l.envs.base.experts import criticise
from r3l.envs.base.format_verl_agent import VerlAgentFormat
from r3l.envs.base.tagged import ReleasedDialogue, TaggedDialogue
from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.expert import FOCUS, GO, LOOK, PLACES, PUT, TAKE, ScienceWorldExpert
from r3l.envs.scienceworld.text.compact_text import compact, compact_first

from r3l.core.environment import Critique, Observation, Transcript
from r3l.core.task import Task
from r3l.core.text import Message

_VERB = re.compile(r"(?:teleport to|go to|focus on|pick up|put down|look around|look at|look in|\w+) ?")


class ScienceWorldDialogue(TaggedDialogue):
    """The default ``Dialogue`` of ScienceWorld: one growing dialog, responses in tags."""

    package = "scienceworld"
    label = "ScienceWorld"
    domain = "ScienceWorld science tasks"
    released_turns = 30
    action_parsers = {
        "strict": not_empty(each_tag_once),
        "flexible": one_action,
        "released": first_pair,
        "first": verl_agent_action,
        "opened": trinity_action,
    }
    options_type = ScienceWorldOptions
    options: ScienceWorldOptions

    def opening(self, task: Task, first: Observation) -> list[Message]:
        if self.style == "compact":
            return [Message("user", f"0: {compact_first(first.text)}")]
        return [self._system("system"), self._turn(first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        if self.style == "compact":
            return Message("user", f"{len(actions)}: {compact(now.text)}")
        return self._turn(now)

    def names(self, action: str) -> list[str]:
        """Names in an action, which a policy copies from observations: its objects.

        Places are left out: they are the same in every task and often not yet shown.
        """
        things = _VERB.sub("", action, count=1).split(" to ")
        return [thing for thing in things if thing and thing not in PLACES]

    def possible(self, action: str, now: Observation) -> bool:
        """Whether the action begins with a verb of the stored solutions.

        The simulator lists no actions, so ``now`` is not read.
        """
        return action == LOOK or action.startswith((GO, FOCUS, TAKE, PUT))

    def critique(self, transcript: Transcript) -> Critique | None:
        """The scripted critic's judgement; None for a problem without a stored solution."""
        solution = transcript.task.payload.get("solution")
        if solution is None:
            return None
        return criticise(ScienceWorldExpert.at_start(solution, transcript.first), transcript, self.max_turns)

    def _system(self, name: str) -> Message:
        return Message("system", self.prompt(name, commands=self.prompt("commands")))

    def _turn(self, now: Observation) -> Message:
        content = self.prompt("turn", observation=now.text.strip(), contract=self.prompt("contract"))
        return Message("user", content)


class TrinityScienceWorldDialogue(ScienceWorldDialogue):
    """Trinity-RFT's form of the ``Dialogue``, in our words, for ``response_format: opened``.

    After the system prompt, user messages contain only observations.
    """

    def opening(self, task: Task, first: Observation) -> list[Message]:
        user = Message("user", f"Observation:\nTask description: {first.text.strip()}")
        return [self._system("opened_system"), user]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return Message("user", f"Observation:\n{now.text.strip()}")


class ReleasedScienceWorldDialogue(ReleasedDialogue, ScienceWorldDialogue):
    """``ScienceWorldDialogue`` with the prompts of the paper's released code (``prompts: released``)."""

    system = "sciworld_system"
    reward = "final_reward"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        # The release writes the task before the first observation; the engine has it on the first line.
        text = now.text
        if not actions:
            task, _, look = text.partition("\n")
            described = "str(env.get_task_description())"
            opening, *_ = self.words.texts("first_rollout", described, "observation")
            text = opening.fill({described: task, "observation": look})
        (turn,) = self.words.texts("format_observation", "observation")
        return Message("user", turn.fill({"observation": text}))


class VerlAgentScienceWorldDialogue(VerlAgentFormat, ScienceWorldDialogue):
    """verl-agent's form of the dialogue of ScienceWorld: a new prompt each turn (setting ``history``)."""

    def task_values(self, first: Observation) -> dict[str, str]:
        return {"task": first.text.partition("\n")[0]}

    def observation_text(self, first: Observation, now: Observation) -> str:
        return now.text.removeprefix(first.text.partition("\n")[0]).strip()

    def action_values(self, now: Observation) -> dict[str, str]:
        return {"contract": self.prompt("contract")}
