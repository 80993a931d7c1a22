"""Episodes and benchmark replies to scores, and scores to statistics.

May import core, config, runs and local (the sampler); the report and the CLI import it.
"""
