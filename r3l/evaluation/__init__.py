"""Evaluation: episodes on a task set, their scores, named protocols, and what makes a finished run trustworthy.

May import core, config, runs, endpoint and local (the sampler); the report and the CLI import it. Intervals and
comparisons of scores are in r3l.stats.
"""
