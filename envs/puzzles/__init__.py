"""RLTF's reasoning puzzles: Knights & Knaves, binary matrix, shortest path, and countdown beside them."""

from r3l.core.environment import EnvironmentPackage
from r3l.envs.base.package import Package
from r3l.envs.puzzles.options import PuzzleOptions

PACKAGE: EnvironmentPackage = Package("puzzles", PuzzleOptions)
