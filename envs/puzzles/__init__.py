"""RLTF's reasoning puzzles: Knights & Knaves, binary matrix, shortest path, and countdown beside them."""

from envs.package import Package
from envs.puzzles.options import PuzzleOptions
from r3l.core.environment import EnvironmentPackage

PACKAGE: EnvironmentPackage = Package("puzzles", PuzzleOptions)
