"""Nouns of r3l and their rules: task, environment, policy, rollout, trajectory, method, losses, seeds.

This room imports nothing else of the project; everything else may import it.

Tensor names carry their axes: ``_B`` row of a batch, ``_T`` token position, ``_G`` member of a group, ``_K``
turn of a trajectory. So ``advantages_G`` has one entry per trajectory of a group and ``mask_B_T`` one per
token of a batch.
"""
