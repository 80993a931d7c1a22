"""Mathematics trained on DAPO-Math, as in the paper."""

from r3l.envs.math import PACKAGE

__all__ = ["PACKAGE"]
