"""The settings of WebShop."""

from __future__ import annotations

from typing import Literal

from r3l.envs.tagged_text.options import TaggedOptions

from r3l.core.option import option


class WebshopOptions(TaggedOptions):
    """Settings of the environment.

    ``penalty`` is taken off for a last action that the page does not have and for a response that ends the episode
    (malformed, repeated). The released code takes 0.1 and so ranks them below using up the limit, 0 (audit B-20).
    ``refused``: what is impossible. To the ``shop`` it is what does nothing. The ``released`` code asks before it sends
    an action: it refuses a search where there is no search bar; what passes costs nothing even if it does nothing.
    """

    penalty: float = option(
        0.0, "lost by an impossible last action or a response that ends the episode (B-20)", "the original: none", ge=0
    )
    refused: Literal["shop", "released"] = option(
        "shop", "who says which actions are impossible (B-21)", "the original environment"
    )
