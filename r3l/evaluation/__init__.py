"""Evaluation: episodes on a task set, scores, named protocols, verification and storage of finished runs.

May import all layers below it (tests/test_architecture.py); it uses core, stats, files, processes, chat,
config, endpoint, runs and local (the sampler). The API, the probe, the report, the workflow and the CLI
import it. Intervals and comparisons of scores are in r3l.stats.
"""
