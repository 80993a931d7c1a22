"""The settings of WebShop's engine."""

from __future__ import annotations

from r3l.core.option import option
from r3l.envs.base.options import Options


class WebshopOptions(Options):
    """Settings of the environment.

    ``penalty`` is taken off for a last action that the page does not have and for a response that ends the episode
    (malformed, repeated). The released code takes 0.1 and so ranks them below using up the limit, 0 (audit B-20).
    """

    penalty: float = option(
        0.0, "lost by an impossible last action or a response that ends the episode (B-20)", "the original: none", ge=0
    )
