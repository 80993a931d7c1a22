"""Shortest path, one of the puzzles."""

from r3l.envs.puzzles import PACKAGE

__all__ = ["PACKAGE"]
