"""Benchmarks of speed and memory: a step by phase, other engines, rollouts."""
