"""Mathematics trained in its own domain: GSM8K."""

from envs.math import PACKAGE

__all__ = ["PACKAGE"]
