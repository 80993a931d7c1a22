"""The trinity engine: methods of this package run by unmodified Trinity-RFT (docs/tiers.md). May import local."""
