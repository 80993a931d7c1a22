"""Mathematics trained in its own domain: MATH, tested on MATH-500."""

from r3l.envs.math import PACKAGE

__all__ = ["PACKAGE"]
