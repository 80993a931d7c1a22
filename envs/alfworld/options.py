"""Settings of ALFWorld's dialogues: contents of prompts, parsing of responses, rules that end an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from r3l.envs.base.tagged import TaggedOptions

from r3l.core.option import option


class AlfworldOptions(TaggedOptions):
    """Settings of ALFWorld's dialogues; its engine has none."""

    list_places: bool = option(
        False,
        "list the reachable places at the end of a compact prompt; full prompts list every admissible action",
        "our choice: with the list a small model seldom walks to its own place or to one that does not exist",
    )
    turn: Literal["response", "line"] = option(
        "response",
        "response: a thought and an action in tags; line: the first line of a response is the action, a line "
        "that begins with 'think:' is answered 'OK.', and prompts are a bare transcript",
        "released code: tags (audit 3.2)",
    )
    admissible: Literal["shown", "first", "hidden"] = option(
        "shown",
        "turns whose full prompts list the admissible actions: every turn, only the first, or none",
        "released code: shown (audit 3.2)",
    )
    impossible: Literal["ends", "nothing_happens", "nearest"] = option(
        "ends",
        "an impossible action ends the episode, is answered 'Nothing happens.', or is replaced by "
        "the admissible action with the highest BLEU, if that is close enough",
        "released code: it ends a first attempt (audit 3.1)",
    )
    examples: Mapping[str, tuple[str, ...]] = option(
        {},
        "few-shot transcripts by task type, shown before the task in forms without tagged responses",
        "released code: none (audit 3.2)",
    )
