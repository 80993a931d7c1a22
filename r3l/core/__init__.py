"""Core types and rules: task, environment, policy, rollout, trajectory, method, batch, losses, seeds.

This package imports nothing else of the project; every other package may import it.

Tensor names carry their axes: ``_B`` row of a batch, ``_T`` token position, ``_G`` member of a group, ``_K``
turn of a trajectory. So ``advantages_G`` has one entry per trajectory of a group and ``mask_B_T`` one per
token of a batch.
"""
