"""Profiles: whether the paper, its released code or one budget for all decides where they differ."""

from __future__ import annotations

from typing import Literal, get_args

ProfileName = Literal["paper", "released_code", "fair"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
