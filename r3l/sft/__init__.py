"""SFT, which makes base checkpoints, and the download of published models."""
