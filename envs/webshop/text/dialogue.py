"""Dialogues of WebShop: prompts, parsing of responses, rules that end an episode.

The style ``full`` follows the order and the contents of the released prompts (audit 3.3) in our words,
without their claim that every page can be searched from (defect B-21: the release's validator allows a
search only on pages with a search bar). ``compact`` is a bare numbered transcript for small models that
learn it from demonstrations. Both parse responses by one rule: ``<think>..</think>``, then
``<action>..</action>``, the first of each.

An action that the page does not have is passed on and changes nothing, so replaying it changes nothing
either (B-18). The same action twice in a row ends the episode, unless it searches or turns pages (audit
3.1). The release scores a malformed, repeated or impossible last action -0.1 and a used-up limit 0 (B-20):
see the engine's ``penalty``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

from r3l.envs.base.action_parsers import (
    agentbench_action,
    example_turns,
    first_pair,
    not_empty,
    one_action,
    trinity_action,
    verl_agent_action,
)
from r3l.envs.base.agentbench_truncation import truncate
from r3l.envs.base.experts import criticise
from r3l.envs.base.format_agentbench import AgentBenchFormat
from r3l.envs.base.format_verl_agent import VerlAgentFormat
from r3l.envs.base.tagged import ReleasedDialogue, TaggedDialogue
from r3l.envs.webshop import WebshopOptions
from r3l.envs.webshop.engine import pages
from r3l.envs.webshop.engine.shop import SEARCH_ACTION
from r3l.envs.webshop.engine.synthetic import is_wish
from r3l.envs.webshop.expert import WebshopExpert

from r3l.core.environment import Critique, Observation, StopReason, Transcript
from r3l.core.task import Task
from r3l.core.text import Message

_MAY_REPEAT = ("next", "prev", "search")  # the release's words that exempt an action from the repetition rule
_SEARCH_LISTED = "search[<your query>]"  # verl-agent's entry for a search
_BUTTON = re.compile(r"(  )?\[(clicked )?button\] (.*) \[(?:clicked )?button_\]")
_CLICKED = re.compile(r"You have clicked .*\.")


class WebshopDialogue(TaggedDialogue):
    """The default ``Dialogue`` of WebShop: one growing dialog, responses in tags."""

    package = "webshop"
    label = "WebShop"
    domain = "WebShop shopping tasks"
    undertaking = "purchase"
    released_turns = 15
    action_parsers = {
        "strict": not_empty(first_pair),
        "flexible": one_action,
        "released": first_pair,
        "first": partial(verl_agent_action, rest=20),
        "opened": trinity_action,
        "labelled": agentbench_action(re.compile(r"[Aa]ction: *\n* *((?:search|click)\[.+?\])")),
    }
    reasons = {StopReason.FORMAT: "a response did not hold <think>...</think> and then <action>...</action>"}
    options_type = WebshopOptions
    options: WebshopOptions

    def opening(self, task: Task, first: Observation) -> list[Message]:
        if self.style == "compact":
            return [Message("user", f"0: {pages.instruction(first.text)}")]
        return [Message("system", self.prompt("system", max_turns=self.max_turns)), self._turn(first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        if self.style == "compact":
            return Message("user", f"{len(actions)}: {compact(now.text)}")
        return self._turn(now)

    def may_repeat(self, action: str) -> bool:
        return any(word in action.lower() for word in _MAY_REPEAT)

    def names(self, action: str) -> list[str]:
        """Names in an action, which a policy copies from observations: a search's words, or a click's target.

        [] for a standard button such as ``buy now``.
        """
        verb, _, target = action.removesuffix("]").partition("[")
        if verb == "search":
            return target.split()
        return [] if target in {button.lower() for button in pages.STANDARD_BUTTONS} else [target]

    def possible(self, action: str, now: Observation) -> bool:
        """True if the page has the action's target, or a search bar for a search."""
        if action.startswith("search[") and SEARCH_ACTION in now.admissible:
            return True
        return action in now.admissible

    def critique(self, transcript: Transcript) -> Critique | None:
        """The scripted critic's judgement of an episode; like the policy, it reads only the pages.

        None for instructions of the original WebShop, which the critic cannot parse.
        """
        if not is_wish(pages.instruction(transcript.first)):
            return None
        return criticise(WebshopExpert.at_start(transcript.first), transcript, self.max_turns)

    def _turn(self, now: Observation) -> Message:
        """The user message of a turn."""
        turn = self.prompt(
            "turn",
            observation=now.text.strip(),
            available=json.dumps(available_actions(now)),
            contract=self.prompt("contract"),
        )
        return Message("user", turn)


