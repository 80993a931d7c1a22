"""Environments in worker processes, and a barrier at which concurrent episodes wait for one shared batch."""
