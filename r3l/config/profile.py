"""Profiles: whether the paper, its released code or one budget for all decides where they differ."""

from __future__ import annotations

from typing import Literal, get_args

from r3l.config.variant import Variant
from r3l.core.errors import ConfigError, unknown

ProfileName = Literal["paper", "released_code", "fair"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)


def profile_of(row: Variant) -> ProfileName:
    """That which a variant names; by default the paper's. Raises ConfigError for one that there is not."""
    text = row.value("profile", "paper")
    for profile in PROFILES:
        if profile == text:
            return profile
    raise ConfigError(f"method {row.name!r}: {unknown('profile', text, PROFILES)}")
