"""ALFWorld's settings (``options`` of configs/envs/alfworld.yaml)."""

from __future__ import annotations

from r3l.envs.tagged_text.options import TaggedOptions

from r3l.core.option import option


class AlfworldOptions(TaggedOptions):
    """Settings of the text side; its engine has none."""

    list_places: bool = option(
        False,
        "whether a compact prompt ends with the places that one can go to; full prompts list every admissible action",
        "our choice: a small model that is shown them seldom walks to where it is, or to what this house lacks",
    )
