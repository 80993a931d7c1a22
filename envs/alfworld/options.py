"""The settings of ALFWorld's text side: what is shown, how a response is read, and what ends an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from r3l.envs.base.tagged import TaggedOptions

from r3l.core.option import option


class AlfworldOptions(TaggedOptions):
    """Settings of the text side; its engine has none."""

    list_places: bool = option(
        False,
        "whether a compact prompt ends with the places that one can go to; full prompts list every admissible action",
        "our choice: a small model that is shown them seldom walks to where it is, or to what this house lacks",
    )
    turn: Literal["response", "line"] = option(
        "response",
        "response: a thought and an action in tags; line: the first line of a response is its action, one that begins "
        "with 'think:' is answered 'OK.', and prompts are a bare transcript",
        "released code: tags (audit 3.2)",
    )
    admissible: Literal["shown", "first", "hidden"] = option(
        "shown",
        "where full prompts list the admissible actions: at every turn, at the first one, or nowhere",
        "released code: shown (audit 3.2)",
    )
    impossible: Literal["ends", "nothing_happens", "nearest"] = option(
        "ends",
        "what an impossible action does: it ends the episode, or is answered 'Nothing happens.', or the admissible "
        "one whose words are nearest by BLEU is taken in its place, if any is near",
        "released code: it ends a first attempt (audit 3.1)",
    )
    examples: Mapping[str, tuple[str, ...]] = option(
        {},
        "few-shot transcripts of each task type, shown before the task where a turn is no response in tags",
        "released code: none (audit 3.2)",
    )
