"""Evaluation: episodes on a task set, scores, named protocols, verification and storage of finished runs.

May import core, config, runs, endpoint and local (the sampler); the report and the CLI import it. Intervals
and comparisons of scores are in r3l.stats.
"""
