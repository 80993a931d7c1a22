"""Shortest path, one of the puzzles."""

from envs.puzzles import PACKAGE

__all__ = ["PACKAGE"]
