"""Mathematics trained on DAPO-Math, as in the paper."""

from envs.math import PACKAGE

__all__ = ["PACKAGE"]
