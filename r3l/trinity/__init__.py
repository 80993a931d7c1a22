"""The trinity engine: methods of this package run by unmodified Trinity-RFT (docs/trinity.md). May import local."""
