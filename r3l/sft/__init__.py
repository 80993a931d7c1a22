"""SFT, which makes base checkpoints, and where published ones come from.

May import core, config, runs, local, the environments and the paper's files.
"""
