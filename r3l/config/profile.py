"""Profiles: whether the paper, its released code or one budget for all decides where they differ.

A fourth, ``tuned``, is the paper's with the learning rate that `r3l tune` has chosen (r3l.config.tuning).
"""

from __future__ import annotations

from typing import Literal

from r3l.config.variant import Variant
from r3l.core.errors import ConfigError, unknown

ProfileName = Literal["paper", "released_code", "fair", "tuned"]
TUNED: ProfileName = "tuned"
PROFILES: tuple[ProfileName, ...] = ("paper", "released_code", "fair")  # those that files of configs set


def profile_of(row: Variant) -> ProfileName:
    """That which a variant names; by default the paper's. Raises ConfigError for one that there is not."""
    text = row.value("profile", "paper")
    for profile in (*PROFILES, TUNED):
        if profile == text:
            return profile
    raise ConfigError(f"method {row.name!r}: {unknown('profile', text, (*PROFILES, TUNED))}")


def names_profile(row: Variant) -> bool:
    """Whether a variant names its profile."""
    return bool(row.value("profile", ""))
