"""The puzzles there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from r3l.envs.puzzles.base import Puzzle
from r3l.envs.puzzles.binary_matrix import BinaryMatrix
from r3l.envs.puzzles.countdown import Countdown
from r3l.envs.puzzles.knights_knaves import KnightsKnaves
from r3l.envs.puzzles.shortest_path import ShortestPath

from r3l.core.errors import check_known

PUZZLES: Mapping[str, Puzzle] = {p.name: p for p in (KnightsKnaves(), BinaryMatrix(), ShortestPath(), Countdown())}


def puzzle(name: str) -> Puzzle:
    """The puzzle of that name. Raises ConfigError where there is none."""
    check_known("puzzle", name, PUZZLES)
    return PUZZLES[name]
