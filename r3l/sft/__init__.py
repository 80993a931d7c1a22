"""SFT, which makes base checkpoints, and the download of published models.

May import core, config, runs, local, the environments and the paper's files.
"""
