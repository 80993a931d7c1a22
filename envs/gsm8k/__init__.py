"""Mathematics trained in its own domain: GSM8K."""

from r3l.envs.math import PACKAGE

__all__ = ["PACKAGE"]
