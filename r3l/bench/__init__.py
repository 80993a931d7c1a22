"""Benchmarks of speed and memory: a step by phase, other engines, rollouts.

May import all but workflow, report and cli.
"""
