"""The nouns of r3l and their rules. Imports nothing from the rest of the package.

Tensor names carry their axes: ``_B`` row of a batch, ``_T`` token position, ``_G`` member of a group.
So ``advantages_G`` has one entry per trajectory of one group and ``mask_B_T`` one per token of a batch.
"""