def available_actions(now: Observation) -> dict[str, object]:
    """The possible actions on a page, in the format of the original's ``get_available_actions``.

    ``has_search_bar``: whether it has one. ``clickables``: the targets of clicks, with ``search`` before them
    on a page with a search bar.
    """
    bar = SEARCH_ACTION in now.admissible
    targets = [action[len("click[") : -1] for action in now.admissible if action != SEARCH_ACTION]
    if bar:
        targets.insert(0, pages.SEARCH.lower())
    return {"has_search_bar": bar, "clickables": targets}


def compact(text: str) -> str:
    """An observation on one line, lower case, without the instruction and the standard buttons.

    Results: ``page 1 of 50 results; b0371 ralu headset $22.15; ...``. Product: ``color: black, *blue*; ralu
    headset; $22.15``, with stars around the chosen options. A page without anything else: ``search page``.
    A plain observation has no marks, so each of its strings is a part.
    """
    plain = pages.SEPARATOR in text
    # Drop messages about clicks, and everything up to the instruction.
    lines = text.replace(pages.SEPARATOR, "\n").split("\n")
    lines = [line for line in lines if line.strip() and not _CLICKED.fullmatch(line)]
    headings = [k for k, line in enumerate(lines) if line.strip() == "Instruction:"]
    if headings:
        del lines[: headings[0] + 2]

    parts: list[str] = []
    new_part = True  # whether the next line begins a part
    after_option = False
    for line in lines:
        button = _BUTTON.fullmatch(line)
        standard = button[3] if button and not button[1] else line if plain else ""
        if line == "Rating: N.A." or standard in pages.STANDARD_BUTTONS:
            continue
        if button is None:
            results = pages.RESULTS.fullmatch(line)
            line = f"page {results[1]} of {results[2]} results" if results else line.removeprefix("Price: ")
            if new_part or not parts:
                parts.append(line)
            else:
                parts[-1] += f" {line}"
        elif button[1]:  # an option, after its heading; an option without a name has none
            value = f"*{button[3]}*" if button[2] else button[3]
            if parts:
                parts[-1] += f"{',' if after_option else ':'} {value}"
            else:
                parts.append(value)
            new_part = True
        else:  # a product; its title and price follow
            parts.append(button[3])
            new_part = False
        after_option = button is not None and bool(button[1])
    return "; ".join(parts).lower() or "search page"


class ReleasedWebshopDialogue(ReleasedDialogue, WebshopDialogue):
    """``WebshopDialogue`` in the prompts of the paper's released code (``prompts: released``)."""

    system = "webshop_system"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user message of a turn: the page, and the possible actions as a Python dict prints them."""
        (turn,) = self.words.texts("format_observation", "observation", "available_actions")
        return Message(
            "user",
            turn.fill({"observation": now.text, "available_actions": available_actions(now)}),
        )


class VerlAgentWebshopDialogue(VerlAgentFormat, WebshopDialogue):
    """verl-agent's form of the dialogue of WebShop: a new prompt each turn (setting ``history``).

    Pages are shown without the instruction.
    """

    max_characters = 13_000  # verl-agent, env_manager.py

    def task_values(self, first: Observation) -> dict[str, str]:
        return {"task": pages.instruction(first.text)}

    def observation_text(self, first: Observation, now: Observation) -> str:
        _, found, page = now.text.partition(pages.instruction(first.text))
        page = page if found else now.text
        if self.options.observation == "rich":
            return page.strip()
        parts = page.removeprefix(pages.SEPARATOR).split(pages.SEPARATOR)
        return pages.SEPARATOR.join(f"'{part}'" for part in parts)

    def action_values(self, now: Observation) -> dict[str, str]:
        listed = [_SEARCH_LISTED if action == SEARCH_ACTION else action for action in now.admissible]
        return {"available": "\n".join(listed), "contract": self.prompt("window_contract")}


class AgentBenchWebshopDialogue(AgentBenchFormat, WebshopDialogue):
    """AgentBench's form of the ``Dialogue``, in our words.

    The dialog is written again each turn; one that is too long loses its earliest messages after the
    instruction.
    """

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        messages = [Message("user", self.prompt("labelled")), Message("assistant", "OK.")]
        examples = [text for texts in self.options.examples.values() for text in texts]
        example = example_turns(examples[0]) if examples else []
        for seen, thought, action in example:
            messages.append(Message("user", _labelled(seen)))
            messages.append(Message("assistant", f"Thought:\n{thought}\n\nAction:\n{action}"))
        for page, response, _ in answers:
            messages += [_offered(page), Message("assistant", response)]
        return truncate([*messages, _offered(now)])


def _offered(now: Observation) -> Message:
    """The user message with a page and its possible actions."""
    return Message("user", _labelled(f"{now.text.strip()}\n{available_actions(now)}"))


def _labelled(seen: str) -> str:
    """Label a text of a page and, on its last line, the possible actions."""
    page, _, available = seen.rpartition("\n")
    return f"Observation:\n{page}\n\nAvailable Actions:\n{available}"
